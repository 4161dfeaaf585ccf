"""How a run of a pipeline looks: bars and rates on a terminal, a line per change in a pipe."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.cli.printable import printable
from headrace.cli.streams import say

if TYPE_CHECKING:
    from headrace.spark.pipelines.progress import StepProgress

Show = Callable[[Sequence["StepProgress"]], None]


@contextmanager
def printer(*, as_json: bool) -> Iterator[Show]:
    """Yield a function that shows the progress of steps; nothing is shown with JSON."""
    if as_json:
        yield _nothing
    elif sys.stdout.isatty():
        yield from _bars()
    else:
        yield _lines()


def _nothing(steps: Sequence["StepProgress"]) -> None:
    """Show nothing."""


def _lines() -> Show:
    shown: dict[str, tuple[str, int | None]] = {}

    def show(steps: Sequence["StepProgress"]) -> None:
        for each in steps:
            state = each.state, each.batch
            if each.state != "waiting" and shown.get(each.step) != state:
                shown[each.step] = state
                say(f"{printable(each.step)}  {each.state}  {_numbers(each)}")

    return show


def _bars() -> Iterator[Show]:
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415  takes long

    columns = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[state]}"),
        TextColumn("{task.fields[numbers]}"),
    ]
    with Progress(*columns) as progress:
        tasks: dict[str, Any] = {}

        def show(steps: Sequence["StepProgress"]) -> None:
            for each in steps:
                if each.step not in tasks:
                    tasks[each.step] = progress.add_task(
                        printable(each.step), total=None, state="", numbers=""
                    )
                share = each.share
                progress.update(
                    tasks[each.step],
                    total=None if share is None else 1.0,
                    completed=share or 0.0,
                    state=each.state,
                    numbers=_numbers(each),
                )

        yield show


def _numbers(step: "StepProgress") -> str:
    left = "" if step.left is None else f", {step.left:,} left"
    batch = "" if step.batch is None else f", batch {step.batch}"
    return f"{step.rows:,} rows, {step.rows_per_second:,.0f}/s{batch}{left}"
