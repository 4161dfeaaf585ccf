"""The header of a SQL step: comment lines in front of the statement, `-- name: value`. Pure.

    -- reads: orders, products
    -- writes: totals
    -- mode: complete
    -- trigger: 10 seconds
    -- watermark: at 10 minutes
    select ...

Other comments may be among them. A line that looks like a header with an unknown name is refused.
"""

import re
from typing import Final

from headrace.spark.pipelines.model import InvalidPipeline, Step, suggest

NAMES: Final = ("reads", "writes", "mode", "trigger", "watermark")
_LINE: Final = re.compile(r"--\s*([A-Za-z_]+)\s*:(.*)")
_INTERVAL: Final = re.compile(
    r"[0-9]{1,9}\s+(millisecond|second|minute|hour|day)s?|[0-9]{1,9}\.[0-9]{1,9}\s+seconds?"
)
"""What Spark takes: of seconds alone there are parts."""


def parse_sql(name: str, file: str, text: str) -> tuple[Step, str]:
    """Return a step and its statement; InvalidPipeline names the file and the line."""
    given: dict[str, str] = {}
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("--"):
            break
        found = _LINE.fullmatch(stripped)
        if found is None:
            continue
        key, value = found[1].lower(), found[2].strip()
        meant = suggest(key, NAMES)
        if key not in NAMES and meant:
            raise InvalidPipeline(f"{file}:{number}: a header {key!r} is not known{meant}")
        if key not in NAMES:
            continue  # a comment with a colon
        if key in given:
            raise InvalidPipeline(f"{file}:{number}: the header {key!r} is there twice")
        if not value:
            raise InvalidPipeline(f"{file}:{number}: the header {key!r} is empty")
        given[key] = value
    statement = text.strip().removesuffix(";").strip()
    if all(not line.strip() or line.strip().startswith("--") for line in lines):
        raise InvalidPipeline(f"{file}: there is no SQL statement")
    if "reads" not in given:
        raise InvalidPipeline(f"{file}: say what it reads: `-- reads: NAME, NAME`")
    step = Step(
        name,
        file,
        tuple(filter(None, (each.strip() for each in given["reads"].split(",")))),
        given.get("writes"),
        given.get("mode", "append").lower(),
        parse_trigger(given.get("trigger"), file),
        parse_watermark(given.get("watermark"), file),
    )
    return step, statement


def parse_trigger(text: str | None, file: str) -> str | None:
    """Return an interval as Spark takes it."""
    if text is None:
        return None
    if not _INTERVAL.fullmatch(text.strip().lower()):
        raise InvalidPipeline(f"{file}: trigger {text!r}; an interval is, like 10 seconds")
    return text.strip().lower()


def parse_watermark(text: str | None, file: str) -> tuple[str, str] | None:
    """Return the column and the delay of a watermark."""
    if text is None:
        return None
    column, _, delay = text.strip().partition(" ")
    if not column or not _INTERVAL.fullmatch(delay.strip().lower()):
        raise InvalidPipeline(
            f"{file}: watermark {text!r}; a column and an interval are, like at 10 minutes"
        )
    return column, delay.strip().lower()
