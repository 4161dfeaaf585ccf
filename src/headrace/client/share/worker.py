"""A function run over a queue: one record at a time, several at once.

    async def charge(record: ShareRecord) -> None:
        ...

    async with share_worker(bootstrap, "billing", ["orders"], charge, concurrency=8) as worker:
        await worker.wait()

A record is accepted when the function returns, and rejected when it raises, unless the error is
retriable: then the record is retried, and released when that takes too long. Its lock is renewed in
the meantime. No more records are locked than functions run. At the end the worker waits for running
functions, and calls them for late records that a release would give up.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from math import ceil
from types import TracebackType
from typing import Final, Self

from headrace.client.cluster import Cluster
from headrace.client.security.settings import SecurityLike
from headrace.client.settings import ClientSettings
from headrace.client.share.acknowledgements import AcknowledgeType
from headrace.client.share.consumer import CLOSE_TIMEOUT_MS
from headrace.client.share.delivery import Delivery, Portion
from headrace.client.share.fate import Fate, set_start
from headrace.client.share.handling import (
    RETRY_BACKOFF_MAX_MS,
    RETRY_BACKOFF_MS,
    RETRY_TIMEOUT_MS,
    Handler,
    Hands,
    Retry,
    RetryOn,
    RetryPolicy,
    Verdict,
    is_retriable,
    place_of,
)
from headrace.client.share.leased import Leased, LeasedRecords
from headrace.client.share.member import Member
from headrace.client.share.subscription import find_topics
from headrace.client.share.terms import FetchTerms, ShareSettings, share_settings
from headrace.errors import HeadraceError
from headrace.wire.share_types import AcquireMode

__all__ = ["Handler", "Retry", "ShareWorker", "is_retriable", "share_worker"]

_LOGGER = logging.getLogger(__name__)
_DRAIN_TIMEOUT_MS: Final = 30_000
_POLLS_A_LOCK: Final = 4
"""A fetch waits at most this fraction of a lock: when it locked its records is unknown."""
_SHORT_POLL_MS_MAX: Final = 500
"""How long a fetch waits while handlers run, as what they come to is said after it; and how long
the first one does, which tells how long a lock lasts."""


def share_worker(  # noqa: PLR0913  settings of one worker, each by its name
    bootstrap: str | Sequence[str],
    group: str,
    topics: Iterable[str],
    handler: Handler,
    *,
    concurrency: int = 1,
    start: str | None = None,
    retry_on: RetryOn = is_retriable,
    retry_backoff_ms: int = RETRY_BACKOFF_MS,
    retry_backoff_max_ms: int = RETRY_BACKOFF_MAX_MS,
    retry_timeout_ms: int = RETRY_TIMEOUT_MS,
    settings: ShareSettings | ClientSettings | None = None,
    security: SecurityLike | None = None,
    drain_timeout_ms: int = _DRAIN_TIMEOUT_MS,
) -> "ShareWorker":
    """Return a worker, which runs inside of `async with`.

    `start` sets where the group begins, if it has not begun: `earliest`, `latest` or
    `by_duration:PT1H`. `retry_on` says of an exception whether another attempt may cure it. That
    is tried after `retry_backoff_ms`, then after twice as long up to `retry_backoff_max_ms`, and
    the record is released `retry_timeout_ms` after the first attempt; with 0, at once. What still
    runs `drain_timeout_ms` after the end is cancelled, and its record released.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency is {concurrency}, and must be at least 1")
    if drain_timeout_ms < 0:
        raise ValueError(f"drain_timeout_ms is {drain_timeout_ms}, and must be at least 0")
    if not group:
        raise ValueError("a share worker belongs to a group: name one")
    _check_handler(handler)
    policy = RetryPolicy(
        retry_on=retry_on,
        backoff_ms=retry_backoff_ms,
        backoff_max_ms=retry_backoff_max_ms,
        timeout_ms=retry_timeout_ms,
    )
    policy.check()
    settings = share_settings(settings, security)
    member = Member(group, [topics] if isinstance(topics, str) else topics, None)
    if not member.topics:
        raise ValueError(f"group {group!r}: name at least one topic")
    terms = FetchTerms(
        group_id=group,
        member_id=member.member_id,
        acquire_mode=AcquireMode.RECORD_LIMIT,
        limits=settings.limits,
        settings=settings.client,
    )
    cluster = Cluster(bootstrap, settings.client)
    return ShareWorker(
        cluster,
        Delivery(cluster, member, terms),
        Hands(handler, concurrency, policy),
        member,
        concurrency=concurrency,
        start=start,
        max_wait_ms=settings.limits.max_wait_ms,
        drain_timeout_ms=drain_timeout_ms,
    )


class ShareWorker:
    """Runs a handler over the records of a share group. Made by `share_worker`."""

    def __init__(
        self,
        cluster: Cluster,
        delivery: Delivery,
        hands: Hands,
        member: Member,
        *,
        concurrency: int,
        start: str | None,
        max_wait_ms: int,
        drain_timeout_ms: int,
    ) -> None:
        self._cluster = cluster
        self._delivery = delivery
        self._hands = hands
        self._group = member.group_id
        self._topics = member.topics
        self._concurrency = concurrency
        self._start = start
        self._max_wait_ms = max_wait_ms
        self._drain_timeout_ms = drain_timeout_ms
        self._fate = Fate(cluster, member.group_id)
        self._leased = LeasedRecords(delivery)
        self._tasks: dict[Leased, asyncio.Task[None]] = {}
        self._waiting: deque[Leased] = deque()
        """Records that came when no slot was free, from nodes that were late with them."""
        self._is_entered = False
        self._is_ending = False
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._has_ended = asyncio.Event()
        self._is_failure_raised = False

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise RuntimeError("a share worker is entered once; make another one")
        self._is_entered = True
        try:
            await self._cluster.connect()
            await find_topics(self._cluster, self._topics)
            if self._start is not None:
                await set_start(self._cluster, self._group, self._start)
            await self._delivery.start()
            await self._fate.read()  # now, as it cannot be asked for when the broker is away
        except BaseException:
            self._hands.close()
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
        try:
            await self._drain()
        finally:
            await self._end()
        if self._failure is not None and error is None and not self._is_failure_raised:
            raise self._failure

    async def wait(self) -> None:
        """Wait forever. Raises the error that ends the worker, such as a lost permission."""
        if not self._is_entered:
            raise RuntimeError("this share worker does not run; enter it with `async with`")
        await self._has_ended.wait()
        if self._failure is not None:
            self._is_failure_raised = True
            raise self._failure

    @property
    def running(self) -> int:
        """How many records are worked on now."""
        return len(self._tasks)

    # The loop

    async def _run(self) -> None:
        """Fetch records for free slots until stopped; then only take what nobody else will."""
        try:
            while not self._is_ending or self._tasks or self._waiting:
                self._leased.take_outcomes()
                self._leased.renew()
                if not self._is_over:
                    self._begin()
                if self._is_over:
                    self._take_last()
                self._delivery.send()
                await self._delivery.wait(self._leased.next_renewal())
        except Exception as error:  # a defect: nothing is renewed from now on
            _LOGGER.exception("the worker of group %r ends", self._group)
            self._fail(error)
            self._give_back_waiting()

    def _begin(self) -> None:
        """Start handlers, and fetch as many records as there are free slots."""
        try:
            self._delivery.raise_failure()
        except HeadraceError as error:
            _LOGGER.error("the worker of group %r stopped fetching: %s", self._group, error)
            self._fail(error)
            return
        self._start_waiting()
        for portion in self._delivery.take(self._free):
            for leased in self._lease(portion):
                self._start_handler(leased)
        if self._free:
            self._delivery.share_out(self._free, self._wait_ms())
            return
        self._take_waiting()

    def _take_last(self) -> None:
        """Start handlers for records in their last delivery, and release the others.

        Released, a record in its last delivery would be given up, though no handler saw it.
        """
        self._take_waiting()
        if self._failure is not None or self._hands.is_ending:  # else the terms may be old
            self._give_back_waiting(keeps_last=True)
        self._start_waiting()

    def _take_waiting(self) -> None:
        for portion in self._delivery.take_renewable():
            self._waiting.extend(self._lease(portion))

    def _start_waiting(self) -> None:
        """Start handlers for records that waited for a free slot."""
        while self._free and self._waiting:
            leased = self._waiting.popleft()
            if self._leased.is_ours(leased):
                self._start_handler(leased)
            else:
                self._give_back(leased)

    @property
    def _is_over(self) -> bool:
        """Whether nothing is fetched any more."""
        return self._is_ending or self._failure is not None

    @property
    def _free(self) -> int:
        return max(0, self._concurrency - len(self._tasks))

    def _lease(self, portion: Portion) -> list[Leased]:
        add, (lease, records, since) = self._leased.add, portion
        return [add(lease, record, since) for record in records]

    def _start_handler(self, leased: Leased) -> None:
        self._tasks[leased] = asyncio.create_task(self._handle(leased))

    def _give_back(self, leased: Leased) -> None:
        """Release a record that the handler was not called for."""
        verdict = Verdict(AcknowledgeType.RELEASE, Retry("no slot was free"), 0, 0)
        self._leased.say(leased, verdict, self._fate.terms)

    def _wait_ms(self) -> int:
        """Return how long a fetch may wait: renewals and acknowledgements wait for it."""
        lock_ms = self._delivery.lock_ms
        if self._tasks or not lock_ms:
            wait_ms = _SHORT_POLL_MS_MAX
            due = self._leased.next_renewal()
            if due is not None:
                left = due - asyncio.get_running_loop().time()
                wait_ms = min(wait_ms, max(1, ceil(left * 1000)))
        else:
            wait_ms = lock_ms // _POLLS_A_LOCK
        return min(self._max_wait_ms, wait_ms)

    async def _handle(self, leased: Leased) -> None:
        record = leased.record
        verdict = Verdict(AcknowledgeType.RELEASE, None, 1, 0)
        terms = self._fate.terms
        try:
            verdict = await self._hands.handle(
                record,
                may_go_on=lambda: self._leased.is_ours(leased),
                is_last=lambda: self._fate.terms.is_last(record.delivery_count),
            )
            if verdict.error is not None or not self._leased.is_ours(leased):
                terms = await self._fate.read()
        except asyncio.CancelledError as error:
            word = "the worker ends" if self._is_ending else "its task was cancelled"
            _LOGGER.warning("%s: the handler is cancelled: %s", place_of(record), word)
            verdict = verdict._replace(error=verdict.error or error)
            raise
        except BaseException as error:  # SystemExit and the like end the program, not the record
            verdict = verdict._replace(error=error)
            raise
        finally:
            del self._tasks[leased]
            self._leased.say(leased, verdict, terms)
            self._delivery.on_news()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._has_ended.set()

    def _give_back_waiting(self, *, keeps_last: bool = False) -> None:
        """Release the records that wait, or only those that may be delivered again."""
        waiting, self._waiting = self._waiting, deque()
        for leased in waiting:
            if keeps_last and self._fate.terms.is_last(leased.record.delivery_count):
                self._waiting.append(leased)
            else:
                self._give_back(leased)

    # The end

    async def _drain(self) -> None:
        """Stop fetching; wait for running handlers, and cancel those that take too long."""
        self._is_ending = True
        if self._tasks or self._waiting:
            await self._fate.read()
        self._hands.end()
        self._delivery.on_news()
        assert self._task is not None, "it was entered"
        await asyncio.wait(
            [self._task, *self._tasks.values()], timeout=self._drain_timeout_ms / 1000
        )

    async def _end(self) -> None:
        """Cancel what still runs, give back what is left and leave, whatever interrupts that."""
        self._give_back_waiting()
        self._concurrency = 0  # what ends now frees no slot for what may still come
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._hands.close()
            if self._task is not None:
                self._task.cancel()
            try:
                await self._delivery.close(CLOSE_TIMEOUT_MS)
            finally:
                self._leased.take_outcomes()
                self._has_ended.set()


def _check_handler(handler: Handler) -> None:
    """TypeError for what would be called and never run."""
    function: object = handler
    while isinstance(function, partial):
        function = function.func
    if not callable(function):
        raise TypeError(f"the handler {handler!r} cannot be called")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"the handler {handler!r} has a yield, so that calling it runs nothing")
