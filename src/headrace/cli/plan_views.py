"""Plans and their progress, shown to people: bar charts per node, sizes, a progress bar."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from headrace.cli.sizes import size_text
from headrace.cli.streams import say, tell
from headrace.cluster.balancing.terms import NodeLoad, Plan

BAR_CHARACTERS: Final = 20
MOVES_SHOWN: Final = 20
LINE_SECONDS: Final = 5.0
"""How often a line says how far it is, where there is no terminal."""

Measure = tuple[str, Callable[[NodeLoad], float], Callable[[float], str]]
_MEASURES: Final[tuple[Measure, ...]] = (
    ("bytes", lambda load: load.size_bytes, size_text),
    ("replicas", lambda load: load.replicas, "{:.0f}".format),
    ("leaders", lambda load: load.leaders, "{:.0f}".format),
    ("traffic in", lambda load: load.bytes_in, lambda rate: f"{size_text(rate)}/s"),
)


def print_plan(plan: Plan) -> None:
    """Print the size of a plan, its charts and its first moves."""
    copies = plan.copies
    orders = sum(1 for move in plan.moves if not move.adding)
    text = f"{len(plan.moves)} partitions change: {copies} replicas are copied"
    text += f", {size_text(plan.copied_bytes)} in all"
    say(f"{text}; {orders} only change their order" if orders else text)
    print_charts(plan.before, plan.after)
    for move in plan.moves[:MOVES_SHOWN]:
        before, after = (",".join(map(str, each)) for each in (move.before, move.after))
        say(f"  {move.topic}-{move.partition}: {before} -> {after}  ({move.reason})")
    if len(plan.moves) > MOVES_SHOWN:
        say(f"  ... and {len(plan.moves) - MOVES_SHOWN} more (--json shows all)")


def print_charts(before: Sequence[NodeLoad], after: Sequence[NodeLoad]) -> None:
    """Print what each node has before and after, as bars."""
    for name, measure, text in _MEASURES:
        largest = max((measure(load) for load in (*before, *after)), default=0)
        if largest <= 0:
            continue
        say(name)
        for old, new in zip(before, after, strict=True):
            a, b = measure(old), measure(new)
            say(
                f"  node {old.node_id:<4} {_bar(a, largest)} {text(a):>11}  ->  "
                f"{_bar(b, largest)} {text(b):>11}"
            )


def plan_document(plan: Plan) -> dict[str, object]:
    """Return a plan as it is printed with --json."""
    return {
        "moves": [
            {
                "topic": move.topic,
                "partition": move.partition,
                "from": move.before,
                "to": move.after,
                "bytes": move.copied_bytes,
                "reason": move.reason,
            }
            for move in plan.moves
        ],
        "copied_bytes": plan.copied_bytes,
        "problems": plan.problems,
        "before": plan.before,
        "after": plan.after,
    }


class _Lines:
    """Progress as lines on standard error, now and then."""

    def __init__(self, moves: int, total_bytes: int) -> None:
        self._moves = moves
        self._bytes = total_bytes
        self._said_at = time.monotonic()

    def show(self, *, moves: int, copied_bytes: int, moving: int) -> None:
        now = time.monotonic()
        if now - self._said_at >= LINE_SECONDS:
            self._said_at = now
            tell(
                f"{moves} of {self._moves} partitions moved, {moving} on the move, "
                f"{size_text(copied_bytes)} of {size_text(self._bytes)} copied"
            )


@contextmanager
def show_progress(moves: int, total_bytes: int) -> Iterator["_Lines | _Bar"]:
    """Show progress: a bar on a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        yield _Lines(moves, total_bytes)
        return
    bar = _Bar(moves, total_bytes)
    with bar:
        yield bar


class _Bar:
    """Progress as a bar of bytes, or of moves if nothing has to be copied."""

    def __init__(self, moves: int, total_bytes: int) -> None:
        from rich.console import Console  # noqa: PLC0415  only a person at a terminal needs it
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._by_bytes = total_bytes > 0
        sizes = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        columns = sizes if self._by_bytes else (MofNCompleteColumn(),)
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), *columns, console=Console(stderr=True)
        )
        self._moves = moves
        self._task = self._bar.add_task("", total=total_bytes if self._by_bytes else moves)

    def __enter__(self) -> None:
        self._bar.start()

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def show(self, *, moves: int, copied_bytes: int, moving: int) -> None:
        self._bar.update(
            self._task,
            completed=copied_bytes if self._by_bytes else moves,
            description=f"{moves} of {self._moves} partitions, {moving} on the move",
        )


def _bar(value: float, largest: float) -> str:
    filled = round(BAR_CHARACTERS * value / largest)
    return "█" * filled + "·" * (BAR_CHARACTERS - filled)
