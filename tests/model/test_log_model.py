"""A log against a list of batches: whatever is done to it in whatever order, crashes included.

The model knows every batch that was ever appended and not truncated, as bytes. What a log answers
must follow from that list alone. Where Kafka's promise is weaker than the list (of a producer a
snapshot keeps only the last batch, a transaction that ended before it counts as stable) the model
says how much weaker, and goes on from what the log still knows.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.errors import ErrorCode, KafkaError
from headrace.log import cutting, lookup
from headrace.log.log import Appended, Log
from headrace.log.opening import open_log
from headrace.log.producers import BATCHES_KEPT
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder
from headrace.records.control import ControlType, build_end_transaction_marker, read_control
from headrace.records.header import BatchHeader, read_header
from headrace.records.reader import read_records
from headrace.testing.disk import SimulatedDisk
from tests.crash.histories import quiet

FOLDER = "orders-0"
NOW_MS = 1_700_000_000_000
IDEMPOTENT = (1, 2)
TRANSACTIONAL = (3, 4)
DELETE_DELAY_MS = LogSettings().file_delete_delay_ms

SETTINGS = (
    LogSettings(segment_bytes=400, index_interval_bytes=60, segment_ms=40),
    LogSettings(segment_bytes=900, index_interval_bytes=1, segment_ms=200, flush_messages=1),
    LogSettings(segment_bytes=250, index_interval_bytes=150, segment_index_bytes=16),
    LogSettings(),
)

PARTS = st.integers(0, 16)
"""A place between two offsets, in sixteenths of the way."""


class Batch(NamedTuple):
    """A batch as it is in the log."""

    data: bytes
    header: BatchHeader

    @property
    def base(self) -> int:
        return self.header.base_offset

    @property
    def end(self) -> int:
        return self.header.next_offset


@dataclass
class Producer:
    """What the list of batches says of a producer."""

    epoch: int = -1
    batches: list[BatchHeader] = field(default_factory=list)
    """Those of its epoch, the last few of which the log knows."""
    known: int = BATCHES_KEPT
    """How many of the last ones the log may be asked for."""
    transaction: int | None = None
    last_offset: int = -1

    def apply(self, header: BatchHeader) -> None:
        if header.producer_epoch != self.epoch:
            self.epoch, self.batches = header.producer_epoch, []
        self.last_offset = header.last_offset
        if header.is_control:
            self.transaction = None
            return
        self.batches.append(header)
        self.known = min(self.known + 1, BATCHES_KEPT)
        if header.is_transactional and self.transaction is None:
            self.transaction = header.base_offset

    @property
    def next_sequence(self) -> int:
        return self.batches[-1].base_sequence + self.batches[-1].record_count if self.batches else 0

    def known_batches(self) -> list[BatchHeader]:
        return self.batches[-self.known :] if self.known else []


class Transaction(NamedTuple):
    """A transaction that ended."""

    producer_id: int
    first_offset: int
    marker_offset: int
    is_commit: bool


class InlineExecutor(ThreadPoolExecutor):
    """Runs work at once, so that a failure can be replayed."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except OSError as error:
            future.set_exception(error)
        return future


class LogMachine(RuleBasedStateMachine):
    @initialize(
        which=st.integers(0, len(SETTINGS) - 1),
        seed=st.integers(0, 2**16),
        batches=st.integers(0, 20),
    )
    def open_a_log(self, which: int, seed: int, batches: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(InlineExecutor(1))
        self.disk = SimulatedDisk(seed)
        self.settings = SETTINGS[which]
        self.log = open_log(self.disk, FOLDER, self.settings, is_clean=True)
        self.history: list[Batch] = []
        """Every batch that was not truncated, those that retention took included."""
        self.start = self.end = self.high_watermark = 0
        self.recovery_checkpoint = self.start_checkpoint = 0
        self.epoch = 0
        self.time = 0
        self.producers: dict[int, Producer] = {}
        self.ended: list[Transaction] = []
        self.aborted_markers: set[int] = set()
        self.epochs_from = 0
        """Epochs before are forgotten: the log began here once."""
        self.uncertain_below = 0
        """Transactions that ended below may count as stable, whatever the high watermark is."""
        for number in range(batches):
            self._append(self._build(1 + number % 3, number % 5 * 20, number % 4 * 10 - 5))
        if batches > 10:
            self.flush(is_noted=False)
            self.advance_the_high_watermark(part=12)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()

    # Appending

    @rule(batches=st.integers(1, 6), count=st.integers(1, 3), later_ms=st.integers(-30, 60))
    def append(self, batches: int, count: int, later_ms: int) -> None:
        for number in range(batches):
            self._append(self._build(count, number * 20, later_ms))

    @rule(producer_id=st.sampled_from(IDEMPOTENT), batches=st.integers(1, 6))
    def append_next_of_a_producer(self, producer_id: int, batches: int) -> None:
        for number in range(batches):
            self._append(self._next(producer_id, 1 + number % 2))

    @rule(producer_id=st.sampled_from(IDEMPOTENT), back=st.integers(1, 6))
    def append_a_duplicate(self, producer_id: int, back: int) -> None:
        producer = self.producers.get(producer_id)
        if producer is None or back > len(producer.batches):
            return
        old = producer.batches[-back]
        batch = self._build(
            old.record_count,
            producer_id=producer_id,
            producer_epoch=old.producer_epoch,
            base_sequence=old.base_sequence,
        )
        if back <= producer.known:
            answer = self._send(batch)
            assert answer.is_duplicate
            assert (answer.base_offset, answer.last_offset) == (old.base_offset, old.last_offset)
        else:
            self._refused(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    @rule(producer_id=st.sampled_from(IDEMPOTENT), gap=st.integers(1, 3))
    def append_out_of_order(self, producer_id: int, gap: int) -> None:
        producer = self.producers.get(producer_id)
        if producer is not None:
            self._refused(
                self._next(producer_id, 1, gap=gap), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            )

    @rule(producer_id=st.sampled_from(IDEMPOTENT), is_newer=st.booleans())
    def append_in_another_epoch(self, producer_id: int, is_newer: bool) -> None:
        producer = self.producers.get(producer_id)
        if producer is None or producer.epoch == 0:
            is_newer = True
        epoch = (producer.epoch if producer else 0) + (1 if is_newer else -1)
        batch = self._build(1, producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
        if is_newer:
            self._append(batch)
        else:
            self._refused(batch, ErrorCode.INVALID_PRODUCER_EPOCH)

    @rule(batches=st.integers(1, 3), outcomes=st.integers(0, 3))
    def append_in_transactions(self, batches: int, outcomes: int) -> None:
        """Two producers take turns; then each of the two bits says whether one aborts."""
        for number in range(batches):
            for producer_id in TRANSACTIONAL:
                self._append(self._next(producer_id, 1 + number % 2, is_transactional=True))
        for number, producer_id in enumerate(TRANSACTIONAL):
            if outcomes >> number & 1:
                self._end_transaction(producer_id, is_commit=False)

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), is_commit=st.booleans(), bump=st.booleans())
    def end_a_transaction(self, producer_id: int, is_commit: bool, bump: bool) -> None:
        if producer_id in self.producers:
            self._end_transaction(producer_id, is_commit=is_commit, bump=bump)

    @rule(part=PARTS)
    def advance_the_high_watermark(self, part: int) -> None:
        self.high_watermark += (self.end - self.high_watermark) * part // 16
        self.high_watermark = self._boundary(self.high_watermark)
        self.log.advance_high_watermark(self.high_watermark)

    @rule()
    def become_leader_again(self) -> None:
        self.epoch += 1

    # Reading

    @rule(part=PARTS, bytes_max=st.integers(0, 400), bound=st.integers(0, 2))
    def read(self, part: int, bytes_max: int, bound: int) -> None:
        log = self.log
        offset = self._place(part)
        up_to = (log.end_offset, log.high_watermark, log.last_stable_offset)[bound]
        chunk = log.read(offset, bytes_max, up_to=up_to, may_block=True)
        assert chunk is not None
        batches = [b for b in self.history if b.end > offset and b.end <= up_to]
        expected = b"".join(batch.data for batch in batches)
        first_bytes = len(batches[0].data) if batches else 0
        assert len(chunk) <= max(bytes_max, first_bytes)
        assert len(chunk) >= first_bytes
        assert expected.startswith(chunk)
        if bound == 2:
            self._check_aborted(offset, up_to)

    @rule(part=PARTS)
    def look_up_a_timestamp(self, part: int) -> None:
        timestamp = NOW_MS + (self.time + 40) * part // 16
        records = [
            (record.timestamp, record.offset, batch.header.leader_epoch)
            for batch in self._kept()
            for record in read_records(batch.data, batch.header)
            if record.offset >= self.start
        ]
        late = [record for record in records if record[0] >= timestamp]
        assert lookup.find(self.log, timestamp) == (late[0] if late else None)
        largest = max(records, key=lambda record: (record[0], -record[1]), default=None)
        assert lookup.find(self.log, lookup.SpecialTimestamp.MAX_TIMESTAMP) == largest

    @rule(back=st.integers(0, 4))
    def look_up_an_epoch(self, back: int) -> None:
        batches = [batch for batch in self._kept() if batch.end > self.epochs_from]
        for batch in batches:
            offset = max(batch.base, self.epochs_from)
            assert self.log.epochs.epoch_for_offset(offset) == batch.header.leader_epoch
        if back < len(batches):
            epoch = batches[-1 - back].header.leader_epoch
            end = self.log.epochs.end_offset_for(epoch, self.end)
            last = max(b.end for b in batches if b.header.leader_epoch == epoch)
            assert end == (epoch, last)

    @rule()
    def replicate(self) -> None:
        """A follower that gets every byte ends up with the same."""
        kept = self._kept()
        if not kept:
            return
        follower = open_log(
            SimulatedDisk(0), FOLDER, self.settings, is_clean=True, start_offset=kept[0].base
        )
        chunk = bytearray(b"".join(batch.data for batch in kept))
        assert follower.append_replicated(memoryview(chunk)) == self.end
        assert _content(follower) == [batch.data for batch in kept]
        for batch in kept:
            if batch.header.producer_id >= 0:
                state = follower.producers.get(batch.header.producer_id)
                assert state is not None
                assert state.epoch == self.producers[state.producer_id].epoch

    # Cutting

    @rule(part=PARTS)
    def truncate(self, part: int) -> None:
        offset = self.end - (self.end - self.start) * part // 48
        did_cut = cutting.truncate(self.log, offset)
        assert did_cut == (offset < self.end)
        if not did_cut:
            return
        self.end = min(self._boundary(offset), self.end)
        self.end = max(self.end, self.start)
        self.history = [batch for batch in self.history if batch.end <= self.end]
        self.high_watermark = min(self.high_watermark, self.end)
        self.recovery_checkpoint = min(self.recovery_checkpoint, self.log.recovery_point)
        self._expect_less_of_producers()

    @rule(ahead=st.integers(0, 31))
    def restart_further_on(self, ahead: int) -> None:
        if ahead > 3:
            return  # seldom, as it ends all that was going on
        offset = self.end + ahead
        cutting.restart_at(self.log, offset)
        self.history.clear()
        self.producers.clear()
        self.ended.clear()
        self.start = self.end = self.high_watermark = offset
        self.recovery_checkpoint = min(self.recovery_checkpoint, self.log.recovery_point)
        assert len(self.log.producers) == 0

    @rule(part=PARTS)
    def delete_records(self, part: int) -> None:
        offset = self.start + (self.high_watermark - self.start) * part // 32
        self.start = cutting.delete_records(self.log, offset)
        assert self.start == offset

    @rule(spare_bytes=st.integers(-1, 5000), age_ms=st.integers(-1, 400))
    def retain(self, spare_bytes: int, age_ms: int) -> None:
        now_ms = NOW_MS + self.time
        self.log.settings = msgspec.structs.replace(
            self.settings, retention_bytes=spare_bytes, retention_ms=age_ms
        )
        segments = [
            [b for b in self._kept() if begin <= b.base < end] for begin, end in self._ranges()
        ]
        excess = sum(len(b.data) for b in self._kept()) - spare_bytes if spare_bytes >= 0 else -1
        start = self.start
        for batches in segments:
            size = sum(len(batch.data) for batch in batches)
            is_old = (
                age_ms >= 0
                and any(batches)
                and (now_ms - max(b.header.max_timestamp for b in batches) > age_ms)
            )
            if not batches or batches[-1].end > self.high_watermark:
                break
            if not (is_old or excess >= size):
                break
            excess -= size
            start = max(start, batches[-1].end)
        cutting.apply_retention(self.log, now_ms)
        self.log.settings = self.settings
        self.start = start

    @rule()
    def remove_deleted_files(self) -> None:
        assert cutting.find_deleted(self.log, NOW_MS) == []
        cutting.remove_files(self.disk, cutting.find_deleted(self.log, NOW_MS + DELETE_DELAY_MS))
        assert not [name for name in self.disk.list(FOLDER) if name.endswith(".deleted")]

    # Durability

    @rule(is_noted=st.booleans())
    def flush(self, is_noted: bool) -> None:
        self.loop.run_until_complete(self.log.flush())
        assert self.log.recovery_point == self.end
        if is_noted:
            self.write_checkpoints()

    def write_checkpoints(self) -> None:
        self.recovery_checkpoint = self.log.recovery_point
        self.start_checkpoint = self.log.start_offset

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.write_checkpoints()
        self._open(is_clean=True)
        assert self.log.end_offset == self.end
        self._expect_less_of_producers()

    @rule()
    def crash_and_open(self) -> None:
        promised = self.log.recovery_point
        self.disk.crash()
        self._open(is_clean=False)
        self.start, self.end = self.log.start_offset, self.log.end_offset
        assert self.end >= promised
        assert self.start >= self.start_checkpoint
        # Segments that retention took may be back: that is durable with the start's checkpoint.
        first_base = self.log.segments[0].base_offset
        prefix = [b for b in self.history if first_base <= b.base and b.end <= self.end]
        assert _content(self.log) == [batch.data for batch in prefix]
        assert not prefix or prefix[-1].end == self.end
        self.history = [batch for batch in self.history if batch.end <= self.end]
        self._expect_less_of_producers()

    # Always

    @invariant()
    def offsets_agree(self) -> None:
        log = self.log
        self.epochs_from = max(self.epochs_from, self.start)
        assert (log.start_offset, log.end_offset) == (self.start, self.end)
        assert log.high_watermark == max(self.high_watermark, self.start)
        stable = [
            self.high_watermark,
            *(t for p in self.producers.values() if (t := p.transaction) is not None),
        ]
        ended = [t for t in self.ended if t.marker_offset >= self.high_watermark]
        certain = [t.first_offset for t in ended if t.marker_offset >= self.uncertain_below]
        lowest = min([*stable, *(t.first_offset for t in ended)])
        assert (
            max(lowest, self.start)
            <= log.last_stable_offset
            <= max(min(stable + certain), self.start)
        )

    @invariant()
    def segments_and_indexes_agree_with_the_batches(self) -> None:
        segments = self.log.segments
        at = 0
        kept = self._kept()
        for number, (begin, end) in enumerate(self._ranges()):
            segment = segments[number]
            positions: dict[int, int] = {}
            largest: dict[int, int] = {}
            position, latest = 0, -1
            while at < len(kept) and kept[at].base < end:
                batch = kept[at]
                positions[batch.header.last_offset - begin] = position
                if batch.header.max_timestamp > latest:
                    latest = batch.header.max_timestamp
                    largest[batch.header.last_offset - begin] = latest
                position += len(batch.data)
                at += 1
            assert segment.size_bytes == position
            assert kept[at - 1].end == end if position else begin == end
            previous = (-1, -1)
            for index in range(len(segment.offset_index)):
                entry = segment.offset_index[index]
                assert positions[entry[0]] == entry[1]
                assert entry[0] > previous[0]
                assert entry[1] > previous[1]
                previous = (entry[0], entry[1])
            previous = (-1, -1)
            for index in range(len(segment.time_index)):
                timestamp, offset = segment.time_index[index]
                assert largest[offset] == timestamp
                assert timestamp > previous[0]
                assert offset > previous[1]
                previous = (timestamp, offset)
            assert segment.largest_timestamp == latest
            aborted = {entry.last_offset for entry in segment.transaction_index.entries()}
            assert aborted <= self.aborted_markers
        assert at == len(kept)

    # What the rules are made of

    def _build(self, count: int, size: int = 10, later_ms: int = 0, **fields: Any) -> bytearray:
        self.time = max(0, self.time + later_ms)
        builder = BatchBuilder()
        for index in range(count):
            builder.append(NOW_MS + self.time + index, b"k", b"v" * size)
        return builder.build(**fields)

    def _next(
        self, producer_id: int, count: int, *, gap: int = 0, is_transactional: bool = False
    ) -> bytearray:
        producer = self.producers.get(producer_id, Producer(epoch=0))
        return self._build(
            count,
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.next_sequence + gap,
            is_transactional=is_transactional,
        )

    def _end_transaction(self, producer_id: int, *, is_commit: bool, bump: bool = False) -> None:
        marker = build_end_transaction_marker(
            NOW_MS + self.time,
            is_commit=is_commit,
            producer_id=producer_id,
            producer_epoch=self.producers[producer_id].epoch + bump,
            coordinator_epoch=0,
        )
        appended = self.log.append_own(
            memoryview(marker), leader_epoch=self.epoch, transaction_version=2 if bump else 0
        )
        self._remember(marker, appended.base_offset)

    def _send(self, batch: bytearray) -> Appended:
        return self.log.append(
            memoryview(batch), leader_epoch=self.epoch, now_ms=NOW_MS + self.time
        )

    def _append(self, batch: bytearray) -> None:
        appended = self._send(batch)
        assert not appended.is_duplicate
        self._remember(batch, appended.base_offset)
        assert appended.last_offset == self.end - 1
        is_due = self.end - self.log.recovery_point >= self.settings.flush_messages
        assert self.log.wants_flush or not is_due

    def _remember(self, data: bytearray, base_offset: int) -> None:
        assert base_offset == self.end
        batch = Batch(bytes(data), read_header(data))
        assert batch.base == base_offset
        self.history.append(batch)
        self.end = batch.end
        if batch.header.producer_id >= 0:
            self._apply(batch)

    def _refused(self, batch: bytearray, code: ErrorCode) -> None:
        with pytest.raises(KafkaError) as refusal:
            self._send(batch)
        assert refusal.value.code is code

    def _place(self, part: int) -> int:
        return self.start + (self.end - self.start) * part // 16

    def _boundary(self, offset: int) -> int:
        """Go down to where a batch begins."""
        for batch in reversed(self.history):
            if batch.base < offset < batch.end:
                return batch.base
        return offset

    def _kept(self) -> list[Batch]:
        """Give the batches that are in the log's files."""
        first = self.log.segments[0].base_offset
        return [batch for batch in self.history if batch.base >= first]

    def _ranges(self) -> Iterator[tuple[int, int]]:
        bases = [segment.base_offset for segment in self.log.segments]
        return zip(bases, [*bases[1:], self.end], strict=True)

    def _open(self, *, is_clean: bool) -> None:
        self.log = open_log(
            self.disk,
            FOLDER,
            self.settings,
            is_clean=is_clean,
            recovery_point=self.recovery_checkpoint,
            start_offset=self.start_checkpoint,
        )
        self.high_watermark = min(
            max(self.high_watermark, self.log.start_offset), self.log.end_offset
        )
        self.log.advance_high_watermark(self.high_watermark)

    def _expect_less_of_producers(self) -> None:
        """Read the list again, see that the log agrees, and note what it has forgotten.

        It may only forget what retention took along: batches before its first file.
        """
        self.producers, self.ended, self.aborted_markers = {}, [], set()
        for batch in self.history:
            if batch.header.producer_id >= 0:
                self._apply(batch)
        first_base = self.log.segments[0].base_offset
        for producer_id, producer in list(self.producers.items()):
            state = self.log.producers.get(producer_id)
            if state is None:
                assert producer.last_offset < first_base
                del self.producers[producer_id]
                continue
            assert state.epoch == producer.epoch
            producer.known = len(state.batches)
            assert [b.last_offset for b in state.batches] == [
                header.last_offset for header in producer.known_batches()
            ]
            if not producer.known:
                assert not producer.batches or producer.batches[-1].base_offset < first_base
                producer.batches = []
            if state.transaction_first_offset != producer.transaction:
                assert producer.transaction is not None
                assert producer.transaction < first_base
                producer.transaction = state.transaction_first_offset
        assert {state.producer_id for state in self.log.producers} == self.producers.keys()
        self.uncertain_below = self.end

    def _apply(self, batch: Batch) -> None:
        header = batch.header
        producer = self.producers.setdefault(header.producer_id, Producer())
        first = producer.transaction
        producer.apply(header)
        if header.is_control and first is not None:
            is_commit = read_control(batch.data, header).control_type == ControlType.COMMIT
            self.ended.append(Transaction(header.producer_id, first, header.base_offset, is_commit))
            if not is_commit:
                self.aborted_markers.add(header.base_offset)

    def _check_aborted(self, offset: int, up_to: int) -> None:
        """Every aborted transaction with records in the range is named, and no other is."""
        found = {
            (t.producer_id, t.last_offset) for t in self.log.aborted_transactions(offset, up_to)
        }
        touching = [
            transaction
            for transaction in self.ended
            if not transaction.is_commit
            and transaction.marker_offset >= offset
            and transaction.first_offset < up_to
        ]
        needed = {
            (transaction.producer_id, transaction.marker_offset)
            for transaction in touching
            for _, header in self._kept()
            if header.producer_id == transaction.producer_id
            and transaction.first_offset <= header.base_offset < transaction.marker_offset
            and header.base_offset < up_to
            and header.last_offset >= offset
        }
        assert needed <= found <= {(t.producer_id, t.marker_offset) for t in touching}


def _content(log: Log) -> list[bytes]:
    """Every batch in the files of a log, bytes as they are."""
    return [
        segment.file.read(position, header.size_bytes)
        for segment in log.segments
        for position, header in segment.batches()
    ]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


pytestmark = pytest.mark.timeout(600)  # a minute where nothing else runs


class OftenPlayed(LogMachine):
    """The same, more often."""


def _test_case(machine: type[LogMachine], examples: int) -> Any:
    case = machine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=50,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=True,
    )
    return case


test_a_log_does_what_a_list_of_batches_does = _test_case(LogMachine, 150)
test_a_log_always_does_what_a_list_of_batches_does = pytest.mark.exhaustive(
    _test_case(OftenPlayed, 2000)
)
