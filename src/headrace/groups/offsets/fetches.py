"""Fetches of committed offsets.

A fetch writes nothing, but it runs as an operation: its response waits until everything that it
has read is committed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.groups.kinds import find_group, rules_of
from headrace.groups.offsets.store import CommittedOffset, Place
from headrace.groups.state import GroupsState

NO_EPOCH: Final = -1


class OffsetQuery(NamedTuple):
    """Which offsets of a group are asked for, and by whom."""

    group_id: str
    topics: Sequence[tuple[str, Sequence[int]]] | None
    """Partitions by topic; None is for all that there is."""
    is_stable_required: bool = False
    """Whether offsets that a transaction under way will change are none to begin from."""
    member_id: str | None = None
    member_epoch: int = NO_EPOCH


class FetchedOffset(NamedTuple):
    """What is known for a partition."""

    partition: int
    committed: CommittedOffset | None
    is_unstable: bool = False
    """Whether a transaction under way has another offset, and that was to be told."""


class OffsetSnapshot(NamedTuple):
    """What a group had committed at a moment, for rows that are made later."""

    committed: Mapping[str, Mapping[int, CommittedOffset]]
    undecided: set[Place]
    """What transactions under way will change, if that was to be told."""

    def fetched(self, topic: str, index: int) -> FetchedOffset:
        """Return what was known for a partition."""
        if self.undecided and (topic, index) in self.undecided:
            return FetchedOffset(index, None, is_unstable=True)
        known = self.committed.get(topic)
        return FetchedOffset(index, None if known is None else known.get(index))


FetchedTopic = tuple[str, list[FetchedOffset]]


def fetch_offsets(
    state: GroupsState, query: OffsetQuery, reply: Reply[list[FetchedTopic]]
) -> Outcome:
    """Look up offsets; the answer is a list of topics with theirs.

    KafkaError if a member asks whom the group does not have, or not any more. A group that does
    not exist has committed nothing.
    """
    _check_member(state, query)
    undecided = _undecided(state, query)
    return Outcome(replies=(told(reply, list(_look_up(state, query, undecided))),))


def snapshot_offsets(
    state: GroupsState, query: OffsetQuery, reply: Reply[OffsetSnapshot]
) -> Outcome:
    """Look up very many offsets; the answer is an `OffsetSnapshot`. KafkaError as `fetch_offsets`.

    It is one moment of the group, so that a transaction is seen as a whole or not at all. What the
    group has of the topics is copied, without any Python for a partition.
    """
    _check_member(state, query)
    committed = state.offsets.committed(query.group_id)
    names: Iterable[str] = committed
    if query.topics is not None:
        names = committed.keys() & {topic for topic, _ in query.topics}
    copied = {topic: dict(committed[topic]) for topic in names}
    return Outcome(replies=(told(reply, OffsetSnapshot(copied, _undecided(state, query))),))


def _undecided(state: GroupsState, query: OffsetQuery) -> set[Place]:
    if query.is_stable_required and state.offsets.has_undecided(query.group_id):
        return state.offsets.undecided(query.group_id)
    return set()


def _look_up(
    state: GroupsState, query: OffsetQuery, undecided: set[Place]
) -> Iterator[FetchedTopic]:
    topics = query.topics
    if topics is None:
        committed = state.offsets.committed(query.group_id)
        topics = [(topic, list(partitions)) for topic, partitions in committed.items()]
    for topic, indexes in topics:
        known = state.offsets.of_topic(query.group_id, topic)
        yield (
            topic,
            [
                FetchedOffset(index, None, is_unstable=True)
                if undecided and (topic, index) in undecided
                else FetchedOffset(index, known.get(index))
                for index in indexes
            ],
        )


def _check_member(state: GroupsState, query: OffsetQuery) -> None:
    if query.member_id is None and query.member_epoch <= NO_EPOCH:
        return  # a tool, or a client of a classic group
    group = find_group(state, query.group_id)
    if group is not None:
        rules_of(group).check_fetch(group, query.member_id or "", query.member_epoch)
