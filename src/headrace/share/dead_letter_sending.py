"""Sending dead letters: from the log of a record to a partition of the dead-letter topic.

Letters are written like those of a producer with acks=all: appended here if this node leads the
partition, else sent to the node that does. A refusal raises, and the caller retries: the letter may
then be written twice.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple

from headrace.client.errors import refusal
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicName
from headrace.log.log import Appended
from headrace.loop.clock import Clock
from headrace.loop.inflating import Inflating
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER
from headrace.records.aborted import AbortedRanges
from headrace.records.builder import BatchBuilder
from headrace.records.errors import CostlyBatch, RecordsError
from headrace.records.header import check_crc, read_headers
from headrace.records.reader import read_records
from headrace.records.record import Record
from headrace.replication.partition import Partition
from headrace.replication.remote_log import RemoteLog
from headrace.replication.replicas import Replicas
from headrace.share.dead_letter_records import LetterRecord, Origin, partition_of, write_letter
from headrace.share.led_partition import LedSharePartition
from headrace.share.partition.types import DeadLetter
from headrace.share.persister import Peers
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.produce_response import ProduceResponse

READ_BYTES_MIN: Final = 4 * 1024
READ_BYTES_MAX: Final = 1024 * 1024
"""How much of a log is read at once for letters; at least one batch."""
BATCH_BYTES_MAX: Final = 256 * 1024
"""The size of a batch of letters; a larger letter gets its own."""
WRITE_TIMEOUT_MS: Final = 30_000
"""The timeout for the replicas of a dead-letter topic."""
AWAY_TIMEOUT_MS: Final = WRITE_TIMEOUT_MS // 2
"""The same on another node: it is to respond before the request itself times out, which would close
the connection under other letters."""
ACKS_ALL: Final = -1
TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

CreateTopic = Callable[[str], Coroutine[Any, Any, None]]


class ReadLetters(NamedTuple):
    """Letters of some offsets, except those without a record to send."""

    last_offset: int
    """The offset after the last one read."""
    letters: list[LetterRecord]


async def read_letters(
    led: LedSharePartition,
    given_up: DeadLetter,
    inflating: Inflating,
    remote: RemoteLog,
    *,
    has_copy: bool,
) -> ReadLetters:
    """Read the records of some offsets, up to the limit of one read.

    Transaction markers and compacted offsets have no records; neither have aborted transactions if
    the group reads only committed records. A record that can no longer be read gets a letter that
    says so.
    """
    log, last = led.partition.log, given_up.last_offset
    offset = max(given_up.first_offset, log.start_offset)
    if offset > last or offset >= log.end_offset:
        return ReadLetters(last, [])
    # Up to the end: delivered records are committed, even if a new leader does not know it yet.
    # Most letters are about few records; the first batch is whole, however large.
    bytes_max = min(READ_BYTES_MAX, led.bytes_a_record * (last - offset + 1) + READ_BYTES_MIN)
    is_committed = led.configs.now().is_committed
    if offset < log.local_start_offset:
        data, found = await remote.read(
            led.partition,
            offset,
            bytes_max,
            up_to=log.end_offset,
            is_first_whole=True,
            with_aborted=is_committed,
        )
        if not data:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{led.partition.name}: the tier did not give offset {offset}",
            )
        aborted = AbortedRanges(found)
    else:
        data = await log.read_cold(offset, bytes_max, up_to=log.end_offset)
        is_needed = data and is_committed
        aborted = AbortedRanges(log.aborted_in(data, offset, last + 1) if is_needed else ())
    origin = Origin(led.partition.topic, led.partition.index, led.key.group_id)
    wanted = given_up._replace(first_offset=offset)
    inflated_bytes_max = log.settings.rules.inflated_bytes_max

    def decode(chunk: bytes) -> ReadLetters:
        return _letters(
            chunk,
            wanted,
            origin,
            aborted,
            has_copy=has_copy,
            inflated_bytes_max=inflated_bytes_max,
        )

    # Even a few bytes may decompress to many.
    return await inflating.run(decode, bytes(data))


def _letters(
    chunk: bytes,
    wanted: DeadLetter,
    origin: Origin,
    aborted: AbortedRanges,
    *,
    has_copy: bool,
    inflated_bytes_max: int,
) -> ReadLetters:
    first, last = wanted.first_offset, wanted.last_offset
    letters: list[LetterRecord] = []
    read_last = last  # nothing there: compacted away up to the end
    for position, header in read_headers(chunk):
        read_last = min(header.last_offset, last)
        if header.base_offset > last:
            break
        if header.is_control or (
            header.is_transactional and aborted.hold(header.producer_id, header.base_offset)
        ):
            continue
        batch = memoryview(chunk)[position : position + header.size_bytes]
        try:
            check_crc(batch, header)
            records: Iterable[Record] = list(
                read_records(batch, header, inflated_bytes_max=inflated_bytes_max)
            )
            reason = ""
        except RecordsError as error:
            begin, end = max(header.base_offset, first), min(header.last_offset, last)
            records = [Record(offset, -1, None, None) for offset in range(begin, end + 1)]
            reason = f"the record cannot be read: {error}"
        for record in records:
            if first <= record.offset <= last:
                letter = write_letter(origin, record, wanted, has_copy=has_copy)
                letters.append(letter.without_copy(reason) if reason else letter)
    return ReadLetters(read_last, letters)


class LetterSender:
    """Writes letters to dead-letter topics, wherever their leaders are."""

    def __init__(
        self,
        replicas: Replicas,
        image_of: Callable[[], Image],
        clock: Clock,
        peers: Peers,
        *,
        inflating: Inflating,
        create_topic: CreateTopic,
    ) -> None:
        """`create_topic` creates a topic, or raises KafkaError if it may not or cannot."""
        self.remote = replicas.remote
        self._replicas = replicas
        self._image_of = image_of
        self._clock = clock
        self._peers = peers
        self.inflating = inflating
        self._create_topic = create_topic

    async def send(self, topic_name: str, letters: Sequence[LetterRecord], origin: Origin) -> None:
        """Return when all letters are committed; raise KafkaError or ClientError if one is not."""
        if not letters:
            return
        topic = self._image_of().topic(TopicName(topic_name))
        if topic is None:
            await self._create_topic(topic_name)
            topic = self._image_of().topic(TopicName(topic_name))
            if topic is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic_name} is not there yet"
                )
        by_partition: dict[int, list[LetterRecord]] = {}
        for letter in letters:
            index = partition_of(letter, origin, len(topic.partitions))
            by_partition.setdefault(index, []).append(letter)
        for index, some in by_partition.items():
            for portion in _portions(some):
                await self._write(topic.name, index, portion)

    async def _write(self, topic: TopicName, index: int, letters: list[LetterRecord]) -> None:
        """Write a batch; if it is too large for the topic, one by one, and then without copies."""
        try:
            await self._write_batch(topic, index, letters)
        except KafkaError as error:
            if error.code not in TOO_LARGE or not (len(letters) > 1 or letters[0].has_copy):
                raise
            if len(letters) > 1:
                for letter in letters:
                    await self._write(topic, index, [letter])
            else:
                why = f"the record is too large for topic {topic}"
                await self._write_batch(topic, index, [letters[0].without_copy(why)])

    async def _write_batch(self, topic: TopicName, index: int, letters: list[LetterRecord]) -> None:
        now_ms = self._clock.now_ms()
        builder = BatchBuilder()
        for letter in letters:
            # Not the time of the record: retention would delete an old letter before it is seen.
            builder.append(now_ms, letter.key, letter.value, letter.headers)
        batch = builder.build()
        partition = self._replicas.find(topic, index)
        if partition is not None and partition.is_leader:
            appended = await self._append(partition, memoryview(batch), now_ms)
            await _committed(partition, appended.last_offset)
        else:
            await self._send_away(topic, index, bytes(batch))

    async def _append(self, partition: Partition, batch: memoryview, now_ms: int) -> Appended:
        try:
            return partition.append(batch, now_ms, needs_replicas=True)
        except CostlyBatch as costly:  # the topic uses another codec
            rules = partition.log.settings.rules
            header, batch = await self.inflating.validate(batch, costly.header, rules, now_ms)
        if not partition.is_leader:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} has another leader now"
            )
        return partition.append_validated(header, batch, now_ms, needs_replicas=True)

    async def _send_away(self, name: TopicName, index: int, batch: bytes) -> None:
        topic, about = self._image_of().topic(name), f"{name}-{index}"
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} was deleted")
        leader = topic.partitions[index].leader
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{about} has no leader now")
        data = PartitionProduceData(index=index, records=batch)
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=AWAY_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[data])
            ],
        )
        response: ProduceResponse = await self._peers.send(leader, request)
        rows = [row for each in response.responses for row in each.partition_responses]
        code = rows[0].error_code if rows else ErrorCode.UNKNOWN_SERVER_ERROR
        if code != ErrorCode.NONE:
            raise refusal(code, rows[0].error_message if rows else None, f"produce to {about}")


def _portions(letters: Sequence[LetterRecord]) -> Iterable[list[LetterRecord]]:
    """Split letters into batches of a bounded size."""
    portion: list[LetterRecord] = []
    size_bytes = 0
    for letter in letters:
        letter_bytes = len(letter.key or b"") + len(letter.value or b"")
        letter_bytes += sum(len(name) + len(value or b"") for name, value in letter.headers)
        if portion and size_bytes + letter_bytes > BATCH_BYTES_MAX:
            yield portion
            portion, size_bytes = [], 0
        portion.append(letter)
        size_bytes += letter_bytes
    if portion:
        yield portion


async def _committed(partition: Partition, last_offset: int) -> None:
    """Return when all in-sync replicas have an offset, and it is synced if required."""
    waiter = _Commit(partition, last_offset)
    if waiter.is_over():
        return
    partition.produce_waiters[waiter] = None if waiter.is_flush_awaited else last_offset + 1
    if waiter.is_flush_awaited:
        partition.flush_soon()
    try:
        async with asyncio.timeout(WRITE_TIMEOUT_MS / 1000):
            await waiter.done
    except TimeoutError:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"the replicas of {partition.name} did not follow in time"
        ) from None
    finally:
        partition.produce_waiters.pop(waiter, None)


class _Commit:
    """Letters that wait for the high watermark or for the disk."""

    __slots__ = ("_leader_epoch", "_offset", "_partition", "done", "is_flush_awaited")

    def __init__(self, partition: Partition, last_offset: int) -> None:
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._offset = last_offset + 1
        self.is_flush_awaited = partition.log.wants_flush and partition.is_flush_awaited
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def is_over(self) -> bool:
        log = self._partition.log
        if self.is_flush_awaited and log.recovery_point < self._offset:
            return False
        return log.high_watermark >= self._offset

    def on_progress(self) -> None:
        if self.done.done():
            return
        partition = self._partition
        if not partition.is_leader or partition.leader_epoch != self._leader_epoch:
            name = partition.name
            self.done.set_exception(
                KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} has another leader now")
            )
        elif partition.log.failure is not None:
            self.done.set_exception(
                KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.name}: {partition.log.failure}"
                )
            )
        elif self.is_over():
            self.done.set_result(None)
