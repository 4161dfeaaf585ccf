"""The files of a log and its producers, compared with Apache Kafka's own classes.

Random choices come from the seed that pytest-randomly prints.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import KafkaError
from headrace.ids import TopicId, topic_id_text
from headrace.log import checkpoints, transactions
from headrace.log.epochs import EpochStart, LeaderEpochs
from headrace.log.errors import CorruptLog
from headrace.log.producer_snapshots import decode_snapshot, encode_snapshot
from headrace.log.producers import Origin, ProducerState, ProducerStates, RecordedBatch
from headrace.records import aborted as aborted_entries
from headrace.records.aborted import AbortedTransaction
from headrace.records.builder import BatchBuilder
from headrace.records.control import build_end_transaction_marker, read_control
from headrace.records.header import assign_offset, read_header
from tools.jvm.oracles import Oracle, OracleError

if TYPE_CHECKING:
    from pathlib import Path

INT32_MAX = 2**31 - 1
EXPIRATION_MS = 1000
SEQUENCES = 200
STEPS = 25
TOPIC_ID = TopicId(bytes(range(240, 256)))


class PartitionOracle(Oracle):
    """A broker's partition, step by step, as `PartitionOracle.java` describes."""

    def step(self, *words: object) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(self.ask(*map(str, words)))
        return reply


class LogFileOracle(Oracle):
    """Kafka's readers and writers of small files, as `LogFileOracle.java` describes."""

    def write(self, kind: str, path: Path, value: object) -> None:
        self.ask("write", kind, str(path), json.dumps(value))

    def read(self, kind: str, path: Path) -> Any:
        return json.loads(self.ask("read", kind, str(path)))


@pytest.fixture(scope="module")
def partition() -> Iterator[PartitionOracle]:
    with PartitionOracle() as oracle:
        yield oracle


@pytest.fixture(scope="module")
def files() -> Iterator[LogFileOracle]:
    with LogFileOracle() as oracle:
        yield oracle


class OurPartition:
    """Batches in memory, and what `ProducerStates` says of them, in the oracle's words."""

    def __init__(self) -> None:
        self.producers = ProducerStates()
        self.batches: list[bytearray] = []
        self.aborted: list[AbortedTransaction] = []
        self.snapshots = {0: encode_snapshot([])}
        self.now_ms = 0
        self.end = 0

    def append(self, origin: Origin, version: int, batch: bytearray) -> dict[str, Any]:
        header = read_header(batch)
        try:
            if header.is_control:
                if origin is not Origin.REPLICATION:
                    self.producers.check_marker(header, read_control(batch), version)
            elif (found := self.producers.check(header, origin)) is not None:
                place = {"first": found.base_offset, "last": found.last_offset}
                return {"error": "NONE", "append": {**place, "time": found.timestamp}}
        except KafkaError as error:
            return {"error": error.code.name, "append": None}
        assign_offset(memoryview(batch), self.end, 0)
        self._apply(batch)
        place = {"first": self.end - 1 - header.last_offset_delta, "last": self.end - 1}
        return {"error": "NONE", "append": {**place, "time": -1}}

    def _apply(self, batch: bytearray) -> None:
        header = read_header(batch)
        self.batches.append(batch)
        self.end = header.next_offset
        if not header.is_control:
            self.producers.apply(header)
        elif aborted := self.producers.apply_marker(header, read_control(batch)):
            self.aborted.append(aborted)

    def roll(self) -> None:
        self.snapshots[self.end] = encode_snapshot(self.producers)

    def truncate(self, offset: int) -> None:
        kept = [batch for batch in self.batches if read_header(batch).last_offset < offset]
        if not any(True for _ in self.producers):
            # Kafka, which has none either, replays nothing then.
            self.batches, self.end = kept, offset
            self.aborted = [entry for entry in self.aborted if entry.last_offset < offset]
            self.snapshots = {at: data for at, data in self.snapshots.items() if at <= offset}
            self.roll()
            return
        self.snapshots = {at: data for at, data in self.snapshots.items() if at <= offset}
        start = max(self.snapshots)
        self.producers.restore(decode_snapshot(self.snapshots[start], "snapshot"))
        self.producers.expire(self.now_ms, EXPIRATION_MS)
        self.batches = [batch for batch in kept if read_header(batch).last_offset < start]
        self.aborted = [entry for entry in self.aborted if entry.last_offset < start]
        for batch in kept[len(self.batches) :]:
            self._apply(batch)
        self.end = offset
        self.roll()

    def describe(self) -> dict[str, Any]:
        states = sorted(self.producers, key=lambda state: state.producer_id)
        return {
            "unstable": self.producers.first_unstable_offset,
            "end": self.end,
            "producers": [described(state) for state in states],
            "aborted": [list(row(entry)) for entry in self.aborted],
        }


def described(state: ProducerState) -> dict[str, Any]:
    return {
        "id": state.producer_id,
        "epoch": state.epoch,
        "coordinatorEpoch": state.coordinator_epoch,
        "timestamp": state.last_timestamp,
        "transaction": state.transaction_first_offset,
        "batches": [
            [batch.last_sequence, batch.last_offset, batch.offset_delta, batch.timestamp]
            for batch in state.batches
        ],
    }


def row(entry: AbortedTransaction) -> tuple[int, int, int, int]:
    return entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset


def random_step(choose: random.Random, ours: OurPartition) -> list[Any]:
    """A step that is often what a good producer does next, and often not."""
    kind = choose.choices(
        ["client", "coordinator", "marker", "replicate", "watermark", "time", "roll", "truncate"],
        [12, 2, 6, 3, 4, 1, 1, 1],
    )[0]
    if kind == "watermark":
        return ["watermark", choose.randint(0, ours.end)]
    if kind == "time":
        return ["expire", ours.now_ms + choose.choice([0, 200, 800])]
    if kind == "roll":
        return ["roll"]
    if kind == "truncate":
        ends = [read_header(batch).next_offset for batch in ours.batches[-6:]]
        return ["truncate", choose.choice([*ends, ours.end])]
    producer_id = choose.randint(1, 3)
    state = ours.producers.get(producer_id) or ProducerState(producer_id)
    epoch = max(-1, state.epoch + choose.choice([0, 0, 0, 0, 0, 1, 1, -1]))
    if kind == "replicate":
        epoch = max(epoch, state.epoch)  # no leader writes a lower one
    timestamp = ours.now_ms + choose.randint(-50, 50)
    if kind == "marker" or (kind == "replicate" and choose.random() < 0.4):
        marker = build_end_transaction_marker(
            max(0, timestamp),
            is_commit=choose.random() < 0.4,
            producer_id=producer_id,
            producer_epoch=max(0, epoch),
            coordinator_epoch=max(0, state.coordinator_epoch + choose.choice([0, 0, 1, -1])),
        )
        return [kind, choose.choice([0, 1, 2]), marker]
    builder = BatchBuilder()
    for _ in range(choose.randint(1, 3)):
        builder.append(max(0, timestamp), None, b"")
    is_open = state.transaction_first_offset is not None
    is_numbered = kind != "coordinator" or choose.random() < 0.5
    batch = builder.build(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=random_sequence(choose, state) if is_numbered else -1,
        is_transactional=choose.random() < (0.9 if is_open else 0.4),
    )
    return [kind, 1, batch]


def random_sequence(choose: random.Random, state: ProducerState) -> int:
    """Mostly what is next, else the start, a batch again or a gap; new ones often wrap soon."""
    follows = state.last_sequence + 1
    repeated = INT32_MAX - 1
    if state.batches:
        batch = choose.choice(state.batches)
        repeated = batch.last_sequence - batch.offset_delta
    choices = [follows, 0, repeated, follows + 1]
    return choose.choices(choices, [12, 2, 4, 1])[0] & INT32_MAX


def run_both(partition: PartitionOracle, ours: OurPartition, step: list[Any]) -> None:
    """Take a step in Kafka's partition and in ours; everything that can be seen is the same."""
    kind, *arguments = step
    expected: dict[str, Any] = {}
    if kind in ("client", "coordinator", "marker"):
        version, batch = arguments
        origin = Origin.CLIENT if kind == "client" else Origin.COORDINATOR
        theirs = partition.step("append", origin.name, version, batch.hex())
        expected = ours.append(origin, version, batch)
    elif kind == "replicate":
        assign_offset(memoryview(arguments[1]), ours.end, 0)
        theirs = partition.step("replicate", arguments[1].hex())
        expected = ours.append(Origin.REPLICATION, 0, arguments[1])
    elif kind == "expire":
        ours.now_ms = arguments[0]
        partition.step("clock", ours.now_ms)
        theirs = partition.step("expire")
        ours.producers.expire(ours.now_ms, EXPIRATION_MS)
    else:
        theirs = partition.step(kind, *arguments)
        if kind == "watermark":
            ours.producers.on_high_watermark_updated(arguments[0])
        elif kind == "roll":
            ours.roll()
        else:
            if arguments[0] < ours.end:
                ours.truncate(arguments[0])
            # Replayed markers may lie below the watermark, which Kafka notices when it is set.
            theirs = partition.step("watermark", theirs["watermark"])
            ours.producers.on_high_watermark_updated(theirs["watermark"])
    expected |= ours.describe()
    assert {key: theirs[key] for key in expected} == expected, theirs["message"]


def test_producers_are_judged_as_kafka_judges_them(partition: PartitionOracle) -> None:
    choose = random.Random(random.randrange(2**32))
    for _ in range(SEQUENCES):
        partition.step("new", EXPIRATION_MS)
        ours = OurPartition()
        taken = []
        try:
            for _ in range(STEPS):
                taken.append(random_step(choose, ours))
                run_both(partition, ours, taken[-1])
        except AssertionError:
            for step in taken:
                header = read_header(step[-1]) if isinstance(step[-1], bytearray) else step[-1:]
                print(step[:2], header)
            raise


def test_deleting_records_leaves_what_is_known_of_their_producers(
    partition: PartitionOracle,
) -> None:
    before = partition.step("new", EXPIRATION_MS)
    for producer_id, is_transactional in ((1, False), (2, True)):
        builder = BatchBuilder()
        builder.append(0, None, b"")
        batch = builder.build(
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=is_transactional,
        )
        before = partition.step("append", "CLIENT", 1, batch.hex())
    partition.step("watermark", 2)
    after = partition.step("start", 2)
    assert (after["start"], after["stable"]) == (2, 2)
    assert (after["producers"], after["unstable"]) == (before["producers"], 1)


def test_snapshots_of_kafka_are_read_and_written_again_byte_for_byte(
    partition: PartitionOracle,
) -> None:
    choose = random.Random(random.randrange(2**32))
    for _ in range(20):
        theirs = partition.step("new", EXPIRATION_MS)
        ours = OurPartition()
        for _ in range(STEPS):
            step = random_step(choose, ours)
            if step[0] in ("client", "coordinator", "marker"):
                run_both(partition, ours, step)
        theirs = partition.step("clock", 0)
        snapshot = bytes.fromhex(partition.ask("snapshot"))
        states = decode_snapshot(snapshot, "snapshot")
        for producer in theirs["producers"]:
            producer["batches"] = [
                [*batch[:3], producer["timestamp"]] for batch in producer["batches"][-1:]
            ]
        in_order = sorted(states, key=lambda state: state.producer_id)
        assert [described(state) for state in in_order] == theirs["producers"]
        assert encode_snapshot(states) == snapshot


def test_snapshots_of_ours_are_read_by_kafka(files: LogFileOracle, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000042.snapshot"
    rows: list[list[Any]] = [
        [1, 0, -1, 5, -1, [[7, 41, 2, 5]]],
        [2**62, 32767, INT32_MAX, 2**62, 2**61, []],
        [3, 2, 1, -1, 0, [[INT32_MAX, 2**62, INT32_MAX, -1]]],
    ]
    states = [
        ProducerState(
            *(producer_id, epoch, coordinator_epoch, timestamp),
            transaction_first_offset=None if transaction < 0 else transaction,
            batches=[RecordedBatch(*batch) for batch in batches],
        )
        for producer_id, epoch, coordinator_epoch, timestamp, transaction, batches in rows
    ]
    path.write_bytes(encode_snapshot(states))
    assert files.read("snapshot", path) == rows
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(OracleError, match="CorruptSnapshot"):
        files.read("snapshot", path)


def random_aborts(choose: random.Random) -> list[AbortedTransaction]:
    """Transactions as one log has them: markers in order, each stable up to some open one."""
    aborts = []
    last = stable = 0
    for producer_id in range(choose.randint(0, 12)):
        last += choose.randint(1, 8)
        stable = choose.randint(stable, last + 1)
        aborts.append(AbortedTransaction(producer_id, choose.randint(0, last), last, stable))
    return aborts


def test_transaction_indexes_are_kafkas(files: LogFileOracle, tmp_path: Path) -> None:
    choose = random.Random(random.randrange(2**32))
    for number in range(60):
        aborts = random_aborts(choose)
        index = b"".join(map(aborted_entries.encode_entry, aborts))
        ours, theirs = tmp_path / f"{number}.ours", tmp_path / f"{number}.theirs"
        ours.write_bytes(index)
        files.write("txnindex", theirs, [row(entry) for entry in aborts])
        assert (theirs.read_bytes() if aborts else b"") == index
        assert list(aborted_entries.read_entries(index)) == aborts
        for _ in range(8):
            fetch_offset = choose.randint(0, 60)
            end_offset = fetch_offset + choose.randint(1, 30)
            found, is_complete = aborted_entries.find_aborted(index, fetch_offset, end_offset)
            expected = [[list(row(entry)) for entry in found], is_complete]
            answer = files.ask("aborted", str(ours), str(fetch_offset), str(end_offset))
            assert json.loads(answer) == expected, (aborts, fetch_offset, end_offset)
        offset = choose.randint(0, 60)
        files.ask("cut", str(ours), str(offset))
        kept = aborted_entries.first_ending_at(index, offset) * aborted_entries.ENTRY_BYTES
        assert ours.read_bytes() == index[:kept]


def test_a_transaction_index_of_another_segment_is_corrupt_to_kafka_too(
    files: LogFileOracle, tmp_path: Path
) -> None:
    path = tmp_path / "index"
    index = aborted_entries.encode_entry(AbortedTransaction(1, 10, 12, 11))
    path.write_bytes(index)
    files.ask("sanity", str(path), "12")
    transactions.check_index(index, 12, "index")
    with pytest.raises(OracleError, match="CorruptIndex"):
        files.ask("sanity", str(path), "13")
    with pytest.raises(CorruptLog):
        transactions.check_index(index, 13, "index")


def our_answer(epochs: LeaderEpochs, operation: list[Any]) -> Any:
    name, *arguments = operation
    try:
        answer = getattr(epochs, name)(*arguments)
    except ValueError:
        return "refused"
    if name.startswith(("assign", "truncate")):
        return [list(entry) for entry in epochs.entries()]
    return list(answer) if isinstance(answer, tuple) else answer


def goes_on_after_another(epochs: LeaderEpochs, operation: list[Any]) -> bool:
    """Return whether a known epoch goes on after a later one, which had no records.

    Kafka lets it begin there, and forgets where it began; then its log differs from the leader's.
    """
    if operation[0] != "assign":
        return False
    _, epoch, offset = operation
    known = {entry.epoch: entry.start_offset for entry in epochs.entries()}
    return bool(epoch != epochs.latest_epoch and known.get(epoch, offset) < offset)


def test_leader_epochs_are_kept_as_kafka_keeps_them(files: LogFileOracle) -> None:
    choose = random.Random(random.randrange(2**32))
    for _ in range(150):
        operations: list[list[Any]] = []
        epoch = offset = 0
        for _ in range(30):
            epoch = max(-1, epoch + choose.choice([0, 1, 1, 2, -1]))
            offset = max(-1, offset + choose.choice([0, 5, 10, 10, -7]))
            near = choose.randint(-1, 12)
            operations += choose.choice(
                [
                    [["assign", epoch, offset]],
                    [["assign", epoch, offset]],
                    [["end_offset_for", near, 100], ["epoch_for_offset", near * 5]],
                    [["previous_epoch", near], ["next_epoch", near]],
                    [["truncate_from_end", choose.randint(0, 60)]],
                    [["truncate_from_start", choose.randint(0, 40)]],
                ]
            )
        epochs = LeaderEpochs()
        asked: list[list[Any]] = []
        ours = []
        for operation in operations:
            if not goes_on_after_another(epochs, operation):
                asked.append(operation)
                ours.append(our_answer(epochs, operation))
        theirs = json.loads(files.ask("epoch", json.dumps(asked)))
        for operation, mine, kafkas in zip(asked, ours, theirs, strict=True):
            assert mine == kafkas, (operation, asked)


def test_checkpoints_are_kafkas(files: LogFileOracle, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    epochs = [EpochStart(0, 0), EpochStart(7, 100), EpochStart(INT32_MAX, 2**63 - 1)]
    ours.write_text(checkpoints.format_epochs(epochs))
    files.write("epochs", theirs, epochs)
    assert ours.read_bytes() == theirs.read_bytes()
    assert files.read("epochs", ours) == [list(entry) for entry in epochs]
    assert checkpoints.parse_epochs(theirs.read_text()) == epochs

    offsets = {("a.b-c_d", 0): 5, ("t", INT32_MAX): 2**63 - 1, ("t", 3): 0}
    rows = [[*partition, offset] for partition, offset in offsets.items()]
    ours.write_text(checkpoints.format_offsets(offsets))
    files.write("offsets", theirs, rows)
    assert sorted(files.read("offsets", ours)) == sorted(rows)
    assert checkpoints.parse_offsets(theirs.read_text(), "theirs") == offsets
    for empty in ("epochs", "offsets"):
        files.write(empty, theirs, [])
        assert theirs.read_text() == checkpoints.format_offsets({})


def test_identities_of_partitions_and_directories_are_kafkas(
    files: LogFileOracle, tmp_path: Path
) -> None:
    topic_id = topic_id_text(TOPIC_ID)
    files.write("partition", tmp_path, topic_id)
    path = tmp_path / checkpoints.PARTITION_METADATA
    assert path.read_text() == checkpoints.format_partition_metadata(TOPIC_ID)
    assert checkpoints.parse_partition_metadata(path.read_text()) == TOPIC_ID

    path = tmp_path / checkpoints.META_PROPERTIES
    for cluster_id in ("vPeOCWypqUOSepEvx0cbog", " a=b:c#d!e\\f g "):
        meta = checkpoints.MetaProperties(cluster_id, 3, TOPIC_ID)
        files.write("meta", path, [cluster_id, 3, topic_id])
        assert checkpoints.parse_meta_properties(path.read_text()) == meta
        path.write_text(checkpoints.format_meta_properties(meta))
        assert files.read("meta", path) == [cluster_id, 3, topic_id]

    files.write("shutdown", tmp_path, 2**40)
    path = tmp_path / checkpoints.CLEAN_SHUTDOWN
    assert path.read_text() == checkpoints.format_clean_shutdown(2**40)
    path.write_text(checkpoints.format_clean_shutdown(-1))
    assert files.read("shutdown", tmp_path) == -1
