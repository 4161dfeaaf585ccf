"""A share partition against a list of its offsets, whatever happens in whichever order.

Members fetch, acknowledge, stall, leave; writes are late, fail, or are durable although they were
reported as failed; records are compacted away and the log's start moves; the leader crashes and
begins anew with what was written. After each step both agree on every offset, and:

- What a write says is what became of the records, with the start and the number of complete ones.
- Nothing that a member was told is accepted is delivered again.
- Runs have no holes, and none could be joined with the next.
"""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.errors import ErrorCode, KafkaError
from headrace.share.durable import DurableState, StateBatch
from headrace.share.partition.changes import Change
from headrace.share.partition.machine import SharePartition
from headrace.share.partition.types import (
    Acknowledgement,
    AckType,
    DeadLetter,
    FetchedBatch,
    Limits,
    Wanted,
)
from headrace.wire.share_types import AcquireMode
from tests.model.share_partition_reference import (
    ACKNOWLEDGED,
    NUMBERS,
    Reference,
    Refused,
    acquired_offsets,
)

MEMBERS = ("a", "b", "c")
LOCK_MS = 1000
FETCHED_BATCHES_MAX = 4
ENDED = ("acknowledged", "archiving", "archived")
members = st.sampled_from(MEMBERS)


class SharePartitions(RuleBasedStateMachine):
    """The real one and the reference, side by side."""

    @initialize(
        count_limit=st.integers(2, 6),
        in_flight_max=st.integers(3, 24),
        has_dead_letters=st.booleans(),
        backoff_ms=st.sampled_from([0, 0, 150]),
        is_renew_allowed=st.sampled_from([True, True, False]),
        start=st.sampled_from([0, 100]),
        sizes=st.lists(st.integers(1, 6), min_size=2, max_size=8),
    )
    def begin(
        self,
        count_limit: int,
        in_flight_max: int,
        has_dead_letters: bool,
        backoff_ms: int,
        is_renew_allowed: bool,
        start: int,
        sizes: list[int],
    ) -> None:
        self.limits = Limits(
            lock_duration_ms=LOCK_MS,
            delivery_count_limit=count_limit,
            in_flight_max=in_flight_max,
            is_renew_allowed=is_renew_allowed,
            has_dead_letters=has_dead_letters,
            release_backoff_ms=backoff_ms,
            release_backoff_max_ms=4 * backoff_ms,
        )
        self.now = 1
        self.log: list[FetchedBatch] = []
        self.log_start = self.log_end = start
        self.durable: dict[int, tuple[int, int]] = {}
        self.durable_start = start
        self.reads: list[tuple[int, list[FetchedBatch]]] = []
        self.changes: dict[int, Change] = {}
        self.accepted: set[int] = set()
        self.leader_epoch = 0
        for size in sizes:
            self.produce(size, 0, is_deliverable=True)
        self._load()

    def _load(self) -> None:
        self.leader_epoch += 1
        self.changes = {}
        self.reads = []
        self.letters: list[DeadLetter] = []
        start = max(self.durable_start, self.log_start)
        batches = [each for each in _batches(self.durable) if each.last_offset >= start]
        durable = DurableState(3, self.leader_epoch - 1, self.durable_start, 0, tuple(batches))
        self.real = SharePartition(lambda: self.limits)
        self.real.load(durable, leader_epoch=self.leader_epoch, start_offset=self.durable_start)
        self.real.on_log_start(self.log_start, self.now)
        self.model = Reference(self.limits)
        self.model.load(self.durable_start, self.durable)
        self.model.on_log_start(self.log_start)

    # The log

    @rule(
        size=st.integers(1, 6),
        hole=st.sampled_from([0, 0, 0, 1, 3]),
        is_deliverable=st.sampled_from([True, True, True, True, False]),
    )
    def produce(self, size: int, hole: int, is_deliverable: bool) -> None:
        first = self.log_end + hole
        self.log.append(FetchedBatch(first, first + size - 1, is_deliverable))
        self.log_end = first + size

    @precondition(lambda self: len(self.log) > 2)
    @rule(which=st.integers(0, 20))
    def compact(self, which: int) -> None:
        del self.log[which % (len(self.log) - 1)]  # the last batch of a log stays

    @rule(ahead=st.sampled_from([0, 0, 0, 0, 1, 2, 5, 20]))
    def delete_records(self, ahead: int) -> None:
        self.log_start = min(max(self.log_start, self.model.start) + ahead, self.log_end)
        self.log = [each for each in self.log if each.last_offset >= self.log_start]
        assert self.real.on_log_start(self.log_start, self.now) is None
        self.model.on_log_start(self.log_start)

    # Members

    @rule(count=st.integers(1, FETCHED_BATCHES_MAX))
    def read(self, count: int) -> None:
        """Begin a fetch that takes its time."""
        offset = self.real.next_fetch_offset(self.now)
        fetched = [each for each in self.log if each.last_offset >= offset][:count]
        if fetched:
            self.reads.append((offset, fetched))

    @precondition(lambda self: self.reads)
    @rule(
        member=members,
        max_records=st.integers(1, 12),
        batch_size=st.sampled_from([1, 3, 500]),
        mode=st.sampled_from(AcquireMode),
    )
    def acquire(self, member: str, max_records: int, batch_size: int, mode: AcquireMode) -> None:
        offset, fetched = self.reads.pop(0)
        wanted = Wanted(max_records, batch_size, mode)
        ranges = self.real.acquire(member, fetched, wanted, self.now, fetch_offset=offset)
        got = acquired_offsets(ranges)
        assert got == self.model.acquire(member, fetched, wanted, self.now, offset)
        assert sum(each.last_offset - each.first_offset + 1 for each in ranges) == len(got)
        assert list(got) == sorted(got)
        assert not self.accepted & set(got)

    @rule(
        member=members,
        max_records=st.integers(1, 12),
        mode=st.sampled_from(AcquireMode),
        count=st.integers(1, FETCHED_BATCHES_MAX),
    )
    def fetch(self, member: str, max_records: int, mode: AcquireMode, count: int) -> None:
        kept, self.reads = self.reads, []
        self.read(count)
        if self.reads:
            self.acquire(member, max_records, 500, mode)
        self.reads = kept

    @precondition(lambda self: self._held())
    @rule(data=st.data())
    def acknowledge_what_is_held(self, data: st.DataObject) -> None:
        member, held = data.draw(st.sampled_from(sorted(self._held().items())))
        first = data.draw(st.sampled_from(held))
        last = first
        while last + 1 in held and data.draw(st.booleans()):
            last += 1
        kinds = st.sampled_from([1, 1, 2, 2, 3, 0, 4])
        size = 1 if data.draw(st.booleans()) else last - first + 1
        types = data.draw(st.lists(kinds, min_size=size, max_size=size))
        self._acknowledge(member, [Acknowledgement(first, last, types)])

    @precondition(lambda self: self._held())
    @rule(data=st.data(), kind=st.sampled_from([AckType.RELEASE, AckType.ACCEPT]))
    def acknowledge_all(self, data: st.DataObject, kind: AckType) -> None:
        member, held = data.draw(st.sampled_from(sorted(self._held().items())))
        self._acknowledge(member, [Acknowledgement(offset, offset, [kind]) for offset in held])

    def _held(self) -> dict[str, list[int]]:
        """Give what each member can say something of."""
        held: dict[str, list[int]] = {}
        for offset, entry in self.model.entries.items():
            if entry.state == "acquired" and entry.pending is None:
                assert entry.member is not None
                held.setdefault(entry.member, []).append(offset)
        return held

    @rule(
        member=members,
        parts=st.lists(
            st.tuples(
                st.integers(-2, 6), st.integers(-1, 5), st.lists(st.integers(-1, 5), max_size=4)
            ),
            min_size=1,
            max_size=3,
        ),
    )
    def acknowledge_anything(self, member: str, parts: list[tuple[int, int, list[int]]]) -> None:
        acks = []
        position = self.model.start - 1
        for ahead, size, types in parts:
            first = position + ahead
            position = first + size
            acks.append(Acknowledgement(first, position, types))
        self._acknowledge(member, acks)

    def _acknowledge(self, member: str, acks: list[Acknowledgement]) -> None:
        start = self.model.start
        number: int | None = None
        expected: ErrorCode | None = None
        try:
            number = self.model.acknowledge(member, acks, self.now)
        except Refused as refused:
            expected = refused.code
        if expected is not None:
            with pytest.raises(KafkaError) as raised:
                self.real.acknowledge(member, acks, self.now)
            assert raised.value.code == expected
        else:
            self._begun(number, self.real.acknowledge(member, acks, self.now), start)

    @precondition(lambda self: any(each.member for each in self.model.entries.values()))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        holders = {each.member for each in self.model.entries.values()} - {None}
        member = data.draw(st.sampled_from(sorted(each for each in holders if each)))
        start = self.model.start
        number = self.model.leave(member)
        self._begun(number, self.real.release_member(member, self.now), start)

    # Time

    @rule(
        ms=st.sampled_from([0, 1, 100, 300, LOCK_MS // 2, LOCK_MS, LOCK_MS, 5 * LOCK_MS]),
        is_late=st.sampled_from([False, False, False, True]),
    )
    def wait(self, ms: int, is_late: bool) -> None:
        self.now += ms
        if is_late:
            return
        start = self.model.start
        deadline_ms = self.real.next_deadline_ms()
        number = self.model.expire(self.now)
        change = self.real.on_deadline(self.now)
        if change is not None:
            assert deadline_ms is not None
            assert deadline_ms <= self.now
        self._begun(number, change, start)
        left = self.real.next_deadline_ms()
        assert left is None or left > self.now

    # Writes

    @precondition(lambda self: self.changes)
    @rule(
        which=st.integers(0, 20),
        is_durable=st.sampled_from([True, True, False]),
        is_known=st.sampled_from([True, True, False]),
    )
    def write(self, which: int, is_durable: bool, is_known: bool) -> None:
        """End a write in one of three ways; the third is durable and said to have failed."""
        number = sorted(self.changes)[which % len(self.changes)]
        change = self.changes.pop(number)
        if is_durable:
            self._persist(change)
        if is_durable and (is_known or change.write is None):
            fates = self.model.pending[number].fates
            self.accepted |= {offset for offset in fates if fates[offset][0] == ACKNOWLEDGED}
            self.model.succeeded(number, self.now)
            self.real.succeeded(change, self.now)
        else:
            self.model.failed(number, self.now)
            self.real.failed(change, self.now)

    @rule(durable=st.sets(st.integers(0, 20)), is_crash=st.sampled_from([True, *[False] * 5]))
    def crash(self, durable: set[int], is_crash: bool) -> None:
        if not is_crash:
            return
        for place, number in enumerate(sorted(self.changes, reverse=True)):
            if place in durable:
                self._persist(self.changes[number])
        self._load()

    # Dead letters

    @rule()
    def hand_out(self) -> None:
        letters = self.real.dead_letters()
        expected = self.model.letters()
        assert {
            offset: (each.delivery_count, each.cause)
            for each in letters
            for offset in range(each.first_offset, each.last_offset + 1)
        } == expected
        self.letters += letters

    @precondition(lambda self: self.letters)
    @rule(which=st.integers(0, 20), is_copied=st.booleans())
    def copy(self, which: int, is_copied: bool) -> None:
        letter = self.letters.pop(which % len(self.letters))
        start = self.model.start
        if is_copied:
            number = self.model.copied(letter.first_offset, letter.last_offset)
            self._begun(number, self.real.dead_lettered(letter, self.now), start)
        else:
            self.model.not_copied(letter.first_offset, letter.last_offset)
            self.real.dead_letter_failed(letter)

    # What is compared

    def _begun(self, number: int | None, change: Change | None, start: int) -> None:
        """Compare what is to be written with what became of the records."""
        if number is None:
            assert change is None
            return
        assert change is not None
        self.changes[number] = change
        fates = self.model.pending[number].fates
        if not fates:
            assert change.write is None
            return
        write = change.write
        assert write is not None
        assert (write.state_epoch, write.leader_epoch) == (3, self.leader_epoch)
        assert write.start_offset == start
        passed = self.model.start - start
        complete = self.model.complete_count() + passed + self.model.completing_count()
        assert write.delivery_complete_count == complete
        written = _offsets(write.batches)
        for offset, (state, count, _) in fates.items():
            assert written.pop(offset) == (count, NUMBERS[state])
        for offset, left_behind in written.items():  # by an earlier write
            entry = self.model.entries.get(offset)
            assert entry is None or (entry.count, NUMBERS[entry.state]) == left_behind

    def _persist(self, change: Change) -> None:
        """Do what the state coordinator does: each offset keeps what is further on its way."""
        if change.write is None:
            return
        for offset, further in _offsets(change.write.batches).items():
            self.durable[offset] = max(self.durable.get(offset, (0, 0)), further)
        self.durable_start = max(self.durable_start, change.write.start_offset)
        for offset in [each for each in self.durable if each < self.durable_start]:
            del self.durable[offset]

    @invariant()
    def both_agree(self) -> None:
        real, model = self.real, self.model
        assert (real.start_offset, real.end_offset) == (model.start, model.end)
        assert real.delivery_complete_count == model.complete_count()
        assert real.in_flight_count == len(model.entries)
        assert real.next_fetch_offset(self.now) == model.next_fetch_offset(self.now)
        assert real.can_acquire(self.now) == model.can_acquire(self.now)
        position = model.start
        for each in real.in_flight(self.now):
            assert each.first_offset == position
            for offset in range(each.first_offset, each.last_offset + 1):
                entry = model.entries[offset]
                is_held = entry.state == "acquired"
                resting_ms = 0 if is_held else max(entry.until - self.now, 0)
                assert each.state == entry.state
                assert each.delivery_count == entry.count
                assert each.member_id == entry.member
                assert each.cause == entry.cause
                assert each.lock_left_ms == (max(entry.until - self.now, 0) if is_held else None)
                assert each.resting_ms == (resting_ms or None)
            position = each.last_offset + 1
        assert position == model.end + 1

    @invariant()
    def no_lock_ends_unnoticed(self) -> None:
        ends = [
            entry.until
            for entry in self.model.entries.values()
            if entry.until > self.now and entry.pending is None
        ]
        deadline_ms = self.real.next_deadline_ms()
        assert not ends or (deadline_ms is not None and deadline_ms <= min(ends))

    @invariant()
    def what_was_accepted_is_over(self) -> None:
        for offset in self.accepted:
            entry = self.model.entries.get(offset)
            # A refusal that was durable after all, and said to have failed, outweighs what came
            # after it; that shows after a crash. Either way it is not delivered again.
            assert entry is None or entry.state in ENDED


def _offsets(batches: Iterable[StateBatch]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in batches:
        for offset in range(first, last + 1):
            assert offset not in found
            found[offset] = count, state
    return found


def _batches(durable: dict[int, tuple[int, int]]) -> list[StateBatch]:
    batches: list[StateBatch] = []
    for offset in sorted(durable):
        count, state = durable[offset]
        if batches and batches[-1][1:] == (offset - 1, state, count):
            batches[-1] = batches[-1]._replace(last_offset=offset)
        else:
            batches.append(StateBatch(offset, offset, state, count))
    return batches


class ManySharePartitions(SharePartitions):
    """The same, more often."""


def _test_case(machine: type[SharePartitions], examples: int) -> Any:
    case = machine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    return pytest.mark.timeout(900)(pytest.mark.slow(case))


TestSharePartitions = _test_case(SharePartitions, 200)
TestManySharePartitions = pytest.mark.exhaustive(_test_case(ManySharePartitions, 2000))
