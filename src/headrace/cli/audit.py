"""`headrace audit`: who changed what, was denied what, and logged in, from a node's files."""

from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, Final

import click

from headrace.cli.durations import UNITS_MS
from headrace.cli.options import FilePath
from headrace.cli.output import print_json, print_table
from headrace.cli.running import usage_error
from headrace.cli.whole_numbers import whole_number
from headrace.security.audit import DENIED, FAILED, REFUSED
from headrace.server.audit_files import open_files, read_events

NAME: Final = "audit.log"
"""The file in a data folder that is looked for."""
SHOWN_MAX: Final = 1000

Row = dict[str, Any]


@click.command()
@click.argument(
    "path",
    metavar="PATH",
    type=FilePath(),
    help=f"The file of headrace.audit.log, or a data folder with {NAME}.",
)
@click.option("--since", metavar="WHEN", help="A duration such as 2h, or a time in ISO 8601.")
@click.option("--principal", help="Only what this one did, as User:alice or alice.")
@click.option("--denied", is_flag=True, help="Only what was denied, refused or failed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one event per line.")
def audit(
    path: Path, *, since: str | None, principal: str | None, denied: bool, as_json: bool
) -> None:
    """Show the audit log of a node: changes, denials and logins.

    A node writes it with headrace.audit.log set. Older files of the log are read as well. The table
    has the last 1000 events, --json has all.
    """
    log = path / NAME if path.is_dir() else path
    try:
        files = open_files(log)
    except OSError as error:
        usage_error(f"{error.filename or log}: {error.strerror or error}")
    if not files:
        usage_error(f"{log}: there is no audit log; headrace.audit.log of a node names it")
    begin = None if since is None else _moment(since)
    if principal is not None and ":" not in principal and not principal.startswith("("):
        principal = f"User:{principal}"
    rows = _wanted(_events(files), begin, principal, denied=denied)
    if as_json:
        for row in rows:
            print_json(row)
        return
    last = deque(rows, SHOWN_MAX)
    print_table(
        ("time", "principal", "address", "what", "outcome", "about", "times"),
        [
            (
                _text(row, "time"),
                _text(row, "principal"),
                _text(row, "address"),
                _text(row, "api") or _text(row, "change") or _text(row, "kind"),
                _outcome(row),
                _about(row),
                row.get("count", 1),
            )
            for row in last
        ],
    )


def _events(files: Iterable[IO[bytes]]) -> Iterator[Row]:
    for file in files:
        with file:
            try:
                yield from read_events(file)
            except OSError as error:
                usage_error(f"{file.name}: {error.strerror or error}")


def _wanted(
    events: Iterable[Row], begin: datetime | None, principal: str | None, *, denied: bool
) -> Iterator[Row]:
    for event in events:
        if begin is not None and (time := _time(event)) is not None and time < begin:
            continue
        if principal is not None and event.get("principal") != principal:
            continue
        if denied and event.get("outcome") not in (DENIED, REFUSED, FAILED):
            continue
        yield event


def _moment(text: str) -> datetime:
    """Return the time that a duration ago was, or that is written out; usage error if neither."""
    number, unit = whole_number(text[:-1]), text[-1:]
    if number is not None and unit in UNITS_MS:
        try:
            return datetime.now(UTC) - timedelta(milliseconds=number * UNITS_MS[unit])
        except OverflowError:
            usage_error(f"--since {text}: is too long ago")
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        usage_error(f"--since {text}: write it as 30m, 2h or 7d, or as 2026-11-18T20:00:00Z")
    return time if time.tzinfo is not None else time.astimezone()


def _time(event: Row) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(event.get("time")))
    except ValueError:
        return None
    # Nodes write UTC, whoever has edited the file.
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _text(row: Row, name: str) -> str:
    value = row.get(name, "")
    return value if isinstance(value, str) else str(value)


def _outcome(row: Row) -> str:
    why = _text(row, "error") or _text(row, "reason")
    return f"{_text(row, 'outcome')} ({why})" if why else _text(row, "outcome")


def _about(row: Row) -> str:
    names = row.get("names") or ()
    words = (
        _text(row, "operation"),
        _text(row, "resource"),
        ", ".join(map(str, names)) if isinstance(names, list) else "",
        f"({_text(row, 'details')})" if row.get("details") else "",
    )
    return " ".join(filter(None, words))
