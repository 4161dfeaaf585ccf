"""The cost of fsck and of planning a read of the tier."""

import asyncio

import msgspec

from headrace.remote.audit import Ages, PartitionFacts, audit_partition, sort_objects
from headrace.remote.coverage import cover_log
from headrace.remote.searching import AbortedSearch
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segments import RemoteSegment
from headrace.spark.tier.planning import clip, into_tasks
from headrace.testing.store import SimulatedStore
from tests.growth.steps import assert_grows_linearly, steps
from tests.unit.remote.described import PARTITION, objects_of, segment


def some(count: int, *, step: int = 10) -> list[RemoteSegment]:
    """Return segments with an epoch each, and gaps if the step is larger than ten."""
    return [
        segment(number, number * step, number * step + 9, epochs=[(number, number * step)])
        for number in range(count)
    ]


def test_an_audit_grows_with_the_segments_whatever_is_wrong_with_them() -> None:
    def audit(count: int) -> int:
        segments = some(count, step=20)
        objects, _ = sort_objects(each for one in segments for each in objects_of(one))
        facts = PartitionFacts(
            partition=PARTITION,
            segments=segments,
            states_before={each.id: each.state for each in segments},
            objects=objects[PARTITION.key],
        )
        return steps(lambda: audit_partition(facts, Ages(0)))

    assert_grows_linearly(audit, 100)


def test_a_plan_grows_with_the_segments_even_if_they_share_a_task() -> None:
    def plan(count: int) -> int:
        segments = some(count)
        return steps(lambda: into_tasks([clip(cover_log(segments).extents, 0, count * 10)], 10**9))

    assert_grows_linearly(plan, 100)


def test_a_search_for_aborted_transactions_skips_segments_without_any() -> None:

    def search(count: int) -> int:
        segments = [msgspec.structs.replace(each, is_txn_index_empty=True) for each in some(count)]
        looked = AbortedSearch(SegmentObjects(SimulatedStore()), cover_log(segments).extents)

        async def look() -> None:
            for number in range(count):
                await looked.between(number * 10, number * 10 + 10)

        return steps(lambda: asyncio.run(look()))

    assert_grows_linearly(search, 100)
