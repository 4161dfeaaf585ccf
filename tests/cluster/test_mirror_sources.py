"""`headrace mirror` and sources on bad days: slow tiers, throttles, lost and new topics."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from click.testing import CliRunner, Result

from headrace.cli.program import headrace
from headrace.client import Admin
from headrace.client.mirror import mirror as mirror_module
from headrace.client.mirror import verification
from headrace.client.mirror.choice import Choice
from headrace.client.mirror.mirror import Mirror, MirrorOptions
from headrace.client.mirror.progress import Copy, Phase
from headrace.client.mirror.topic_copies import MirroredTopic, TopicCopies
from headrace.client.outcomes import values_of
from headrace.client.topics import NewTopic, TopicPartition
from headrace.errors import ErrorCode
from headrace.server.request import Request
from headrace.testing.broker import TestBroker
from headrace.testing.cluster import TestCluster
from headrace.testing.conveniences import Conveniences
from headrace.testing.store import SimulatedStore
from headrace.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from tests.tier.brokers import TIERED, VALUES, until

SECONDS_MAX = 90


@pytest.fixture
def source() -> Iterator[TestBroker]:
    with TestBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def target() -> Iterator[TestBroker]:
    with TestBroker() as broker:
        yield broker


def run(source: Conveniences, target: Conveniences, *arguments: str) -> Result:
    between = ["--from", source.bootstrap, "--to", target.bootstrap]
    return CliRunner().invoke(headrace, ["mirror", *arguments, *between])


def values(cluster: Conveniences, topic: str) -> list[bytes | None]:
    return [each.value for each in cluster.consume(topic)]


@asynccontextmanager
async def mirroring(
    source: Conveniences, target: Conveniences, topic: str
) -> AsyncIterator[Mirror]:
    """Run a mirror of a topic until the block is left."""
    chosen = MirrorOptions(topics=Choice((topic,)))
    async with Mirror(source.bootstrap, target.bootstrap, chosen) as running:
        task = asyncio.create_task(running.run(lambda: None))
        try:
            yield running
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def see(running: Mirror, is_so: Callable[[Copy], object], partition: int = 0) -> Copy:
    """Return a copy once something is so."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            for copy in running.copies:
                if copy.partition.partition == partition and is_so(copy):
                    return copy
            await asyncio.sleep(0.02)


def test_a_source_whose_tier_is_slow_is_waited_for_and_not_taken_for_empty(
    target: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "EMPTY_SECONDS_MAX", 0.1)
    store = SimulatedStore()
    no_cache = {"headrace.tier.chunk.cache.bytes": "0", "headrace.tier.read.ahead.max.bytes": "0"}
    with TestBroker(settings=no_cache, store=store) as source:
        source.create_topic("tiered", configs=TIERED)
        for first in range(0, len(VALUES), 5):
            source.produce("tiered", *VALUES[first : first + 5])
        until(lambda: _segment_count(source, "tiered") == 1, "the move to the tier")
        store.slow_down(20_000, 20_000)

        async def work() -> None:
            async with mirroring(source, target, "tiered") as running:
                copy = await see(running, lambda copy: "sends nothing" in copy.problem)
                assert (copy.phase, copy.target_end) == (Phase.COPYING, 0)
                store.slow_down(0, 0)
                await see(running, lambda copy: copy.target_end == len(VALUES))

        asyncio.run(work())
        assert values(target, "tiered") == VALUES
        equal = run(source, target, "verify", "--topics", "tiered")
        assert equal.exit_code == 0, equal.output
        source.restart()  # what it has fetched for readers that gave up
        store.slow_down(20_000, 20_000)
        unknown = run(source, target, "verify", "--topics", "tiered")
        assert (unknown.exit_code, "was not compared" in unknown.output) == (1, True)
        store.slow_down(0, 0)


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_nothing_sent_is_the_end_only_where_compaction_may_have_removed_it(
    source: TestBroker, target: TestBroker, policy: str
) -> None:
    topic = f"silent-{policy}"

    def send_nothing(request: Request, _: object) -> None:
        wanted = request.body.topics[0]
        row = PartitionData(
            partition_index=0,
            high_watermark=3,
            last_stable_offset=3,
            log_start_offset=0,
            records=None,
        )
        request.answer(
            FetchResponse(
                responses=[
                    FetchableTopicResponse(
                        topic=wanted.topic, topic_id=wanted.topic_id, partitions=[row]
                    )
                ]
            )
        )

    source.create_topic(topic, configs={"cleanup.policy": policy})
    source.produce(topic, ("a", "1"), ("b", "2"), ("c", "3"))
    source.faults._plan("Fetch", send_nothing, 1_000_000)

    async def work() -> None:
        async with mirroring(source, target, topic) as running:
            if policy == "compact":
                await see(running, lambda copy: copy.target_end == 3)
            else:
                copy = await see(running, lambda copy: "sends nothing" in copy.problem)
                assert (copy.phase, copy.target_end) == (Phase.COPYING, 0)

    asyncio.run(work())
    assert values(target, topic) == []


def _segment_count(broker: TestBroker, topic: str) -> int:
    partition = broker.node.broker.replicas.find(topic, 0)  # type: ignore[arg-type]
    assert partition is not None
    return len(partition.log.segments)


def test_a_source_that_throttles_its_client_is_asked_again(
    source: TestBroker, target: TestBroker
) -> None:
    """Kafka's response to a client that is over its quota has no partition at all."""

    def throttle(request: Request, _: object) -> None:
        request.answer(FetchResponse(throttle_time_ms=100, responses=[]))

    source.create_topic("throttled")
    source.produce("throttled", "a", "b")
    for arguments in (["--once"], ["--once"], ["verify"]):
        source.faults._plan("Fetch", throttle, 1)
        done = run(source, target, *arguments, "--topics", "throttled")
        assert done.exit_code == 0, done.output
        source.produce("throttled", "more")
    assert values(target, "throttled") == [b"a", b"b", b"more"]


def test_a_source_whose_log_begins_inside_a_batch_is_copied_from_there(
    source: TestBroker, target: TestBroker
) -> None:
    source.create_topic("inside")
    source.produce("inside", *map(str, range(50)))

    async def delete() -> None:
        async with Admin(source.bootstrap) as admin:
            values_of(await admin.delete_records({TopicPartition("inside", 0): 20}))

    source.run(delete())
    source.produce("inside", "next")
    for arguments in (["--once"], ["verify"], ["--once"]):
        done = run(source, target, *arguments, "--topics", "inside")
        assert done.exit_code == 0, done.output
    assert [(each.offset, each.value) for each in target.consume("inside")] == [
        (each.offset, each.value) for each in source.consume("inside")
    ]
    assert target.consume("inside")[0].offset == 20


def test_a_topic_that_is_created_again_while_it_is_mirrored_is_not_mixed_with_the_old_one(
    source: TestBroker, target: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "TOPICS_SECONDS", 2.0)
    source.create_topic("recreated")
    source.produce("recreated", *(f"old {number}" for number in range(10)))

    async def work() -> None:
        async with mirroring(source, target, "recreated") as running:
            await see(running, lambda copy: copy.target_end == 10)
            await asyncio.to_thread(create_again)
            copy = await see(running, lambda copy: copy.phase is Phase.HALTED)
            assert "created another" in copy.problem

    def create_again() -> None:
        async def delete() -> None:
            async with Admin(source.bootstrap) as admin:
                await admin.delete_topic("recreated")

        source.run(delete())
        source.create_topic("recreated")
        for number in range(25):
            source.produce("recreated", f"new {number}")

    asyncio.run(work())
    assert values(target, "recreated") == [b"old %d" % number for number in range(10)]


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.THROTTLING_QUOTA_EXCEEDED])
def test_an_error_that_passes_does_not_end_the_copy(
    source: TestBroker, target: TestBroker, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    monkeypatch.setattr(mirror_module, "TOPICS_SECONDS", 0.2)
    topic = f"passing-{code}"
    source.create_topic(topic)
    source.produce(topic, "a")

    async def work() -> None:
        async with mirroring(source, target, topic) as running:
            await see(running, lambda copy: copy.target_end == 1)
            target.faults.fail("CreatePartitions", code, times=1)
            async with Admin(source.bootstrap) as admin:
                await admin.add_partitions(topic, 2)
            await asyncio.to_thread(lambda: source.produce(topic, "b", partition=0))
            await asyncio.to_thread(lambda: source.produce(topic, "c", partition=1))
            await see(running, lambda copy: copy.target_end == 2)
            await see(running, lambda copy: copy.target_end == 1, partition=1)

    asyncio.run(work())
    target.faults.fail("DescribeConfigs", code, times=1)
    done = run(source, target, "--once", "--topics", topic)
    assert done.exit_code == 0, done.output


def test_a_node_that_does_not_know_a_topic_yet_does_not_end_its_copy(
    source: TestBroker, target: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node of the source lists what it has heard of, and may lag behind the others."""
    source.create_topic("listed")
    source.produce("listed", "a")

    class Nothing:
        def __init__(self, *_: object) -> None:
            pass

        async def refresh(self) -> list[MirroredTopic]:
            return []

    async def work() -> None:
        async with Mirror(
            source.bootstrap, target.bootstrap, MirrorOptions(topics=Choice(("listed",)))
        ) as running:
            await running.run_once()
            listing = TopicCopies
            for list_again in (True, False):
                monkeypatch.setattr(mirror_module, "TopicCopies", Nothing)
                for _ in range(mirror_module.MISSING_MAX - 1):
                    await running.refresh_topics()
                    assert [copy.phase for copy in running.copies] == [Phase.COPYING]
                if list_again:
                    monkeypatch.setattr(mirror_module, "TopicCopies", listing)
                await running.refresh_topics()
            assert "has deleted" in running.copies[0].problem

    asyncio.run(work())


def test_an_unclean_election_is_noticed_though_nothing_was_copied_since_the_start(
    target: TestBroker,
) -> None:
    settings = {"replica.lag.time.max.ms": "1000", "replica.fetch.wait.max.ms": "200"}
    with TestCluster(nodes=3, settings=settings) as source:
        keep = source.nodes[source.controller]
        first, second = (node for node in (1, 2, 3) if node != source.controller)
        source.run(_create_unclean(source.bootstrap, (first, second)))
        for number in range(4):
            source.produce("unclean", f"both {number}")
        source.kill(second)
        source.wait_for(lambda: len(_in_sync(source)) == 1, "the replica that left the ISR")
        for number in range(6):
            keep.produce("unclean", f"lost {number}")
        assert run(keep, target, "--once", "--topics", "unclean").exit_code == 0

        def elect() -> None:
            source.kill(first)
            source.restart(second)
            for number in range(9):
                keep.produce("unclean", f"new {number}")

        async def work() -> None:
            async with mirroring(keep, target, "unclean") as running:
                await see(running, lambda copy: copy.phase is Phase.COPYING)
                await asyncio.to_thread(elect)
                await see(running, lambda copy: copy.phase is Phase.HALTED)

        asyncio.run(work())
        expected = [b"both %d" % number for number in range(4)]
        assert values(target, "unclean") == expected + [b"lost %d" % number for number in range(6)]


async def _create_unclean(bootstrap: str, replicas: tuple[int, int]) -> None:
    configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    async with Admin(bootstrap) as admin:
        topic = NewTopic("unclean", assignments={0: replicas}, configs=configs)
        values_of(await admin.create_topics([topic]))


def _in_sync(cluster: TestCluster) -> tuple[int, ...]:
    topic = cluster.nodes[cluster.controller].node.broker.image.topic("unclean")  # type: ignore[arg-type]
    assert topic is not None
    return tuple(topic.partitions[0].isr)
