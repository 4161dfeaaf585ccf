"""Where the next batch of a table begins and ends, and what is wrong with its topic. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.client.topics import TopicPartition
from headrace.errors import HeadraceError
from headrace.spark.planning import Range, bound_rows, split
from headrace.spark.tables.commits import Head, unfinished
from headrace.spark.tables.definition import Definition, Mode

TASK_RECORDS_MIN: Final = 50_000
"""A partition is only split among tasks if each of them has so many records."""
FIRST_BATCH_RECORDS: Final = 10_000
"""The first batch of a table without columns is small: it is read twice."""


class Gap(HeadraceError):
    """Records that belong into the table and are gone."""


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster says of a topic."""

    topic_id: str
    earliest: Mapping[int, int]
    latest: Mapping[int, int]
    leaders: Mapping[int, int] = {}
    """The leader epochs of partitions."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The next batch."""

    start: dict[int, int]
    stop: dict[int, int]
    gaps: list[str] = []
    """Losses that the user accepts."""
    is_again: bool = False
    """Whether the dead letters of this batch are committed already."""

    @property
    def size(self) -> int:
        return sum(stop - self.start[each] for each, stop in self.stop.items())


def plan_batch(
    definition: Definition,
    state: TopicState,
    head: Head,
    letters: Head,
    *,
    records_max: int,
    accepts_loss: bool = False,
) -> Plan:
    """Return the next batch, which may be empty; Gap if the table would miss records."""
    check_topic(definition, state, head)
    start, gaps = _starts(definition, state, head, accepts_loss=accepts_loss)
    pending = _pending(definition, state, head, letters, start)
    if pending:
        stop = {each: max(pending.get(each, begin), begin) for each, begin in start.items()}
        return Plan(start=start, stop=stop, gaps=gaps, is_again=True)
    topic = definition.topic
    bounded = bound_rows(
        {TopicPartition(topic, each): offset for each, offset in start.items()},
        {TopicPartition(topic, each): max(state.latest[each], start[each]) for each in start},
        records_max,
    )
    return Plan(
        start=start, stop={each.partition: stop for each, stop in bounded.items()}, gaps=gaps
    )


def check_cuts(definition: Definition, head: Head, ends: Mapping[int, int]) -> None:
    """Raise Gap if the log of a partition parts from what was committed.

    `ends` are where the leader epochs of the head end in the log now. After an unclean election
    the new leader's records begin below what the old one had, and may have grown beyond it since.
    """
    for each, end in sorted(ends.items()):
        known = head.offsets.get(each, 0)
        if 0 <= end < known:
            raise Gap(
                f"truncated: {definition.topic}-{each} has other records from offset {end} on than "
                f"when the table took those up to {known - 1}: the log was cut off, as after an "
                "unclean election, and has grown since. Drop the table and create it again"
            )


def ranges_of(definition: Definition, plan: Plan, topic_id: bytes, parallelism: int) -> list[Range]:
    """Cut a batch into tasks. A partition of an upserted table is one: its keys are in order."""
    ranges = [
        Range(definition.topic, each, plan.start[each], stop, topic_id)
        for each, stop in sorted(plan.stop.items())
    ]
    if definition.mode is Mode.UPSERT:
        return split(ranges, None, None)
    wanted = min(parallelism, plan.size // TASK_RECORDS_MIN)
    return split(ranges, wanted or None, None)


def _pending(
    definition: Definition, state: TopicState, head: Head, letters: Head, start: Mapping[int, int]
) -> dict[int, int]:
    """Return where a batch ends whose dead letters are committed, if some of it is still there.

    What a loss that is accepted has passed is over: nothing is left to be finished.
    """
    found = unfinished(head, letters)
    for each, stop in found.items():
        latest = state.latest.get(each, 0)
        if stop > latest:
            raise Gap(
                f"truncated: {definition.topic}-{each} ends at offset {latest}, and dead letters "
                f"are there up to {stop - 1}: the log was cut off, as after an unclean election. "
                "What comes now would overlap; drop the table and create it again"
            )
    return {each: stop for each, stop in found.items() if stop > start.get(each, stop)}


def check_topic(definition: Definition, state: TopicState, head: Head) -> None:
    """Raise Gap if the topic is another one than the table's, or has partitions that it cannot."""
    # A table that has nothing yet, and begins at no offset, may begin with another topic.
    known = head.topic_id or (definition.topic_id if definition.start_offsets else "")
    if known and state.topic_id and known != state.topic_id:
        raise Gap(
            f"re-created: topic {definition.topic!r} was deleted and created again (id "
            f"{known} then, {state.topic_id} now), so its offsets mean other records. The "
            f"table stays as it is; for the new topic create another one, or drop this one first"
        )
    missing = sorted(set(head.offsets).difference(state.latest))
    if missing:
        raise Gap(f"topic {definition.topic!r} has no partition {missing[0]} any more")
    count = definition.partition_count
    if definition.mode is Mode.UPSERT and count and len(state.latest) != count:
        raise Gap(
            f"topic {definition.topic!r} has {len(state.latest)} partitions and had {count} when "
            "the table was created: keys may have moved, so that rows would be in the table twice. "
            "Create the table again"
        )


def _starts(
    definition: Definition, state: TopicState, head: Head, *, accepts_loss: bool
) -> tuple[dict[int, int], list[str]]:
    starts: dict[int, int] = {}
    gaps: list[str] = []
    for each in sorted(state.latest):
        earliest, latest = state.earliest[each], state.latest[each]
        known = head.offsets.get(each)
        if known is None:
            given = definition.start_offsets.get(str(each))
            if given is None:
                # A partition that was added later begins at its beginning, whatever `start` says.
                given = earliest
            if given > latest:
                continue  # it begins later: at an offset to come, or behind open transactions
            known = given
        if known < earliest:
            gaps.append(
                f"{definition.topic}-{each}: offsets {known} to {earliest - 1} are gone "
                "(retention, or a deletion of records), and the table does not have them"
            )
            known = earliest
        elif known > latest:
            raise Gap(
                f"truncated: {definition.topic}-{each} ends at offset {latest}, and the table has "
                f"records up to {known - 1}: the log was cut off, as after an unclean election. "
                "What comes now would overlap; drop the table and create it again"
            )
        starts[each] = known
    if gaps and not accepts_loss:
        raise Gap(
            f"{'; '.join(gaps)}. `headrace table run --accept-loss` continues behind them, and "
            "says so in the table"
        )
    return starts, gaps
