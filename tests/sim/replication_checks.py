"""What must hold for replicated partitions, whatever happens to their nodes.

What is committed is watched where it happens: whenever a high watermark moves, on any replica, the
batches below it are compared with those that any replica had there before. A leader has all of
them when it is elected, and was in the ISR or the ELR of the entry before. What clients were told
is kept, and looked for in the end. See `replication_world` for which failures that is promised
under.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pytest

from headrace.client import TopicPartition
from headrace.errors import ErrorCode
from headrace.ids import TopicId, TopicName
from headrace.log.log import Log
from headrace.metadata.events import (
    LeaderChanged,
    PartitionsAdded,
    ReplicasChanged,
    TopicCreated,
)
from headrace.metadata.quorum import _ImageMachine
from headrace.metadata.state import NO_LEADER
from headrace.metadata.state import Partition as Row
from headrace.records.header import BatchHeader, read_headers
from headrace.replication.partition import Partition
from headrace.wire.messages.fetch_response import PartitionData
from tests.sim.cluster_checks import ClusterChecks, watching
from tests.sim.node_checks import Place, Violation, expect
from tests.sim.this_thread import patch_here

if TYPE_CHECKING:
    from headrace.testing.disk import SimulatedDisk
    from headrace.testing.simulation import Simulation

Key = tuple[TopicId, int]


class Batch(NamedTuple):
    """What tells a batch from any other at its offset; its checksum is of the records."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


class Copy:
    """The batches of one replica's log, read from its files as far as that is new."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.batches: list[Batch] = []
        self._cuts = log.cuts
        self._segment, self._position = 0, 0

    def read(self) -> list[Batch]:
        """Return all batches, from the first in the files on."""
        log = self.log
        if log.cuts != self._cuts or not self._is_same_start():
            self.batches, self._cuts, self._segment, self._position = [], log.cuts, 0, 0
        bases = [segment.base_offset for segment in log.segments]
        for number in range(self._segment, len(bases)):
            if number > self._segment:
                self._segment, self._position = number, 0
            data = read_file(log.disk, f"{log.folder}/{bases[number]:020d}.log")  # type: ignore[arg-type]
            size = self._position
            for position, header in read_headers(data[self._position :]):
                self.batches.append(as_batch(header))
                size = self._position + position + header.size_bytes
            self._position = size
        return self.batches

    def _is_same_start(self) -> bool:
        return not self.batches or self.batches[0].base_offset >= self.log.segments[0].base_offset

    def between(self, begin: int, end: int) -> list[Batch]:
        """Return the batches that have an offset from `begin` on, and none from `end` on."""
        found = []
        for batch in reversed(self.read()):
            if batch.last_offset < begin:
                break
            if batch.base_offset < end:
                found.append(batch)
        found.reverse()
        return found


def as_batch(header: BatchHeader) -> Batch:
    return Batch(header.base_offset, header.last_offset, header.leader_epoch, header.crc)


def read_file(disk: "SimulatedDisk", path: str) -> memoryview:
    """Return the bytes of a file as its programs see them, without warming the page cache."""
    extent = disk._file(path).now
    return memoryview(extent.read(0, extent.size))


class History:
    """What is committed of one partition."""

    def __init__(self) -> None:
        self.batches: dict[int, Batch] = {}
        """By base offset."""
        self.end = 0


class ReplicationChecks(ClusterChecks):
    """What nodes did and what clients were told."""

    def __init__(self, simulation: "Simulation") -> None:
        super().__init__(simulation)
        self.topic_names: set[str] = set()
        """Topics of which everything is promised; internal ones are among them."""
        self.histories: defaultdict[Key, History] = defaultdict(History)
        self.rows: dict[Key, Row] = {}
        """Each partition as of the last entry that any node has applied."""
        self._rows_at = 0
        self._copies: dict[Log, Copy] = {}
        self._owners: dict[Log, Partition] = {}
        # What clients are told
        self.numbers: dict[bytes, tuple[bytes, int]] = {}
        """What was sent: by which producer, and as its how manieth record."""
        self.acknowledged_values: set[tuple[str, bytes]] = set()
        """Records by topic, that were acknowledged without an offset."""
        self.seen_at: dict[Place, bytes] = {}
        """What any reader was given, by place."""
        self.offsets: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        """How far groups are known to be."""
        self.delivered: set[tuple[str, bytes]] = set()
        """Values by group or queue that a member got."""
        self.done_at: dict[Place, float] = {}
        """What a queue was told is done, and when that was confirmed."""
        self.transactions: dict[bytes, tuple[int, bool | None]] = {}
        """How many records each has, and whether it is known to be committed or aborted."""

    # What nodes do

    def own(self, partition: Partition) -> None:
        self._owners[partition.log] = partition

    def copy_of(self, log: Log) -> Copy:
        copy = self._copies.get(log)
        if copy is None:
            copy = self._copies[log] = Copy(log)
        return copy

    def is_promised(self, topic: str) -> bool:
        return topic in self.topic_names

    def note_high_watermark(self, log: Log, before: int, after: int) -> None:
        partition = self._owners.get(log)
        if partition is None or after <= before or not self.is_promised(partition.topic):
            return
        name = partition.name
        history = self.histories[partition.topic_id, partition.index]
        for batch in self.copy_of(log).between(before, after):
            known = history.batches.get(batch.base_offset)
            if known is None:
                # What was never seen to be committed is, from here on; only a leader may say so.
                expect(partition.is_leader, f"a follower of {name} is ahead of all: {batch}")
                expect(
                    batch.base_offset >= history.end,
                    f"{name} is committed up to {history.end}, and now has {batch}",
                )
                history.batches[batch.base_offset] = batch
                history.end = batch.last_offset + 1
            else:
                expect(known == batch, f"{name} had {known}, and now has {batch}")
        expect(
            after <= history.end,
            f"the high watermark of {name} is {after}, beyond what there is: {history.end}",
        )
        self.seen["commits of batches"] += 1

    def check_leader(self, partition: Partition) -> None:
        """A leader has everything that is committed; not one that hears late that it was one."""
        key = partition.topic_id, partition.index
        row = self.rows.get(key)
        if not self.is_promised(partition.topic) or row is None:
            return
        if row.leader_epoch > partition.leader_epoch:
            return
        history = self.histories[key]
        log, name = partition.log, partition.name
        expect(
            log.end_offset >= history.end,
            f"{name} is committed up to {history.end}; its leader in epoch "
            f"{partition.leader_epoch} has records up to {log.end_offset}",
        )
        for batch in self.copy_of(log).between(log.start_offset, history.end):
            known = history.batches.get(batch.base_offset)
            expect(known == batch, f"{known} of {name} is committed; its leader has {batch}")
        self.seen["leaders"] += 1

    def note_rows(self, machine: _ImageMachine, index: int) -> None:
        """Compare partitions before and after an entry, when the first node applies it."""
        if index <= self._rows_at:
            return
        self._rows_at = index
        image = machine.image
        names = {
            event.name
            for event in machine.applier.outcome(index).events
            if isinstance(event, LeaderChanged | ReplicasChanged | TopicCreated | PartitionsAdded)
        }
        for name in sorted(names):
            topic = image.topic(TopicName(name))
            if topic is None:
                continue
            for number, row in enumerate(topic.partitions):
                key = topic.topic_id, number
                before = self.rows.get(key)
                if before is not row:
                    self.rows[key] = row
                    self._simulation.note("metadata", f"{index}: {_describe(name, number, row)}")
                    if before is not None and before != row:
                        self._check_row(machine, f"{name}-{number}", before, row)

    def _check_row(self, machine: _ImageMachine, name: str, before: Row, row: Row) -> None:
        change = f"{name} changed from {before} to {row}"
        expect(row.partition_epoch > before.partition_epoch, f"no new partition epoch: {change}")
        is_new = (row.leader, row.leader_epoch) != (before.leader, before.leader_epoch)
        expect(row.leader_epoch >= before.leader_epoch, f"the leader epoch went back: {change}")
        if row.leader != before.leader:
            expect(row.leader_epoch > before.leader_epoch, f"a leader without an epoch: {change}")
        may_lose = not self.is_promised(name.rsplit("-", 1)[0])
        if is_new and row.leader != NO_LEADER:
            self.seen["elections"] += 1
            eligible = {*before.isr, *before.elr}
            expect(may_lose or row.leader in eligible, f"not in ISR or ELR: {change}")
            if row.leader not in before.isr:
                self.seen["elections from the ELR"] += 1
        expect(row.isr, f"the ISR is empty: {change}")
        joined = set(row.isr) - set(before.isr)
        if joined:
            self.seen["ISR expansions"] += 1
        if set(before.isr) - set(row.isr):
            self.seen["ISR shrinks"] += 1
        for node in sorted(joined):
            broker = machine.image.broker(node)
            is_well = broker is not None and not broker.is_fenced and not broker.is_shutting_down
            expect(is_well or node in before.elr, f"node {node} may not be in the ISR: {change}")

    # What clients are told

    def note_sent(self, value: bytes, producer: bytes, number: int) -> None:
        self.sent.add(value)
        self.numbers[value] = producer, number

    def note_acknowledged(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """Take note that a record is acknowledged by all replicas in sync."""
        self.seen["acknowledged"] += 1
        if not self.is_promised(topic):
            return
        if offset < 0:  # a repetition of one that the broker knows only to be there
            self.acknowledged_values.add((topic, value))
            return
        place = topic, partition, offset
        before = self.acknowledged.setdefault(place, value)
        expect(before == value, f"{place} was acknowledged for {before!r} and {value!r}")
        self._note_at((TopicPartition(topic, partition), offset), value)

    def note_fetched(self, partition: TopicPartition, offset: int, row: PartitionData) -> None:
        """Take note of a response to a reader of single requests."""
        self.seen[f"fetch: {ErrorCode(row.error_code).name}"] += 1

    def note_read(self, place: Place, value: bytes) -> None:
        """Take note of a record that any reader got."""
        self.seen["read"] += 1
        topic = place[0].topic
        expect(value in self.sent, f"{value!r} at {place} was never sent")
        if self.is_promised(topic):
            self._note_at(place, value)

    def _note_at(self, place: Place, value: bytes) -> None:
        before = self.seen_at.setdefault(place, value)
        expect(before == value, f"{place} was {before!r}, and is {value!r}")

    def note_read_committed(self, place: Place, value: bytes) -> None:
        self.note_read(place, value)
        transaction = transaction_of(value)
        if transaction is not None:
            _, is_committed = self.transactions[transaction]
            expect(is_committed is not False, f"{value!r} at {place} is of an aborted transaction")

    def note_offsets(self, group: str, offsets: dict[TopicPartition, int]) -> None:
        known = self.offsets[group]
        for partition, offset in offsets.items():
            known[partition] = max(known.get(partition, 0), offset)
        self.seen["commits"] += 1

    def check_offsets(
        self, expected: dict[TopicPartition, int], found: dict[TopicPartition, int]
    ) -> None:
        for partition, offset in expected.items():
            now = found.get(partition, -1)
            expect(now >= offset, f"a group was at {offset} of {partition}, and is at {now}")

    def note_done(self, places: list[Place], now: float) -> None:
        for place in places:
            self.done_at.setdefault(place, now)
        self.seen["accepted"] += 1

    def note_queued(self, queue: str, place: Place, value: bytes, fetched_at: float) -> None:
        done_at = self.done_at.get(place, fetched_at)
        expect(done_at >= fetched_at, f"{place} is done since {done_at}, and comes again")
        self.delivered.add((queue, value))

    # In the end

    def check_records(self, records: dict[Place, bytes], topics: set[str]) -> None:
        """Look for what was promised among all records, aborted ones included."""
        for (topic, partition, offset), value in self.acknowledged.items():
            found = records.get((TopicPartition(topic, partition), offset))
            expect(
                found == value,
                f"{value!r} was acknowledged at {topic}-{partition}@{offset}: {found!r}",
            )
        for place, value in self.seen_at.items():
            if place[0].topic in topics:
                expect(
                    records.get(place) == value,
                    f"{value!r} was read at {place}: {records.get(place)!r}",
                )
        values = Counter((place[0].topic, value) for place, value in records.items())
        for pair in sorted(self.acknowledged_values):
            expect(pair in values, f"{pair} was acknowledged, and is not there")
        twice = [pair for pair, count in values.items() if count > 1 and self.is_promised(pair[0])]
        expect(not twice, f"these are there more than once: {twice[:5]}")
        unknown = [value for _, value in values if value not in self.sent]
        expect(not unknown, f"nobody sent these: {unknown[:5]}")
        self._check_order(records)

    def _check_order(self, records: dict[Place, bytes]) -> None:  # type: ignore[override]
        last: dict[tuple[TopicPartition, bytes], int] = {}
        for (partition, offset), value in sorted(records.items()):
            producer, number = self.numbers[value]
            before = last.get((partition, producer), -1)
            expect(before < number, f"{value!r} at {partition}@{offset} is behind {before}")
            last[partition, producer] = number

    def check_transactions(self, records: dict[Place, bytes]) -> None:
        """Look at what readers of committed records get: all of a transaction, or nothing."""
        counts = Counter(transaction_of(value) for value in records.values())
        for transaction, (size, is_committed) in self.transactions.items():
            found = counts[transaction]
            expect(
                found in (0, size), f"{found} of {size} records of {transaction!r} are committed"
            )
            if is_committed is not None:
                name = "committed" if is_committed else "aborted"
                expect(
                    found == (size if is_committed else 0),
                    f"{transaction!r} was {name}; {found} of its {size} records are there",
                )


def transaction_of(value: bytes) -> bytes | None:
    """Return the name of a value's transaction, if it is of one."""
    return value.split(b"/")[0] if value.startswith(b"tx") else None


def compare_copies(
    name: str, leader: Partition, follower: Partition, checks: ReplicationChecks
) -> None:
    """Look for differences between two replicas: bytes, ends, and the history of epochs."""
    one, other = leader.log, follower.log
    who = f"{name} on the leader and on a follower"
    ends = one.end_offset, other.end_offset
    expect(ends[0] == ends[1], f"{who} end at {ends}")
    start = max(one.start_offset, other.start_offset)
    begin = start
    for log in (one, other):
        begin = max(begin, log.segments[0].base_offset)  # before, records may be in the tier
        batches = checks.copy_of(log).between(begin, log.end_offset)
        if batches:
            begin = max(begin, batches[0].base_offset)
    data = [_bytes_from(log, begin) for log in (one, other)]
    expect(data[0] == data[1], f"{who} have different bytes from {begin} on")
    epochs = [_epochs_from(log, start) for log in (one, other)]
    expect(epochs[0] == epochs[1], f"{who} have different epochs: {epochs}")
    checks.seen["replicas compared"] += 1


def _bytes_from(log: Log, offset: int) -> bytes:
    """Return the batches from one on, as they are in the files."""
    found = bytearray()
    for segment in log.segments:
        data = read_file(log.disk, f"{log.folder}/{segment.base_offset:020d}.log")  # type: ignore[arg-type]
        for position, header in read_headers(data):
            if header.last_offset >= offset:
                found += data[position : position + header.size_bytes]
    return bytes(found)


def _epochs_from(log: Log, offset: int) -> list[tuple[int, int]]:
    """Return the epochs that have records from an offset on, and where those begin."""
    entries = [*log.epochs.entries(), (0, log.end_offset)]
    return [
        (one[0], max(one[1], offset))
        for one, following in pairwise(entries)
        if max(one[1], offset) < following[1]
    ]


def _describe(name: str, number: int, row: Row) -> str:
    epochs = f"{row.leader_epoch}/{row.partition_epoch}"
    return f"{name}-{number} leader {row.leader} epoch {epochs} isr {row.isr} elr {row.elr}"


@contextmanager
def watching_replicas(simulation: "Simulation", checks: ReplicationChecks) -> Iterator[None]:
    """Watch all replicas of a simulation while it runs, and all that `watching` does."""

    def watch(note: object, *arguments: object) -> None:
        try:
            note(*arguments)  # type: ignore[operator]
        except Violation as error:
            simulation.fail(error)

    real_init, real_become = Partition.__init__, Partition.become
    real_advance = Log.advance_high_watermark

    def init(self: Partition, *arguments: object, **named: object) -> None:
        real_init(self, *arguments, **named)  # type: ignore[arg-type]
        checks.own(self)

    def become(self: Partition, *arguments: object, **named: object) -> None:
        before = self.leader, self.leader_epoch
        real_become(self, *arguments, **named)  # type: ignore[arg-type]
        if self.is_leader and before != (self.leader, self.leader_epoch):
            watch(checks.check_leader, self)

    def advance(self: Log, offset: int) -> None:
        before = self.high_watermark
        real_advance(self, offset)
        if offset > before:
            watch(checks.note_high_watermark, self, before, offset)

    with watching(simulation, checks), pytest.MonkeyPatch.context() as patch:
        watched_apply = _ImageMachine.apply

        def apply(self: _ImageMachine, index: int, data: bytes) -> None:
            watched_apply(self, index, data)
            watch(checks.note_rows, self, index)

        patch_here(patch, _ImageMachine, "apply", apply)
        patch_here(patch, Partition, "__init__", init)
        patch_here(patch, Partition, "become", become)
        patch_here(patch, Log, "advance_high_watermark", advance)
        yield
