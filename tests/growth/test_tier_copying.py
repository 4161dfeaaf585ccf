"""What the leader of a partition in the tier costs, whatever the tier has of it."""

from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

from headrace.ids import BrokerId
from headrace.log.epochs import EpochStart
from headrace.remote.cache import SegmentCache
from headrace.remote.segments import RemoteSegment, SegmentEpoch, SegmentId, SegmentState
from headrace.tier.life import ExpiryPlan, Lineage, Terms, find_remote_end
from tests.growth.steps import assert_grows_linearly, assert_stays_flat, steps
from tests.unit.remote.segments import ORDERS
from tests.unit.tier.tier_nodes import World, run_tier, running

KEY = ORDERS.key


def cache_of(count: int) -> SegmentCache:
    cache = SegmentCache()
    for number in range(count):
        cache.restore(
            RemoteSegment(
                partition=ORDERS,
                id=SegmentId(number.to_bytes(16, "big")),
                start_offset=number * 10,
                end_offset=number * 10 + 9,
                max_timestamp_ms=1000,
                broker_id=BrokerId(1),
                event_timestamp_ms=0,
                size_bytes=100,
                epochs=(SegmentEpoch(0, number * 10),),
                state=SegmentState.COPY_FINISHED,
            )
        )
    return cache


def test_a_look_through_the_tier_costs_what_is_there() -> None:
    def look(count: int) -> int:
        cache = cache_of(count)
        terms = Terms(
            lineage=Lineage([EpochStart(0, 0)], count * 10),
            leader_epoch=0,
            start_offset=0,
            local_start_offset=count * 10,
            uncopied_bytes=0,
            retention_ms=1,
            retention_bytes=1,
            is_tiered=True,
            now_ms=0,
            is_copying=lambda _: False,
            find=lambda epoch, offset: cache.find(KEY, epoch, offset),
        )

        def work() -> None:
            plan = ExpiryPlan(terms)
            for segment in cache.segments(KEY):
                plan.look_at(segment)
            plan.finish()

        return steps(work)

    assert_grows_linearly(look, 200)


def test_what_an_event_costs_does_not_depend_on_what_is_in_the_tier() -> None:
    def learn(count: int) -> int:
        cache = cache_of(count)
        lineage = Lineage([EpochStart(0, 0)], count * 10 + 5)
        return steps(
            lambda: find_remote_end(
                lineage,
                5,
                lambda epoch, offset: cache.find(KEY, epoch, offset),
                lambda epoch: cache.highest_offset(KEY, epoch),
                proved=count * 10 - 10,
            )
        )

    assert_stays_flat(learn, 100)


def test_a_look_while_nothing_changes_does_not_depend_on_what_is_in_the_tier() -> None:
    def look(segments: int) -> int:
        async def main() -> int:
            async with running(World()) as node:
                node.produce(segments * 5)
                await node.run()
                await node.run()
                assert len(node.segments) >= segments // 2

                def work() -> None:
                    node.tier._consider(node.tiered)

                return steps(work)

        return run_tier(main())

    assert_stays_flat(look, 8)


def test_a_slice_of_a_look_up_from_scratch_does_not_depend_on_what_is_in_the_tier() -> None:
    def learn(count: int) -> int:
        cache = cache_of(count)
        lineage = Lineage([EpochStart(0, 0)], count * 10)

        def find(epoch: int, offset: int) -> RemoteSegment | None:
            return cache.find(KEY, epoch, offset)

        assert lineage.copied_up_to(5, find, 3) == 30
        assert lineage.copied_up_to(count * 10, find, 3) == count * 10
        return steps(lambda: lineage.copied_up_to(5, find, 50))

    assert_stays_flat(learn, 100)


class Other:
    """Another partition in the tier."""

    partition = SimpleNamespace(log=object())


def test_deleting_a_log_costs_the_same_however_many_partitions_wait_for_the_store() -> None:
    """While the store cannot be reached, there is work for all of them."""

    def abandon(count: int) -> int:
        async def main() -> int:
            async with running(World()) as node:
                tier = node.tier
                for crew in (tier.copiers, tier.expirers, tier.adopters):
                    for _ in range(count):
                        crew._waiting[cast(Any, Other())] = None
                tier.copiers._waiting[node.tiered] = None
                abandoning = tier.abandon(node.log)

                def run() -> None:
                    with suppress(StopIteration):
                        abandoning.send(None)
                        raise AssertionError("nothing runs, so there is nothing to wait for")

                spent = steps(run)
                assert node.tiered not in tier.copiers.partitions()
                assert node.tiered.is_stopped
                for crew in (tier.copiers, tier.expirers, tier.adopters):
                    crew._waiting.clear()
                return spent

        return run_tier(main())

    assert_stays_flat(abandon, 50)
