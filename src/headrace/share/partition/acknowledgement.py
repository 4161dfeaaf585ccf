"""Acknowledgements of a member, checked as a whole before any is applied.

Kafka distinguishes two failures: INVALID_REQUEST is a request that is invalid in any state, and
INVALID_RECORD_STATE one about records that the member does not hold, or no longer holds.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.share.partition.changes import Outcome, Outcomes
from headrace.share.partition.locks import end_of
from headrace.share.partition.types import Acknowledgement, AckType, Cause, Limits
from headrace.share.partition.window import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    Run,
    Window,
)

GAP = int(AckType.GAP)
ACCEPT = int(AckType.ACCEPT)
RELEASE = int(AckType.RELEASE)
REJECT = int(AckType.REJECT)
RENEW = int(AckType.RENEW)

NO_RENEWALS = "The group does not allow lock renewals: share.renew.acknowledge.enable."

Stretch = tuple[int, int, int]
"""First and last offset, and the type for all of them."""


class Plan(NamedTuple):
    """The effect of acknowledgements."""

    outcomes: list[Outcome]
    renewals: list[tuple[int, int]]


def plan(
    window: Window,
    member_id: str,
    acknowledgements: Sequence[Acknowledgement],
    limits: Limits,
) -> Plan:
    """Return the effect of acknowledgements, or raise the error of the first invalid one.

    Offsets before the start are ignored: their records are complete.
    """
    stretches, is_any_twice = _stretches(acknowledgements)
    outcomes = Outcomes()
    renewals: list[tuple[int, int]] = []
    wrong: Acknowledgement | None = None
    if is_any_twice or (acknowledgements and acknowledgements[-1].last_offset > window.end_offset):
        wrong = _first_wrong(window, acknowledgements)
    runs = window.runs
    index = 0
    for first, stretch_last, kind in stretches:
        position = max(first, window.start_offset)
        # Before an invalid one there may be one that fails by its state; that one comes first.
        last = stretch_last if wrong is None else min(stretch_last, wrong.first_offset - 1)
        if last < position:
            continue
        if runs[index].last < position:
            index = window.index_of(position)
        while True:
            run = runs[index]
            if run.state != ACQUIRED or run.member_id != member_id or run.change is not None:
                raise _not_held(run, max(run.first, position), member_id)
            piece_last = min(run.last, last)
            if kind == ACCEPT:
                outcomes.add(position, piece_last, ACKNOWLEDGED, run.count, None)
            elif kind == RENEW:
                if not limits.is_renew_allowed:
                    raise KafkaError(ErrorCode.INVALID_RECORD_STATE, NO_RENEWALS)
                renewals.append((position, piece_last))
            else:
                state, cause = _end(kind, run.count, limits)
                outcomes.add(position, piece_last, state, run.count, cause)
            if piece_last == last:
                break
            position = piece_last + 1
            index += 1
    if wrong is not None:
        raise _never_acquired(window, wrong)
    return Plan(outcomes.end(), renewals)


def _first_wrong(
    window: Window, acknowledgements: Sequence[Acknowledgement]
) -> Acknowledgement | None:
    """Return the first that goes past the end, or starts at the last offset of its predecessor.

    Kafka's check of the request lets the second case through; the offset is then found to be
    acknowledged already.
    """
    previous = -1
    for each in acknowledgements:
        if each.last_offset >= window.start_offset and (
            each.last_offset > window.end_offset
            or window.start_offset <= each.first_offset == previous
        ):
            return each
        previous = each.last_offset
    return None


def _end(kind: int, count: int, limits: Limits) -> tuple[int, Cause | None]:
    if kind == RELEASE:
        return end_of(count, Cause.EXHAUSTED, limits)
    if kind == REJECT:
        return (ARCHIVING if limits.has_dead_letters else ARCHIVED), Cause.REJECTED
    return ARCHIVED, Cause.GONE


def _stretches(acknowledgements: Sequence[Acknowledgement]) -> tuple[list[Stretch], bool]:
    """Return the acknowledgements in offset order, adjacent ones of one type merged.

    Also return whether the last offset of one is the first of the next.
    """
    stretches: list[Stretch] = []
    is_any_twice = False
    kind = previous = -1
    begin = last = -2
    for first_offset, last_offset, types in acknowledgements:
        size = last_offset - first_offset + 1
        if first_offset == previous >= 0:
            is_any_twice = True
        elif first_offset <= previous:
            size = 0
        if size <= 0:
            raise _malformed(
                f"offsets {first_offset} to {last_offset} do not follow offset {previous}"
            )
        previous = last_offset
        position = first_offset
        for each, span in _spans(first_offset, size, types):
            if each == kind and position == last + 1:
                last += span
            else:
                if not GAP <= each <= RENEW:
                    raise _malformed(f"type {each} of offset {position}, which there is not")
                if kind >= 0:
                    stretches.append((begin, last, kind))
                begin, last, kind = position, position + span - 1, each
            position += span
    if kind >= 0:
        stretches.append((begin, last, kind))
    return stretches, is_any_twice


def _spans(first_offset: int, size: int, types: Sequence[int]) -> Sequence[tuple[int, int]]:
    """Return each type with its number of consecutive offsets."""
    if len(types) == 1:
        return ((types[0], size),)
    if len(types) != size:
        raise _malformed(f"{len(types)} types for {size} offsets from {first_offset} on")
    return [(each, sum(1 for _ in same)) for each, same in groupby(types)]


def _never_acquired(window: Window, wrong: Acknowledgement) -> KafkaError:
    if wrong.last_offset <= window.end_offset:
        return KafkaError(
            ErrorCode.INVALID_RECORD_STATE, f"Offset {wrong.first_offset} is acknowledged twice."
        )
    # Kafka looks up the records first, and only then those after them.
    is_empty = window.end_offset < window.start_offset
    return KafkaError(
        ErrorCode.INVALID_RECORD_STATE if is_empty else ErrorCode.INVALID_REQUEST,
        f"Offsets {wrong.first_offset} to {wrong.last_offset} are acknowledged, but nothing"
        f" after offset {window.end_offset} was acquired.",
    )


def _malformed(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid acknowledgements: {what}.")


def _not_held(run: Run, offset: int, member_id: str) -> KafkaError:
    if run.state != ACQUIRED:
        what = "is not acquired"
    elif run.change is not None:
        what = "is being acknowledged already"
    else:
        what = f"is acquired by member {run.member_id}"
    return KafkaError(
        ErrorCode.INVALID_RECORD_STATE,
        f"Offset {offset} {what}; member {member_id} cannot acknowledge it.",
    )
