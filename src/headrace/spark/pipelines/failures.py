"""What went wrong in a step, in a few words: Spark's messages are pages long. Pure."""

import re
from typing import Final

from headrace.errors import HeadraceError

TEXT_MAX: Final = 600
VALUE_MAX: Final = 200
_JVM: Final = re.compile(r"^\s*(at |\.\.\. \d+ more|Caused by:|JVM stacktrace)")
_BRIDGE: Final = "An error occurred while calling "
"""How Python's bridge to the JVM begins; the error itself is in the next line, behind a colon."""
_CAUSE: Final = ": "
_TRACE: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(
    r"^\s*([A-Za-z_][\w.]*(?:Error|Exception|Warning|Interrupt|Invalid\w*|\w+)): .+"
)
_PREFIX: Final = re.compile(r"^(?:[a-z]\w*\.)+(?=[A-Z])")


class StepFailed(HeadraceError):
    """A step that failed: which one, in which file, why, and at which record if one is known."""

    def __init__(self, step: str, file: str, reason: str, record: str | None = None) -> None:
        at = f", at {record}" if record else ""
        super().__init__(f"step {step!r} ({file}) failed{at}: {reason}")
        self.step = step
        self.file = file
        self.reason = reason
        self.record = record


def reason_of(text: str) -> str:
    """Return the reason in an error message of Spark's: the last line of a Python traceback, or the
    first line that is no stack of Java's.
    """
    if _TRACE in text:
        found = _raised(text.rpartition(_TRACE)[2])
        if found is not None:
            return _shorten(found)
    lines = [
        line.strip().removeprefix(_CAUSE)
        for line in text.splitlines()
        if line.strip() and not _JVM.match(line) and not line.startswith(_BRIDGE)
    ]
    telling = [line for line in lines if line.startswith("[")] or lines
    return _shorten(telling[0] if telling else "Spark does not say why")


def describe_record(
    topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None
) -> str:
    """Return a record in a line: where it is, and how it begins."""
    return f"record {topic}-{partition} offset {offset} (key {_text(key)}, value {_text(value)})"


def _raised(traceback: str) -> str | None:
    """Return the line of a traceback that names the exception, with what follows in its text."""
    for line in traceback.splitlines():
        if line.startswith((" ", "\t")) or not line.strip():
            continue
        if _RAISED.match(line):
            return _PREFIX.sub("", line.strip())
    return None


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = bytes(data[:VALUE_MAX]).decode(errors="backslashreplace")
    return repr(text) + ("..." if len(data) > VALUE_MAX else "")


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."
