"""Dead letters (KIP-1191) from the reader's side: parsing them, and replaying their records.

A dead letter is a record that a share group gave up, with headers that say where it was and why it
was given up. A broker may be configured to write only these headers: the record is then in its
original topic, as long as that keeps it.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.consumer import Consumer
from headrace.client.fetched import ConsumedRecord
from headrace.client.group_members import describe_group
from headrace.client.groups import fetch_offsets
from headrace.client.offsets import Start
from headrace.client.producer import Producer
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.records.record import Headers

HEADER_PREFIX: Final = "__dlq.errors."
PORTION_RECORDS: Final = 500
"""How many letters are sent in one transaction."""
TRANSACTION_TIMEOUT_MS: Final = 5 * 60_000
"""How long it may be open: letters without a copy have their records read one by one."""

NO_LETTER: Final = "no headers say where it is from"
RECORD_GONE: Final = "it has no copy of its record, which is no longer in its topic"
FROM_HERE: Final = "it is from this topic itself"
TOPIC_GONE: Final = "its topic does not exist any more: {}"


class DeadLetter(msgspec.Struct, frozen=True):
    """What the headers of a dead letter say of its record, and the record's own headers."""

    topic: str
    partition: int
    offset: int
    group: str
    delivery_count: int
    reason: str
    headers: Headers

    @classmethod
    def of(cls, record: ConsumedRecord) -> "DeadLetter | None":
        """Read a record of a dead-letter topic; None if it is no dead letter.

        A record may have been a dead letter before: the last header of a name is this letter's, and
        the others are the record's own.
        """
        said: dict[str, str] = {}
        own: list[tuple[str, bytes | None]] = []
        try:
            for name, value in reversed(record.headers):
                field = name.removeprefix(HEADER_PREFIX)
                if field != name and field not in said:
                    said[field] = (value or b"").decode()
                else:
                    own.append((name, value))
            return cls(
                said["topic"],
                int(said["partition"]),
                int(said["offset"]),
                said.get("group", ""),
                int(said.get("delivery.count", 0)),
                said.get("reason", ""),
                tuple(reversed(own)),
            )
        except (KeyError, ValueError):
            return None


class Sent(msgspec.Struct, frozen=True, order=True):
    """Letters that went the same way for the same reason, or would."""

    to: str
    group: str
    reason: str


class Replayed(msgspec.Struct):
    """What was sent, or would be."""

    sent: dict[Sent, int] = msgspec.field(default_factory=dict)
    left_out: dict[str, int] = msgspec.field(default_factory=dict)
    """Records that cannot be sent, by why not."""

    def note_sent(self, way: Sent) -> None:
        self.sent[way] = self.sent.get(way, 0) + 1

    def note_left_out(self, why: str) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1


async def replay_dead_letters(
    cluster: Cluster,
    topic: str,
    group_id: str,
    *,
    to: str | None = None,
    limit: int | None = None,
    is_executed: bool,
) -> Replayed:
    """Send the records of dead letters to their original topics, or all of them to one.

    They keep their key, value and headers, and go to the partition of their key. The letters that
    exist now are read, at most `limit`, from the committed offsets of the consumer group
    `group_id`. The transactions that send them commit these offsets: another run does not send
    them again, even if this one is killed. Nothing is sent or committed unless it `is_executed`.

    Letters whose topic is gone are skipped. Raise KafkaError if the group has members, or if
    `topic` or `to` does not exist.
    """
    await _refuse_if_in_use(cluster, group_id)
    begin = await fetch_offsets(cluster, group_id)
    replay = _Replay(cluster, topic, to)
    async with Consumer(cluster, read_committed=True, reset=Start.BEGINNING) as consumer:
        await consumer.assign(topic, Start.BEGINNING, until_end=True)
        for partition in consumer.positions:
            if partition in begin:
                consumer.seek(partition, begin[partition].offset)
        letters = _portions(consumer, limit)
        if not is_executed:
            async for portion in letters:
                for record in portion:
                    await replay.send(record, None)
            return replay.outcome
        async with Producer(
            cluster,
            transactional_id=f"replay-dead-letters-{group_id}",
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        ) as producer:
            async for portion in letters:
                async with producer.transaction() as transaction:
                    for record in portion:
                        await replay.send(record, producer)
                    ends = {
                        TopicPartition(record.topic, record.partition): record.offset + 1
                        for record in portion
                    }
                    await transaction.send_offsets(ends, group_id)
    return replay.outcome


async def _portions(
    consumer: Consumer, limit: int | None
) -> AsyncIterator[Sequence[ConsumedRecord]]:
    """Yield the letters that are there, as many at once as go into a transaction."""
    left = limit
    while left is None or left > 0:
        wanted = PORTION_RECORDS if left is None else min(left, PORTION_RECORDS)
        records = await consumer.poll(records_max=wanted)
        if not records:
            return
        yield records
        if left is not None:
            left -= len(records)


class _Replay:
    """Where the letters of a topic go, and what became of them."""

    def __init__(self, cluster: Cluster, topic: str, to: str | None) -> None:
        self._cluster = cluster
        self._topic = topic
        self._to = to
        self.outcome = Replayed()

    async def send(self, record: ConsumedRecord, producer: Producer | None) -> None:
        """Send the record of a letter, or with no producer only find out whether it could be."""
        letter = DeadLetter.of(record)
        if letter is None:
            self.outcome.note_left_out(NO_LETTER)
            return
        to = self._to or letter.topic
        if to == self._topic:
            self.outcome.note_left_out(FROM_HERE)
            return
        key, value, headers = record.key, record.value, letter.headers
        if key is None and value is None and not headers:
            found = await _read_record(self._cluster, letter)
            if found is None:
                self.outcome.note_left_out(RECORD_GONE)
                return
            key, value, headers = found.key, found.value, found.headers
        if not await self._exists(to):
            self.outcome.note_left_out(TOPIC_GONE.format(to))
            return
        if producer is not None:
            await producer.send(to, value, key, headers=headers)
        self.outcome.note_sent(Sent(to, letter.group, letter.reason))

    async def _exists(self, topic: str) -> bool:
        """Return whether a topic exists, as a producer would create it; raise if `to` does not."""
        try:
            await self._cluster.topic(topic)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic == self._to:
                raise
            return False
        return True


async def _read_record(cluster: Cluster, letter: DeadLetter) -> ConsumedRecord | None:
    """Return a letter's record from its original topic; None if it is gone."""
    partition = TopicPartition(letter.topic, letter.partition)
    records: Sequence[ConsumedRecord] = ()
    async with Consumer(cluster) as consumer:
        try:
            await consumer.assign(letter.topic, letter.offset, [letter.partition])
            ends = await consumer.ends([partition])
            consumer.stop_at({partition: min(letter.offset + 1, ends[partition])})
            records = await consumer.poll(records_max=1)
        except KafkaError as error:
            if error.code not in (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.OFFSET_OUT_OF_RANGE,
            ):
                raise
    return next((record for record in records if record.offset == letter.offset), None)


async def _refuse_if_in_use(cluster: Cluster, group_id: str) -> None:
    try:
        group = await describe_group(cluster, group_id)
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    group.check_empty()
    if group.group_type not in ("classic", "consumer"):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"progress cannot be noted in {group_id!r}, a {group.group_type} group",
        )
