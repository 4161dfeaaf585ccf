"""The producer: records in, batches out, a response for each.

    async with Producer("127.0.0.1:9092", compression="zstd") as producer:
        for line in lines:
            await producer.send("lines", line)      # waits only while memory is full
    # all of them are acknowledged here, or an exception says what is not

By default records are acknowledged by all in-sync replicas, and none is written twice (acks=all,
idempotent). The order of a partition's records is kept whatever has to be sent again.

    async with Producer("127.0.0.1:9092", transactional_id="orders-1") as producer:
        async with producer.transaction():
            await producer.send("orders", b"one")
            await producer.send("bills", b"two")
    # both are there for readers of committed records, or none
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from headrace.client.accumulator import Accumulator
from headrace.client.batches import Delivery, Placed
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.goodbyes import carry_through
from headrace.client.metadata import Topic
from headrace.client.partitioner import StickyPartitions, partition_for_key
from headrace.client.security.settings import SecurityLike
from headrace.client.sender import Sender
from headrace.client.settings import DEFAULT_BOOTSTRAP, ClientSettings, ProducerSettings
from headrace.client.transactional.producer import (
    DEFAULT_TIMEOUT_MS,
    END_WAIT_SECONDS,
    TransactionalProducer,
)
from headrace.client.transactional.transaction import Transaction, start_abort
from headrace.errors import ErrorCode, KafkaError
from headrace.records.builder import record_bytes_max
from headrace.records.compression import Compression
from headrace.records.record import Headers
from headrace.surroundings import clocks

Bytes = bytes | str | None
"""A key or a value; text goes out as UTF-8."""
HeadersLike = Mapping[str, Bytes] | Iterable[tuple[str, Bytes]]

T = TypeVar("T")

YIELD_BYTES: Final = 128 * 1024
"""After how many bytes of records a loop over `send` lets the other tasks of its loop run."""
YIELD_RECORD_BYTES_MIN: Final = 128
"""What a record counts for at least: small ones take as long to hand over."""
ACKS: Final[dict[int | str, int]] = {"all": -1, -1: -1, 0: 0, 1: 1}


class Producer:
    """Sends records to the topics of one cluster."""

    def __init__(  # noqa: PLR0913  each is a choice that Kafka's clients have
        self,
        bootstrap: str | Sequence[str] | Cluster = DEFAULT_BOOTSTRAP,
        settings: ClientSettings | None = None,
        *,
        security: SecurityLike | None = None,
        acks: Literal["all", -1, 0, 1] = "all",
        idempotent: bool | None = None,
        compression: str | Compression = Compression.NONE,
        limits: ProducerSettings | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int | None = None,
    ) -> None:
        """Take addresses, or a `Cluster` that the caller closes.

        `security` is a `ClientSecurity` or settings by Kafka's names.

        `idempotent` is on with acks=all unless turned off; without acks=all it cannot be.

        With a `transactional_id` everything is sent within `transaction()`. Of all producers with
        the same id the newest one wins: it aborts what the others left open and fences them.
        The cluster aborts a transaction that is open for longer than `transaction_timeout_ms`,
        a minute unless given.
        """
        if acks not in ACKS:
            raise ValueError(f"acks={acks!r}: must be all, 1 or 0")
        if idempotent and ACKS[acks] != -1:
            raise ValueError(f"acks={acks!r}: an idempotent producer needs acks=all")
        _check_transactional(transactional_id, transaction_timeout_ms, acks, idempotent)
        limits = limits or ProducerSettings()
        self._is_owner = not isinstance(bootstrap, Cluster)
        self.cluster = Cluster.of(bootstrap, settings, security)
        self._accumulator = Accumulator(
            batch_bytes=limits.batch_bytes,
            memory_bytes=limits.memory_bytes,
            linger_seconds=limits.linger_ms / 1000,
            compression=parse_compression(compression),
            level=limits.compression_level,
        )
        self._transactions = (
            None
            if transactional_id is None
            else TransactionalProducer(
                self.cluster, transactional_id, transaction_timeout_ms or DEFAULT_TIMEOUT_MS
            )
        )
        self._sender = Sender(
            self.cluster,
            self._accumulator,
            acks=ACKS[acks],
            is_idempotent=ACKS[acks] == -1 if idempotent is None else idempotent,
            limits=limits,
            transactions=self._transactions,
        )
        self._sticky = StickyPartitions()
        self._time_ns = clocks().time_ns
        self._unyielded_bytes = 0
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self.cluster.connect()
        if self._transactions is not None:
            try:
                await self._transactions.start()
            except BaseException:
                await self.abandon()  # `async with` does not leave what it could not enter
                raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.close()
            return
        try:
            if self._transactions is not None:
                await self._transactions.settle(END_WAIT_SECONDS)
        finally:
            await self.abandon()

    async def send(
        self,
        topic: str,
        value: Bytes,
        key: Bytes = None,
        partition: int | None = None,
        *,
        headers: HeadersLike = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Queue a record; return its delivery, which can be awaited for its place.

        Waits while the buffer is full and while the topic is unknown. A failure that is not
        awaited is raised by the next `flush` or by `close`, or by the end of the transaction.
        """
        if self._is_closed:
            raise ValueError("this producer is closed")
        transactions = self._transactions
        number = 0 if transactions is None else transactions.check_open()
        try:
            known = self.cluster.view.topics.get(topic)  # the sender sees to it that it is fresh
            if known is None:
                known = await self._enter(self.cluster.topic(topic, may_create=True))
            if isinstance(key, str):
                key = key.encode()
            if isinstance(value, str):
                value = value.encode()
            fields = (key, value, _headers(headers) if headers else ())
            record_bytes = record_bytes_max(*fields)
            if partition is None:
                partition = self._choose(known, key, record_bytes)
            elif not 0 <= partition < len(known.partitions):
                await self._look_for(topic, partition)
            while not self._accumulator.has_room(record_bytes):
                await self._enter(self._sender.wait_for_room(record_bytes))
            batch, index, is_news = self._accumulator.append(
                (topic, partition),
                self._time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms,
                fields,
                record_bytes,
                self._sender.now,
            )
            self._unyielded_bytes += max(record_bytes, YIELD_RECORD_BYTES_MIN)
            if is_news or self._unyielded_bytes > YIELD_BYTES:
                self._unyielded_bytes = 0
                if is_news:
                    self._sender.wake()
                await asyncio.sleep(0)  # a loop over `send` must let others have their turn
        except BaseException as error:
            if transactions is not None:
                transactions.fail(_as_failure(error), number)
            raise
        return Delivery(batch, index)

    async def deliver(
        self,
        topic: str,
        value: Bytes,
        key: Bytes = None,
        partition: int | None = None,
        *,
        headers: HeadersLike = (),
        timestamp_ms: int | None = None,
    ) -> Placed:
        """Send a record and wait until it is acknowledged; return its place."""
        delivery = await self.send(
            topic, value, key, partition, headers=headers, timestamp_ms=timestamp_ms
        )
        return await delivery

    def transaction(self) -> Transaction:
        """Return a transaction to enter: `async with producer.transaction() as transaction`.

        Leaving it commits what was sent inside, an exception aborts it; see `Transaction`. A
        producer has one transaction at a time: entering a second one raises
        `InvalidTransactionStep`.
        """
        if self._transactions is None:
            raise ValueError("a producer without a transactional_id has no transactions")
        if self._is_closed:
            raise ValueError("this producer is closed")
        return Transaction(self._transactions, self._sender)

    async def flush(self) -> None:
        """Wait until everything sent so far is acknowledged or has failed.

        Raises the first failure of a record that was not awaited.
        """
        await self._sender.flush()

    async def close(self) -> None:
        """Flush, then close the connections. The producer is closed even if the flush raises.

        An open transaction is aborted; a commit in progress is awaited.
        """
        self._is_closed = True
        try:
            if self._transactions is not None:
                if self._transactions.may_abort:
                    start_abort(self._transactions, self._sender)
                await self._transactions.settle()
            await self.flush()
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Hang up without waiting; records that are not acknowledged fail.

        So do calls of `send` that wait. An open transaction is left to the cluster, which aborts
        it after `transaction_timeout_ms`, or when a producer with the same id starts.
        """
        self._is_closed = True
        await carry_through(self._hang_up())

    async def _hang_up(self) -> None:
        if self._transactions is not None:
            await self._transactions.stop()
        await self._sender.stop()
        if self._is_owner:
            await self.cluster.close()

    async def _enter(self, wait: Coroutine[Any, Any, T]) -> T:
        """Wait before a record is accepted; raise if the producer or its transaction ended."""
        transactions = self._transactions
        number = 0 if transactions is None else transactions.number
        found = await self._sender.enter(wait)
        if self._is_closed:
            raise ClientError("the producer was closed before the record was accepted")
        if transactions is not None:
            transactions.check_entering(number)
        return found

    async def _look_for(self, topic: str, partition: int) -> None:
        """Look a topic up again, which may have grown; KafkaError if it has no such partition."""
        self.cluster.forget(topic)
        known = await self._enter(self.cluster.topic(topic))
        if not 0 <= partition < len(known.partitions):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has partitions 0 to {len(known.partitions) - 1}, "
                f"there is no {partition}",
            )

    def _choose(self, topic: Topic, key: bytes | None, record_bytes: int) -> int:
        if key is not None:
            return partition_for_key(key, len(topic.partitions))
        current = self._sticky.stay(topic.name, record_bytes)
        if current is not None:
            return current
        nodes = self.cluster.view.nodes
        usable = [row.index for row in topic.partitions if row.leader_id in nodes]
        return self._sticky.move(topic.name, usable or range(len(topic.partitions)), record_bytes)


def parse_compression(name: str | Compression) -> Compression:
    """Read the name of a codec: none, gzip, snappy, lz4 or zstd; ValueError for another."""
    if isinstance(name, Compression):
        return name
    try:
        return Compression[name.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Compression)
        raise ValueError(f"compression {name!r}: must be one of {names}") from None


def _check_transactional(
    transactional_id: str | None,
    timeout_ms: int | None,
    acks: int | str,
    idempotent: bool | None,
) -> None:
    if transactional_id is None:
        if timeout_ms is not None:
            raise ValueError(f"transaction_timeout_ms={timeout_ms}: needs a transactional_id")
        return
    if not transactional_id:
        raise ValueError("transactional_id='': must not be empty")
    if timeout_ms is not None and timeout_ms <= 0:
        raise ValueError(f"transaction_timeout_ms={timeout_ms}: must be positive")
    if ACKS[acks] != -1:
        raise ValueError(f"acks={acks!r}: a transactional producer needs acks=all")
    if idempotent is False:
        raise ValueError("idempotent=False: a transactional producer is idempotent")


def _as_failure(error: BaseException) -> Exception:
    """Return why a record did not get into its transaction."""
    if isinstance(error, Exception):
        return error
    return ClientError("a call of send was cancelled")


def _bytes(data: Bytes) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _headers(headers: HeadersLike) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, _bytes(value)) for name, value in pairs)
