"""How far moves of partitions are, from what all nodes say of them; and what holds one up. Pure.

    before = gather(answers)                    # what each node responded
    rows = progress(before, gather(later), seconds=1.0)

One row for each node that a partition is copied to. Bytes are those of log files: a copy of a
compacted or tiered log may end up with fewer.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from headrace.cluster.operator_words import NOBODY, UNKNOWN_BYTES, MoveRow, Moves

_LEADING: Final = ("LeadershipTransfer", "Cutover", "Complete")


class Copy(msgspec.Struct, frozen=True):
    """A node's copy of a partition."""

    size_bytes: int
    end_offset: int


class Move(msgspec.Struct, frozen=True):
    """A partition on the move, and the copies of it that could be asked for."""

    row: MoveRow
    copies: dict[int, Copy]


class Progress(msgspec.Struct, frozen=True):
    """How far the copy on one node is; None where it is not known."""

    migration_id: str
    topic: str
    partition: int
    phase: str
    source: tuple[int, ...]
    """The nodes that leave."""
    target: int | None
    """The node that comes, None if nodes only leave."""
    copied_bytes: int | None
    total_bytes: int | None
    lag: int | None
    """How many records the copy lacks."""
    bytes_per_second: float | None
    seconds_left: float | None
    state: str


def gather(answers: Iterable[Moves]) -> dict[tuple[str, int], Move]:
    """Put together what nodes say of each move."""
    found: dict[tuple[str, int], Move] = {}
    for answer in answers:
        for row in answer.moves:
            move = found.setdefault((row.topic, row.partition), Move(row, {}))
            if row.since_ms > move.row.since_ms:  # a node that lags has an older view
                found[row.topic, row.partition] = Move(row, move.copies)
            if row.own_bytes != UNKNOWN_BYTES:
                move.copies[answer.node] = Copy(row.own_bytes, row.own_end_offset)
    return dict(sorted(found.items()))


def progress(
    before: Mapping[tuple[str, int], Move],
    now: Mapping[tuple[str, int], Move],
    seconds: float,
) -> list[Progress]:
    """Return how far each copy is, and how fast it went between two looks."""
    rows = []
    for key, move in now.items():
        former = before.get(key)
        for target in move.row.adding or (None,):
            rows.append(_progress(move, former, target, seconds))
    return rows


def _progress(move: Move, former: Move | None, target: int | None, seconds: float) -> Progress:
    row = move.row
    ours = None if target is None else move.copies.get(target)
    theirs = move.copies.get(row.leader)
    was = None if former is None or target is None else former.copies.get(target)
    rate = None
    if ours is not None and was is not None and seconds > 0:
        rate = max(ours.size_bytes - was.size_bytes, 0) / seconds
    left = None
    if ours is not None and theirs is not None and rate:
        left = max(theirs.size_bytes - ours.size_bytes, 0) / rate
    lag = None
    if ours is not None and theirs is not None:
        lag = max(theirs.end_offset - ours.end_offset, 0)
    return Progress(
        migration_id=row.migration_id,
        topic=row.topic,
        partition=row.partition,
        phase=row.phase,
        source=row.removing,
        target=target,
        copied_bytes=None if ours is None else ours.size_bytes,
        total_bytes=None if theirs is None else theirs.size_bytes,
        lag=lag,
        bytes_per_second=rate,
        seconds_left=0.0 if target in row.isr else left,
        state=_explain(row, target, rate, lag),
    )


def _explain(row: MoveRow, target: int | None, rate: float | None, lag: int | None) -> str:
    """Return what a move does, or what it waits for and what to do about it."""
    if row.leader == NOBODY:
        gone = _names(each for each in row.isr if each in row.unavailable)
        return f"stuck: the partition has no leader; start {gone or 'its nodes'}"
    if target is not None and target in row.unavailable:
        return f"stuck: node {target} is down; start it, or abort the move"
    if row.phase in _LEADING:
        return "finishes"
    if target is None:
        return "waits until the replicas that stay are in sync"
    if target in row.isr:
        others = _names(each for each in row.adding if each not in row.isr)
        return f"in sync, waits for {others}" if others else "in sync, finishes"
    return _explain_copying(rate, lag)


def _explain_copying(rate: float | None, lag: int | None) -> str:
    if lag is None:
        return "copies; a node of it cannot be asked"
    if not lag:
        return "has all records, waits to be in sync"
    if rate == 0:
        return "copies nothing now: the node is slow, or a replication throttle holds it back"
    return "copies"


def _names(nodes: Iterable[int]) -> str:
    return ", ".join(f"node {each}" for each in nodes)
