"""Committed offsets of the source's groups, copied to the target.

As records have the same offsets in both, positions are copied as they are, but never beyond what
is mirrored, and only forward. A group with members in the target is left alone: it has its own.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.client.admin import Admin
from headrace.client.groups import CommittedOffset
from headrace.client.mirror.choice import Choice
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError

COPIED_TYPES: Final = ("classic", "consumer", "")
"""A source before Kafka 3.8 does not tell the type, and has no other."""
ACTIVE: Final = frozenset(
    {"stable", "preparingrebalance", "completingrebalance", "assigning", "reconciling"}
)
"""States of groups with members."""


class GroupCopy(msgspec.Struct, kw_only=True):
    """A group and what was copied of it."""

    group_id: str
    problem: str = ""
    """Why its positions are not copied, empty if they are."""
    partitions: int = 0
    """In how many mirrored partitions the source has a position of it."""
    moved: int = 0
    """In how many of them the target's position was changed, or would be."""
    lag: int = 0
    """How many offsets the target's positions are behind the source's."""
    positions: dict[TopicPartition, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Source and target of each partition; -1 if the target has none."""


def plan_moves(
    source: Mapping[TopicPartition, CommittedOffset],
    target: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
    *,
    goes_back: bool,
) -> dict[TopicPartition, CommittedOffset]:
    """Return the positions to commit in the target. Pure.

    `ends` has where each mirrored partition of the target ends. Leader epochs are left out: the
    target's are others.
    """
    moves: dict[TopicPartition, CommittedOffset] = {}
    for partition, committed in source.items():
        if partition not in ends:
            continue
        offset = min(committed.offset, ends[partition])
        known = target.get(partition)
        if known is None or offset > known.offset or (goes_back and offset < known.offset):
            moves[partition] = CommittedOffset(offset, -1, committed.metadata)
    return moves


class GroupPositions:
    """Keeps the positions of groups in the target like those of the source."""

    def __init__(
        self, source: Admin, target: Admin, choice: Choice, *, goes_back: bool = False
    ) -> None:
        self._source = source
        self._target = target
        self._choice = choice
        self._goes_back = goes_back

    async def refresh(
        self, ends: Mapping[TopicPartition, int], *, is_dry_run: bool = False
    ) -> list[GroupCopy]:
        """Copy positions in mirrored partitions, whose ends in the target are given."""
        listed = await self._source.list_groups()
        states = {each.group_id: each.state for each in await self._target.list_groups()}
        found: list[GroupCopy] = []
        for each in listed:
            if each.group_type not in COPIED_TYPES or not self._choice.has(each.group_id):
                continue
            copy = GroupCopy(group_id=each.group_id)
            try:
                await self._refresh(copy, ends, states.get(each.group_id, ""), is_dry_run)
            except KafkaError as error:
                copy.problem = error.message
            if copy.partitions:
                found.append(copy)
        return found

    async def _refresh(
        self, copy: GroupCopy, ends: Mapping[TopicPartition, int], state: str, is_dry_run: bool
    ) -> None:
        committed = await self._source.list_group_offsets(copy.group_id)
        source = {partition: offset for partition, offset in committed.items() if partition in ends}
        copy.partitions = len(source)
        if not source:
            return
        target = await self._target.list_group_offsets(copy.group_id) if state else {}
        moves = plan_moves(source, target, ends, goes_back=self._goes_back)
        if state.lower().replace("_", "") in ACTIVE:
            copy.problem = "has members in the target, and goes on there"
            moves = {}
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        if moves and not is_dry_run:
            outcomes = await self._target.alter_group_offsets(copy.group_id, moves)
        for partition, offset in source.items():
            move, known = moves.get(partition), target.get(partition)
            is_moved = move is not None and not is_dry_run
            if isinstance(error := outcomes.get(partition), KafkaError):
                is_moved = False
                copy.problem = _explain(error)
            after = move.offset if move is not None and is_moved else known.offset if known else -1
            copy.positions[partition] = (offset.offset, after)
            copy.moved += move is not None and error is None
            copy.lag += max(offset.offset - max(after, 0), 0)


def _explain(error: KafkaError) -> str:
    if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS):
        return "has members in the target, and goes on there"
    return error.message
