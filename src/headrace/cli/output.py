"""Output of commands: JSON, or tables, drawn on a terminal and plain columns in a pipe."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from headrace.cli.printable import printable, printable_json
from headrace.cli.running import report
from headrace.cli.streams import say
from headrace.errors import ErrorCode, KafkaError


def print_json(value: Any) -> None:
    """Print one JSON document on its own line; numbers that are keys become text."""
    plain = msgspec.to_builtins(value, str_keys=True, order="deterministic")
    say(printable_json(msgspec.json.encode(plain).decode()))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print rows under their columns' names; numbers are right-aligned."""
    rows = list(rows)
    cells = [[printable(_text(cell)) for cell in row] for row in rows]
    title = printable(title)
    is_number = [
        bool(rows) and all(isinstance(row[index], int) for row in rows)
        for index in range(len(columns))
    ]
    if sys.stdout.isatty():
        _draw(columns, cells, is_number, title)
        return
    if title:
        say(title)
    widths = [
        max(len(column), *(len(row[index]) for row in cells), 0)
        for index, column in enumerate(columns)
    ]
    for line in ([column.upper() for column in columns], *cells):
        padded = (
            word.rjust(width) if right else word.ljust(width)
            for word, width, right in zip(line, widths, is_number, strict=True)
        )
        say("  ".join(padded).rstrip())


def _draw(
    columns: Sequence[str], cells: list[list[str]], is_number: list[bool], title: str
) -> None:
    from rich.box import ROUNDED  # noqa: PLC0415  takes longer than most commands
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=ROUNDED, title=title or None, title_justify="left", title_style="bold")
    for column, right in zip(columns, is_number, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, tuple | list):
        return ",".join(map(str, cell))
    return str(cell)


def report_deleted(
    outcomes: Mapping[str, KafkaError | None],
    kind: str,
    *,
    as_json: bool,
    fine: ErrorCode | None = None,
) -> None:
    """Print what was deleted; fail if a deletion was refused, except for accepted errors."""
    gone = [name for name, error in outcomes.items() if error is None]
    if as_json:
        print_json(gone)
    else:
        for name in gone:
            say(f"deleted {printable(name)}")
    refused = {name: error for name, error in outcomes.items() if error and error.code != fine}
    report(refused, kind)
