"""A function run over a queue: one record at a time, several at once.

    async def charge(record: ShareRecord) -> None:
        ...

    async with share_worker(bootstrap, "billing", ["orders"], charge, concurrency=8) as worker:
        await worker.wait()

A record is accepted when the function returns, released when it raises what another attempt may
cure, and rejected when it raises anything else. While it runs the lock is renewed. No more records
are locked than functions run. At the end those that run are waited for.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias

from headrace.client.cluster import Cluster
from headrace.client.errors import NotReachable
from headrace.client.settings import ClientSettings
from headrace.client.share.acknowledgements import AcknowledgeType
from headrace.client.share.acquired import ShareRecord
from headrace.client.share.consumer import CLOSE_TIMEOUT_MS
from headrace.client.share.delivery import Delivery, Lease
from headrace.client.share.member import Member
from headrace.client.share.terms import AcquireMode, FetchTerms, ShareSettings
from headrace.errors import ErrorCode, HeadraceError, KafkaError

_LOGGER = logging.getLogger(__name__)
_RENEWALS_A_LOCK: Final = 2
_DRAIN_TIMEOUT_MS: Final = 30_000

Handler: TypeAlias = Callable[[ShareRecord], Awaitable[object] | object]
"""A coroutine function; or a plain one, which runs in a thread."""


class Retry(Exception):
    """Raised by a handler: not now, another attempt may do better."""


def is_retriable(error: BaseException) -> bool:
    """Whether another attempt may cure what a handler raised, if the user says nothing else."""
    if isinstance(error, KafkaError):
        return error.is_retriable
    return isinstance(error, Retry | NotReachable | OSError)


def share_worker(
    bootstrap: str | Sequence[str],
    group: str,
    topics: Iterable[str],
    handler: Handler,
    *,
    concurrency: int = 1,
    retry_on: Callable[[BaseException], bool] = is_retriable,
    settings: ShareSettings | ClientSettings | None = None,
    drain_timeout_ms: int = _DRAIN_TIMEOUT_MS,
) -> "ShareWorker":
    """Give a worker that runs inside of `async with`.

    `retry_on` says of an exception whether the record is to be tried again. What still runs
    `drain_timeout_ms` after the end is cancelled, and its record released.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency is {concurrency}, and must be at least 1")
    if not isinstance(settings, ShareSettings):
        settings = ShareSettings(client=settings or ClientSettings())
    member = Member(group, [topics] if isinstance(topics, str) else topics, None)
    terms = FetchTerms(
        group_id=group,
        member_id=member.member_id,
        acquire_mode=AcquireMode.RECORD_LIMIT,
        limits=settings.limits,
        settings=settings.client,
    )
    delivery = Delivery(Cluster(bootstrap, settings.client), member, terms)
    return ShareWorker(
        delivery,
        handler,
        concurrency=concurrency,
        retry_on=retry_on,
        max_wait_ms=settings.limits.max_wait_ms,
        drain_timeout_ms=drain_timeout_ms,
    )


class _Running(NamedTuple):
    """A record that a handler works on."""

    lease: Lease
    offset: int


class ShareWorker:
    """Runs a handler over the records of a share group. Made by `share_worker`."""

    def __init__(
        self,
        delivery: Delivery,
        handler: Handler,
        *,
        concurrency: int,
        retry_on: Callable[[BaseException], bool],
        max_wait_ms: int,
        drain_timeout_ms: int,
    ) -> None:
        self._delivery = delivery
        self._handler = handler
        self._is_coroutine = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004  an object with such a method
        )
        self._concurrency = concurrency
        self._retry_on = retry_on
        self._max_wait_ms = max_wait_ms
        self._drain_timeout_ms = drain_timeout_ms
        self._running: dict[_Running, asyncio.Task[None]] = {}
        self._renewed_at: dict[_Running, float] = {}
        self._can_renew = True
        self._is_ending = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._delivery.start()
        except BaseException:
            await self._delivery.close(0)
            raise
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._drain()
        await self._delivery.close(CLOSE_TIMEOUT_MS)
        self._take_outcomes()

    async def wait(self) -> None:
        """Wait for ever; raises what ends the worker: no right to the group, or to a topic."""
        assert self._task is not None, "a worker is entered with `async with`"
        await asyncio.shield(self._task)

    @property
    def running(self) -> int:
        """How many records are worked on now."""
        return len(self._running)

    async def _run(self) -> None:
        """Fetch as much as there are free hands for, until told to end; then see to renewals."""
        delivery = self._delivery
        while not self._is_ending or self._running:
            self._take_outcomes()
            if not self._is_ending:
                delivery.raise_failure()
                self._begin()
            self._renew()
            delivery.send()
            await delivery.wait(self._next_renewal())

    def _begin(self) -> None:
        free = self._concurrency - len(self._running)
        if free == 0:
            return
        now = asyncio.get_running_loop().time()
        for lease, records in self._delivery.take(free):
            for record in records:
                running = _Running(lease, record.offset)
                self._renewed_at[running] = now
                self._running[running] = asyncio.create_task(self._handle(running, record))
        free = self._concurrency - len(self._running)
        if free:
            self._delivery.ask(free, self._max_wait_ms)

    async def _handle(self, running: _Running, record: ShareRecord) -> None:
        kind = AcknowledgeType.RELEASE  # if it is cancelled
        try:
            if self._is_coroutine:
                await self._handler(record)  # type: ignore[misc]
            else:
                await asyncio.to_thread(self._handler, record)
            kind = AcknowledgeType.ACCEPT
        except Exception as error:
            if not self._retry_on(error):
                kind = AcknowledgeType.REJECT
            where = f"{record.topic}-{record.partition} offset {record.offset}"
            word = "rejected" if kind is AcknowledgeType.REJECT else "released"
            _LOGGER.warning("%s is %s: %r", where, word, error)
        finally:
            del self._running[running]
            del self._renewed_at[running]
            self._delivery.acknowledge(running.lease, {running.offset: kind})
            self._delivery.on_news()

    def _renew(self) -> None:
        """Renew the locks of records that half of the lock's time was spent on."""
        half = self._delivery.lock_ms / _RENEWALS_A_LOCK / 1000
        if not half or not self._can_renew:
            return
        now = asyncio.get_running_loop().time()
        for running, renewed_at in self._renewed_at.items():
            if now >= renewed_at + half:
                self._renewed_at[running] = now
                self._delivery.acknowledge(running.lease, {running.offset: AcknowledgeType.RENEW})

    def _next_renewal(self) -> float | None:
        half = self._delivery.lock_ms / _RENEWALS_A_LOCK / 1000
        if not half or not self._renewed_at or not self._can_renew:
            return None
        return min(self._renewed_at.values()) + half

    def _take_outcomes(self) -> None:
        """Say what could not be acknowledged: somebody will get those records again."""
        outcomes = self._delivery.outcomes
        while outcomes:
            shared, acknowledgements, error = outcomes.popleft()
            if error is None:
                continue
            if error.code == ErrorCode.UNSUPPORTED_VERSION and acknowledgements.has_renewals:
                self._can_renew = False
            _LOGGER.warning(
                "partition %s: offsets %s are not acknowledged: %s",
                shared,
                [tuple(each) for each in acknowledgements.ranges()],
                error,
            )

    async def _drain(self) -> None:
        """Take no more; wait for what runs, and cancel what runs for too long."""
        self._is_ending = True
        self._delivery.on_news()
        if self._running:
            await asyncio.wait(list(self._running.values()), timeout=self._drain_timeout_ms / 1000)
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, HeadraceError):
                await self._task
