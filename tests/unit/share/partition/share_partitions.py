"""Share partitions to test with, and what is seen of them."""

from headrace.share.durable import DurableState, StateBatch
from headrace.share.partition.changes import Change
from headrace.share.partition.machine import SharePartition
from headrace.share.partition.types import (
    Acknowledgement,
    AckType,
    FetchedBatch,
    Limits,
    Wanted,
)

LOCK_MS = 1000
LIMITS = Limits(lock_duration_ms=LOCK_MS, delivery_count_limit=5, in_flight_max=2000)
ALL = Wanted(max_records=500, batch_size=500)


class Partition:
    """A share partition whose writes are durable at once, unless a test holds them back."""

    def __init__(
        self, *batches: StateBatch, start: int = 0, limits: Limits = LIMITS, now: int = 1
    ) -> None:
        self.limits = limits
        self.now = now
        self.machine = SharePartition(lambda: self.limits)
        durable = DurableState(3, 6, start, 0, batches)
        self.machine.load(durable, leader_epoch=7, start_offset=start)

    def fetch(
        self, member: str, *batches: tuple[int, int], wanted: Wanted = ALL, at: int | None = None
    ) -> list[tuple[int, int, int]]:
        """Acquire from batches of the log; give first and last offset and delivery count."""
        offset = self.machine.next_fetch_offset(self.now) if at is None else at
        fetched = [FetchedBatch(*batch) for batch in batches]
        got = self.machine.acquire(member, fetched, wanted, self.now, fetch_offset=offset)
        return [(each.first_offset, each.last_offset, each.delivery_count) for each in got]

    def say(self, member: str, kind: AckType, first: int, last: int | None = None) -> Change:
        """Begin to acknowledge some offsets."""
        said = Acknowledgement(first, first if last is None else last, [kind])
        return self.machine.acknowledge(member, [said], self.now)

    def accept(self, member: str, first: int, last: int | None = None) -> None:
        self.done(self.say(member, AckType.ACCEPT, first, last))

    def release(self, member: str, first: int, last: int | None = None) -> None:
        self.done(self.say(member, AckType.RELEASE, first, last))

    def reject(self, member: str, first: int, last: int | None = None) -> None:
        self.done(self.say(member, AckType.REJECT, first, last))

    def done(self, change: Change | None) -> None:
        assert change is not None
        self.machine.succeeded(change, self.now)

    def failed(self, change: Change | None) -> None:
        assert change is not None
        self.machine.failed(change, self.now)

    def wait(self, ms: int) -> Change | None:
        """Let time pass; give what the end of locks is to write."""
        self.now += ms
        return self.machine.on_deadline(self.now)

    @property
    def seen(self) -> str:
        """Every run in short: `0-3 acquired x1 by a; 4-4 acknowledged x1`."""
        runs = []
        for each in self.machine.in_flight(self.now):
            text = f"{each.first_offset}-{each.last_offset} {each.state} x{each.delivery_count}"
            runs.append(text if each.member_id is None else f"{text} by {each.member_id}")
        return "; ".join(runs)


def written(change: Change | None) -> tuple[int, int, list[tuple[int, int, int, int]]]:
    """Give the start, the number of complete records and the batches of a write."""
    assert change is not None
    assert change.write is not None
    batches = [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in change.write.batches
    ]
    return change.write.start_offset, change.write.delivery_complete_count, batches
