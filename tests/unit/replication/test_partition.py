"""A replica with others: what its leader commits, whom it wakes, what a follower takes."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.log.cutting import delete_records
from headrace.log.settings import LogSettings
from headrace.log.truncating import begin_truncation
from headrace.loop.counters import Counters
from headrace.metadata.state import Partition as PartitionRow
from headrace.records.control import build_end_transaction_marker
from headrace.replication.in_sync import IsrChange
from headrace.replication.partition import Partition
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.logs import NOW_MS, batch_of, open_simulated

ME, A, B = BrokerId(1), BrokerId(2), BrokerId(3)


class Around:
    """The cluster around a partition, as a test sets it."""

    def __init__(self) -> None:
        self.lag_ms_max = 1000
        self.time_ms = 0
        self.epochs = {ME: 11, A: 12, B: 13}
        self.fenced: set[BrokerId] = set()
        self.proposed: list[IsrChange] = []
        self.led: dict[Partition, None] = {}
        self.work: list[Callable[[], int]] = []
        """What is left for later turns."""

    def now_ms(self) -> int:
        return self.time_ms

    def epoch_of(self, node: BrokerId) -> int | None:
        return None if node in self.fenced else self.epochs.get(node)

    def registered_epoch(self, node: BrokerId) -> int | None:
        return self.epochs.get(node)

    def propose(self, partition: Partition, change: IsrChange) -> None:
        assert partition.is_pending(change)
        self.proposed.append(change)

    def soon(self, work: Callable[[], int]) -> None:
        self.work.append(work)


class Waiter:
    """Hears of a partition: as a consumer, a follower's session or a produce."""

    def __init__(self) -> None:
        self.more: list[int] = []
        self.changes = 0
        self.steps = 0

    def on_more(self, partition: Partition, byte_count: int) -> None:
        self.more.append(byte_count)

    def on_change(self, partition: Partition) -> None:
        self.changes += 1

    def on_isr(self, partition: Partition) -> None:
        pass

    def on_progress(self) -> None:
        self.steps += 1


class Replica:
    """One replica of a partition of three."""

    def __init__(self, settings: LogSettings | None = None, min_insync: int = 2) -> None:
        self.around = Around()
        self.disk = SimulatedDisk()
        self.log = open_simulated(self.disk, settings)
        topic = TopicName("orders")
        self.partition = Partition(
            topic,
            PartitionIndex(0),
            TopicId(bytes(16)),
            self.log,
            Counters().topic(topic),
            around=self.around,
        )
        self.partition.require_in_sync(min_insync)
        self.row = PartitionRow((ME, A, B), (ME, A, B), ME, 0)

    def lead(self, *isr: BrokerId) -> Partition:
        return self.become(leader=ME, isr=isr or (ME, A, B))

    def become(self, *, leader: BrokerId, isr: tuple[BrokerId, ...]) -> Partition:
        epoch = LeaderEpoch(self.row.leader_epoch + 1)
        self.row = replace(
            self.row, leader=leader, isr=isr, leader_epoch=epoch, partition_epoch=epoch * 100
        )
        self.partition.become(self.row, ME)
        return self.partition

    def change_isr(self, *isr: BrokerId) -> None:
        self.row = replace(self.row, isr=isr, partition_epoch=self.row.partition_epoch + 1)
        self.partition.become(self.row, ME)

    def append(self, *, needs_replicas: bool = True) -> int:
        batch = batch_of(b"value")
        appended = self.partition.append(batch, NOW_MS, needs_replicas=needs_replicas)
        return appended.last_offset + 1

    def fetch(self, node: BrokerId, offset: int) -> None:
        self.partition.on_fetched(node, self.around.epochs[node], offset, 0)


@pytest.fixture
def replica() -> Replica:
    return Replica()


def test_followers_hear_of_records_at_once_and_consumers_when_all_have_them(
    replica: Replica,
) -> None:
    partition = replica.lead()
    consumer, session = Waiter(), Waiter()
    partition.fetch_waiters[consumer] = None
    partition.followers[session] = None
    end = replica.append()
    assert len(session.more) == 1
    assert not consumer.more
    replica.fetch(A, end)
    assert not consumer.more
    replica.fetch(B, end)
    assert consumer.more == session.more
    assert replica.log.high_watermark == end


def test_a_step_of_the_high_watermark_concerns_those_whose_records_it_passes(
    replica: Replica,
) -> None:
    partition = replica.lead(ME, A)
    ends = [replica.append(), replica.append()]
    waiters = [Waiter(), Waiter(), Waiter()]
    partition.produce_waiters.update(zip(waiters, [*ends, None], strict=True))
    replica.fetch(A, ends[0])
    assert [waiter.steps for waiter in waiters] == [1, 0, 1]


@pytest.mark.parametrize("news", ["committed", "another leader"])
def test_thousands_of_produces_hear_of_the_same_step_over_several_turns(
    replica: Replica, news: str
) -> None:
    partition = replica.lead()
    end = replica.append()
    waiters = [Waiter() for _ in range(3000)]
    partition.produce_waiters.update(dict.fromkeys(waiters, end))
    if news == "committed":
        replica.fetch(A, end)
        replica.fetch(B, end)
    else:
        replica.become(leader=A, isr=(ME, A, B))
    told = sum(each.steps for each in waiters)
    assert 0 < told < 100
    for waiter in waiters[50:60]:
        del partition.produce_waiters[waiter]  # they were over in time
    costs = []
    while replica.around.work:
        costs.append(replica.around.work.pop()())
        told, before = sum(each.steps for each in waiters), told
        assert told - before < 100
    assert {each.steps for each in waiters[:50] + waiters[60:]} == {1}
    assert {each.steps for each in waiters[50:60]} == {0}
    assert min(costs) > 0


def test_who_is_to_hear_of_another_epoch_does_although_records_are_committed_meanwhile(
    replica: Replica,
) -> None:
    partition = replica.lead()
    former = [Waiter() for _ in range(100)]
    partition.produce_waiters.update(dict.fromkeys(former, 1000))
    replica.lead()
    end = replica.append()
    partition.produce_waiters.update(dict.fromkeys((Waiter() for _ in range(100)), end))
    replica.fetch(A, end)
    replica.fetch(B, end)
    while replica.around.work:
        replica.around.work.pop()()
    assert {each.steps for each in former} == {1}


def test_nothing_is_committed_below_min_insync_replicas(replica: Replica) -> None:
    partition = replica.lead(ME)
    with pytest.raises(KafkaError) as refused:
        replica.append()
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    end = replica.append(needs_replicas=False)
    assert replica.log.high_watermark == 0
    replica.fetch(A, end)
    assert replica.log.high_watermark == 0, "it is not in the ISR yet"
    assert [change.isr for change in replica.around.proposed] == [(ME, A)]
    replica.change_isr(ME, A)
    assert replica.log.high_watermark == end
    assert partition.has_enough_replicas


def test_coordinators_write_nothing_below_min_insync_replicas(replica: Replica) -> None:
    partition = replica.lead(ME)
    with pytest.raises(KafkaError) as refused:
        partition.append_own(batch_of(b"own"))
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert replica.log.end_offset == 0


def test_a_lower_min_insync_replicas_commits_what_waited(replica: Replica) -> None:
    partition = replica.lead(ME)
    end = replica.append(needs_replicas=False)
    partition.require_in_sync(1)
    assert replica.log.high_watermark == end


def test_a_smaller_isr_commits_what_the_others_have(replica: Replica) -> None:
    replica.lead()
    end = replica.append()
    replica.fetch(A, end)
    replica.change_isr(ME, A)
    assert replica.log.high_watermark == end


def test_a_follower_that_lags_is_proposed_to_leave(replica: Replica) -> None:
    partition = replica.lead()
    end = replica.append()
    replica.around.time_ms = 1001
    replica.fetch(A, end)
    partition.drop_lagging()
    assert [change.isr for change in replica.around.proposed] == [(ME, A)]
    partition.drop_lagging()
    assert len(replica.around.proposed) == 1, "it is asked for once"
    partition.refuse_isr(replica.around.proposed[0])
    partition.drop_lagging()
    assert len(replica.around.proposed) == 2


def test_a_change_is_over_with_any_change_of_the_row(replica: Replica) -> None:
    partition = replica.lead(ME, A)
    replica.fetch(B, 0)
    (change,) = replica.around.proposed
    replica.change_isr(ME)
    assert not partition.is_pending(change)


def test_who_may_fetch_as_a_follower(replica: Replica) -> None:
    partition = replica.lead()
    assert partition.check_follower(A, 12) is ErrorCode.NONE
    assert partition.check_follower(A, 13) is ErrorCode.NONE, "its registration is on its way here"
    assert partition.check_follower(A, 11) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.check_follower(BrokerId(9), 1) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert partition.check_follower(ME, 11) is ErrorCode.UNKNOWN_LEADER_EPOCH
    replica.become(leader=A, isr=(ME, A, B))
    assert partition.check_follower(B, 13) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_that_comes_after_the_leadership_went_counts_for_nothing(replica: Replica) -> None:
    replica.lead()
    end = replica.append()
    replica.become(leader=A, isr=(ME, A, B))
    replica.fetch(A, end)
    replica.fetch(B, end)
    assert replica.log.high_watermark == 0


def test_followers_are_watched_while_there_are_any(replica: Replica) -> None:
    partition = replica.lead()
    assert partition in replica.around.led
    replica.become(leader=A, isr=(ME, A, B))
    assert not replica.around.led
    replica.lead()
    partition.stop()
    assert not replica.around.led


def test_what_followers_had_before_does_not_count_in_the_next_epoch(replica: Replica) -> None:
    replica.lead()
    end = replica.append()
    replica.fetch(A, end)
    replica.lead()
    replica.fetch(B, end)
    assert replica.log.high_watermark == 0
    replica.fetch(A, end)
    assert replica.log.high_watermark == end


def test_a_transaction_marker_wakes_readers_when_it_is_committed(replica: Replica) -> None:
    partition = replica.lead(ME, A)
    consumer = Waiter()
    end = replica.append()
    replica.fetch(A, end)
    marker = build_end_transaction_marker(
        NOW_MS, is_commit=True, producer_id=5, producer_epoch=0, coordinator_epoch=0
    )
    partition.append_own(memoryview(marker))
    partition.fetch_waiters[consumer] = None
    replica.fetch(A, end + 1)
    assert consumer.more
    assert consumer.more[0] > 10**9, "however much the reader waits for"


def test_a_follower_takes_the_leaders_watermark_as_far_as_it_has_records(replica: Replica) -> None:
    replica.lead(ME)
    for _ in range(3):
        replica.append(needs_replicas=False)
    partition = replica.become(leader=A, isr=(A,))
    consumer = Waiter()
    partition.fetch_waiters[consumer] = None
    partition.follow(2, 0)
    assert (replica.log.high_watermark, consumer.changes) == (2, 1)
    partition.follow(1, 0)
    assert (replica.log.high_watermark, consumer.changes) == (2, 1)
    partition.follow(100, 0)
    assert replica.log.high_watermark == 3


def test_a_follower_deletes_what_its_leader_has_deleted(replica: Replica) -> None:
    replica.lead(ME)
    for _ in range(3):
        replica.append(needs_replicas=False)
    partition = replica.become(leader=A, isr=(A,))
    partition.follow(2, 3)
    assert replica.log.start_offset == 2, "not beyond what is committed"
    partition.follow(3, 3)
    assert replica.log.start_offset == 3


def test_a_follower_takes_an_earlier_start_only_if_it_knows_the_epochs_there() -> None:
    replica = Replica(LogSettings(is_tiered=True, is_copied=True))
    replica.lead(ME)
    for _ in range(3):
        replica.append(needs_replicas=False)
    replica.log.start_offset = 2
    partition = replica.become(leader=A, isr=(A,))
    partition.follow(3, 0)
    assert replica.log.start_offset == 0
    delete_records(replica.log, 2)
    partition.follow(3, 0)
    assert replica.log.start_offset == 2


def test_the_low_watermark_is_that_of_all_in_sync(replica: Replica) -> None:
    partition = replica.lead(ME, A)
    waiter = Waiter()
    partition.produce_waiters[waiter] = None
    assert partition.low_watermark < 0, "nobody has told"
    partition.on_fetched(A, 12, 0, 0)
    assert partition.low_watermark == 0
    assert waiter.steps


def test_a_leader_whose_disk_is_full_asks_another_one_to_lead(replica: Replica) -> None:
    partition = replica.lead()
    replica.disk.fill_up(10)
    with pytest.raises(KafkaError):
        replica.append()
    (change,) = replica.around.proposed
    assert (change.leader, change.isr) == (A, (A, B))
    with pytest.raises(KafkaError):
        replica.append()
    assert len(replica.around.proposed) == 1
    assert partition.is_leader, "until the metadata log says otherwise"


def test_a_leader_whose_log_is_being_cut_stays_the_leader(replica: Replica) -> None:
    """It takes records as soon as its files are in line."""
    replica.lead(ME)
    for _ in range(3):
        replica.append(needs_replicas=False)
    cut = begin_truncation(replica.log, 1)
    assert cut is not None
    replica.lead()
    with pytest.raises(KafkaError):
        replica.append()
    with pytest.raises(KafkaError):
        delete_records(replica.log, 0)
    assert not replica.around.proposed
    cut.run()
    cut.finish()
    assert replica.append() == 2


def test_with_flush_messages_a_leaders_records_are_committed_once_it_has_synced_them() -> None:
    replica = Replica(LogSettings(flush_messages=1))

    async def main() -> None:
        partition = replica.lead(ME, A)
        end = replica.append()
        replica.fetch(A, end)
        assert replica.log.high_watermark == 0
        assert partition.flushing is not None
        await partition.flushing
        assert replica.log.high_watermark == end

    asyncio.run(main())
