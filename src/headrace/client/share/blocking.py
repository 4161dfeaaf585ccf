"""The share consumer for programs without an event loop: the same methods, blocking.

    with BlockingShareConsumer("127.0.0.1:9092", "billing", ["orders"]) as consumer:
        for record in consumer:
            charge(record.value)

A loop runs in a separate thread, so heartbeats continue while the program processes a record.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from headrace.client.security.settings import SecurityLike
from headrace.client.settings import DEFAULT_BOOTSTRAP, ClientSettings
from headrace.client.share.acknowledgements import Acknowledged, AcknowledgeType
from headrace.client.share.acquired import ShareRecord
from headrace.client.share.consumer import (
    CLOSE_TIMEOUT_MS,
    POLL_RECORDS_MAX,
    AcknowledgementMode,
    ShareConsumer,
)
from headrace.client.share.terms import ShareSettings
from headrace.client.topics import TopicPartition
from headrace.errors import KafkaError
from headrace.wire.share_types import AcquireMode

T = TypeVar("T")


class BlockingShareConsumer:
    """One member of a share group. Belongs to one thread at a time."""

    def __init__(  # noqa: PLR0913  each is a choice that Kafka's clients have
        self,
        bootstrap: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        group: str = "",
        topics: Iterable[str] = (),
        *,
        mode: AcknowledgementMode | str = AcknowledgementMode.IMPLICIT,
        max_poll_records: int = POLL_RECORDS_MAX,
        acquire_mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        rack: str | None = None,
        settings: ShareSettings | ClientSettings | None = None,
        security: SecurityLike | None = None,
    ) -> None:
        """Take the arguments of `ShareConsumer`."""
        self.on_acknowledged: Callable[[Acknowledged], None] | None = None
        """Called with the outcomes of acknowledgements, on the caller's thread, before a method
        returns. It must not call the consumer."""
        self._reports: list[Acknowledged] = []
        self._is_reporting = False
        self._consumer = ShareConsumer(
            bootstrap,
            group,
            topics,
            mode=mode,
            max_poll_records=max_poll_records,
            acquire_mode=acquire_mode,
            rack=rack,
            settings=settings,
            security=security,
        )
        self._consumer.on_acknowledged = self._reports.append
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="share-consumer")
        self._thread.daemon = True  # a program that forgets to close it still ends

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(self._consumer.__aexit__(kind, error, trace))

    def start(self) -> None:
        """Join the group; KafkaError or NotReachable says why not."""
        if self._is_closed or self._loop is not None:
            raise RuntimeError(
                f"this consumer is {'closed; make another one' if self._is_closed else 'started'}"
            )
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        try:
            self._run(self._consumer.start())
        except BaseException:
            self._stop_loop()
            raise

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Send what is acknowledged, give back the rest at once, and leave the group."""
        self._end(self._consumer.close(timeout_ms))

    @property
    def group(self) -> str:
        """The share group's name."""
        return self._consumer.group

    @property
    def member_id(self) -> str:
        """What the group knows this consumer by."""
        return self._consumer.member_id

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member is to read from now."""
        return self._consumer.assignment

    @property
    def lock_timeout_ms(self) -> int | None:
        """How long a record is locked for this member; None before a broker has said so."""
        return self._consumer.lock_timeout_ms

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read other topics from now on."""

        async def subscribe() -> None:
            self._consumer.subscribe(topics)

        self._run(subscribe())

    def poll(self, timeout_ms: float | None = None) -> list[ShareRecord]:
        """Return the next records, like `ShareConsumer.poll`."""
        return self._run(self._consumer.poll(timeout_ms))

    def __iter__(self) -> Iterator[ShareRecord]:
        """Yield records one by one, forever."""
        records = aiter(self._consumer)
        while True:
            yield self._run(_next(records))

    def acknowledge(
        self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledge a record of the last poll; sent by the next poll or commit."""
        # No call to the loop's thread: it touches what this changes only while we wait for it.
        self._consumer.acknowledge(record, kind)

    def acknowledge_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        kind: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """Do the same for a record that is known by its place only."""
        self._consumer.acknowledge_offset(topic, partition, offset, kind)

    def commit(self, timeout_ms: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send acknowledgements and wait until brokers have them; give an outcome a partition."""
        return self._run(self._consumer.commit(timeout_ms))

    def commit_async(self) -> None:
        """Send acknowledgements without waiting; `on_acknowledged` gets the outcomes."""

        async def commit() -> None:
            self._consumer.commit_async()

        self._run(commit())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_reporting:
            work.close()
            raise RuntimeError("a callback cannot call its own consumer")
        if self._loop is None:
            work.close()
            raise RuntimeError(
                "this consumer is closed; make another one"
                if self._is_closed
                else "this consumer is not started; use it inside of `with`, or call start()"
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C ends the wait, and the work with it
            raise
        finally:
            self._report()

    def _report(self) -> None:
        callback = self.on_acknowledged
        reports = self._reports[:]
        del self._reports[: len(reports)]
        self._is_reporting = True
        try:
            if callback is not None:
                for report in reports:
                    callback(report)
        finally:
            self._is_reporting = False

    def _end(self, work: Coroutine[Any, Any, None]) -> None:
        if self._loop is None:
            work.close()
            self._is_closed = True
            return
        try:
            self._run(work)
        finally:
            self._stop_loop()

    def _serve(self) -> None:
        loop = self._loop
        assert loop is not None, "the loop is made before its thread starts"
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.run_until_complete(_cancel_the_rest())
        loop.run_until_complete(loop.shutdown_asyncgens())

    def _stop_loop(self) -> None:
        self._is_closed = True
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()


async def _cancel_the_rest() -> None:
    """End what Ctrl-C cut short: it takes no longer than a goodbye to the group."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def _next(records: "Any") -> ShareRecord:
    record: ShareRecord = await anext(records)
    return record
