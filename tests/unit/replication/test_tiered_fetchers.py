"""Followers of a leader that has its first records in the tier."""

from headrace.errors import ErrorCode, KafkaError
from headrace.log.cutting import apply_retention
from headrace.log.log import Log
from headrace.log.producers import ProducerState
from headrace.log.settings import LogSettings
from headrace.log.truncating import History
from headrace.replication.partition import Partition
from headrace.replication.remote_log import NoTier
from tests.unit.log.logs import NOW_MS, append, records_of
from tests.unit.replication.followers import Led, Node, in_virtual_time, until

HOUR_MS = 3_600_000
TIERED = LogSettings(segment_bytes=400, is_tiered=True, is_copied=True, local_retention_ms=HOUR_MS)


class Remote(NoTier):
    """A tier that knows the history of a leader's log."""

    def __init__(self) -> None:
        self.log: Log
        self.asked: list[tuple[int, int, int]] = []
        self.failures = 0
        self.next_offset: int | None = None

    async def history(
        self, partition: Partition, offset: int, start_offset: int, epoch: int
    ) -> History:
        self.asked.append((offset, start_offset, epoch))
        if self.failures:
            self.failures -= 1
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the store is away")
        next_offset = self.next_offset or offset
        epochs = [each for each in self.log.epochs.entries() if each.start_offset < next_offset]
        return History(start_offset, next_offset, epochs, [ProducerState(producer_id=9, epoch=2)])


def expire(led: Led) -> int:
    """Let a leader's disk forget all but the last segments; return where it begins then."""
    log = led.log
    log.flusher.prepare().run()
    log.recovery_point = log.end_offset
    log.remote_end_offset = log.segments[-2].base_offset
    while apply_retention(log, NOW_MS + 2 * HOUR_MS):
        pass
    assert log.start_offset == 0 < log.local_start_offset
    return log.local_start_offset


def fill(led: Led) -> None:
    for epoch in range(3):
        led.begin(epoch)
        led.append(*(b"%d" % number for number in range(10)))


def test_an_empty_follower_goes_on_where_its_leaders_disk_begins() -> None:
    async def main() -> None:
        remote = Remote()
        node = Node(TIERED, remote)
        led = node.leader.lead(settings=TIERED)
        fill(led)
        remote.log, local_start = led.log, expire(led)
        node.follow()
        log = node.log()
        await until(lambda: log.end_offset == 30)
        assert (log.start_offset, log.local_start_offset) == (0, local_start)
        assert log.epochs.entries() == led.log.epochs.entries()
        assert log.producers.get(9) is not None
        assert records_of(log, local_start) == records_of(led.log, local_start)
        epoch = led.log.epochs.epoch_for_offset(local_start - 1)
        assert remote.asked == [(local_start, 0, epoch)]
        await until(lambda: node.partition().log.high_watermark == 30)
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_store_that_is_away_is_asked_again() -> None:
    async def main() -> None:
        remote = Remote()
        remote.failures = 3
        node = Node(TIERED, remote)
        led = node.leader.lead(settings=TIERED)
        fill(led)
        remote.log = led.log
        expire(led)
        other = node.leader.lead(1)
        other.append(b"x")
        node.follow()
        node.follow(index=1)
        await until(lambda: node.log(1).end_offset == 1)
        assert node.log(0).end_offset == 0
        await until(lambda: node.log(0).end_offset == 30)
        assert len(remote.asked) == 4
        await node.fetchers.stop()

    in_virtual_time(main())


def test_the_tier_may_reach_beyond_the_start_of_the_leaders_disk() -> None:
    async def main() -> None:
        remote = Remote()
        node = Node(TIERED, remote)
        led = node.leader.lead(settings=TIERED)
        fill(led)
        remote.log, local_start = led.log, expire(led)
        remote.next_offset = local_start + 2
        node.follow()
        log = node.log()
        await until(lambda: log.end_offset == 30)
        assert log.local_start_offset == local_start + 2
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_follower_that_fell_behind_the_disk_is_rebuilt() -> None:
    async def main() -> None:
        remote = Remote()
        node = Node(TIERED, remote)
        led = node.leader.lead(settings=TIERED)
        fill(led)
        for number in range(3):
            append(node.log(), b"%d" % number, leader_epoch=0)
        remote.log, local_start = led.log, expire(led)
        node.follow()
        log = node.log()
        await until(lambda: log.end_offset == 30)
        assert (log.start_offset, log.local_start_offset) == (0, local_start)
        await node.fetchers.stop()

    in_virtual_time(main())


def test_another_leader_ends_a_rebuild() -> None:
    async def main() -> None:
        remote = Remote()
        remote.failures = 10**6
        node = Node(TIERED, remote)
        led = node.leader.lead(settings=TIERED)
        fill(led)
        remote.log = led.log
        expire(led)
        node.follow()
        await until(lambda: remote.asked)
        node.lead(7)
        asked = len(remote.asked)
        append(node.log(), b"mine", leader_epoch=7)
        assert node.log().end_offset == 1
        remote.failures = 0
        await node.fetchers.stop()
        assert len(remote.asked) == asked

    in_virtual_time(main())
