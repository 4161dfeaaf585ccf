"""A handler and one record: called until it has a word for it, with pauses between its attempts.

A handler that returns has done its work. If it raises what another attempt may cure, the record
stays here and the handler is called again after a pause, which doubles from one to the next, until
`timeout_ms` is over. Nothing here knows of locks or brokers.
"""

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Final, NamedTuple, TypeAlias

import msgspec

from headrace.client.errors import NotReachable
from headrace.client.settings import RETRY_JITTER
from headrace.client.share.acknowledgements import AcknowledgeType
from headrace.client.share.acquired import ShareRecord
from headrace.errors import KafkaError
from headrace.surroundings import new_random

_LOGGER = logging.getLogger(__name__)
RETRY_BACKOFF_MS: Final = 100
RETRY_BACKOFF_MAX_MS: Final = 5_000
RETRY_TIMEOUT_MS: Final = 30_000
_DOUBLINGS_MAX: Final = 30

Handler: TypeAlias = Callable[[ShareRecord], Awaitable[object] | object]
"""A coroutine function; or a plain one, which runs in a thread. What it returns is awaited if it
can be."""
RetryOn: TypeAlias = Callable[[BaseException], bool]


class Retry(Exception):
    """Raised by a handler: not now, another attempt may do better."""


def is_retriable(error: BaseException) -> bool:
    """Return whether another attempt may cure what a handler raised. The default of `retry_on`."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_retriable, error.exceptions))
    if isinstance(error, KafkaError):
        return error.is_retriable
    return isinstance(error, Retry | NotReachable | OSError)


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which errors another attempt may cure, and how patiently that is tried."""

    retry_on: RetryOn = is_retriable
    backoff_ms: int = RETRY_BACKOFF_MS
    backoff_max_ms: int = RETRY_BACKOFF_MAX_MS
    timeout_ms: int = RETRY_TIMEOUT_MS

    def check(self) -> None:
        """ValueError that names a limit which makes no sense."""
        if self.backoff_ms < 1:
            raise ValueError(f"retry_backoff_ms is {self.backoff_ms}, and must be at least 1")
        if self.backoff_max_ms < self.backoff_ms:
            raise ValueError(
                f"retry_backoff_max_ms is {self.backoff_max_ms}, "
                f"and must be at least retry_backoff_ms, which is {self.backoff_ms}"
            )
        if self.timeout_ms < 0:
            raise ValueError(f"retry_timeout_ms is {self.timeout_ms}, and must be at least 0")

    def may_cure(self, error: BaseException) -> bool:
        """Return whether to retry. If `retry_on` itself fails, the record is retried."""
        if isinstance(error, asyncio.CancelledError):
            return True  # something that the handler waited for was cancelled
        try:
            return bool(self.retry_on(error))
        except Exception:
            _LOGGER.exception("retry_on failed on %r: the record is retried", error)
            return True

    def pause(self, failures: int, random: Random) -> float:
        """Return the seconds before the next attempt, after so many that failed."""
        nominal = self.backoff_ms * 2.0 ** min(failures - 1, _DOUBLINGS_MAX)
        jitter = random.uniform(1 - RETRY_JITTER, 1 + RETRY_JITTER)
        return min(nominal, float(self.backoff_max_ms)) * jitter / 1000


class Verdict(NamedTuple):
    """What a handler came to with a record."""

    kind: AcknowledgeType
    error: BaseException | None
    """What it raised last, unless it returned."""
    attempts: int
    seconds: float


class Hands:
    """Calls the handler: on the loop, or in as many threads as there may be calls."""

    def __init__(self, handler: Handler, concurrency: int, policy: RetryPolicy) -> None:
        self._handler = handler
        self._policy = policy
        self._random = new_random()
        self._is_ending = asyncio.Event()
        self._threads: ThreadPoolExecutor | None = None
        if not _is_coroutine_function(handler):
            self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="share-worker")

    def end(self) -> None:
        """End the waits for further attempts."""
        self._is_ending.set()

    @property
    def is_ending(self) -> bool:
        """Whether waits for further attempts are over."""
        return self._is_ending.is_set()

    def close(self) -> None:
        """Accept no more calls. A running thread cannot be stopped and is not awaited."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def handle(
        self, record: ShareRecord, may_go_on: Callable[[], bool], is_last: Callable[[], bool]
    ) -> Verdict:
        """Call the handler until it returns, or until another attempt is pointless.

        Before each attempt `may_go_on` returns whether the record is still ours. At the end of the
        worker `is_last` returns whether a release now would give the record up. CancelledError is
        raised only if the task itself is cancelled.
        """
        loop, policy = asyncio.get_running_loop(), self._policy
        began_at = loop.time()
        attempts = 0
        while True:
            attempts += 1
            error = await self._call(record)
            seconds = loop.time() - began_at
            if error is None:
                return Verdict(AcknowledgeType.ACCEPT, None, attempts, seconds)
            if not policy.may_cure(error):
                return Verdict(AcknowledgeType.REJECT, error, attempts, seconds)
            pause = policy.pause(attempts, self._random)
            if seconds + pause > policy.timeout_ms / 1000 or not may_go_on():
                return Verdict(AcknowledgeType.RELEASE, error, attempts, seconds)
            _LOGGER.info(
                "%s: attempt %d failed, the next is in %.1f s: %r",
                place_of(record),
                attempts,
                pause,
                error,
            )
            if not await self._pause(pause, is_last):
                return Verdict(AcknowledgeType.RELEASE, error, attempts, loop.time() - began_at)

    async def _call(self, record: ShareRecord) -> BaseException | None:
        """Call the handler once; return what it raised."""
        task = asyncio.current_task()
        assert task is not None, "a handler is called by a task"
        try:
            if self._threads is None:
                result = self._handler(record)
            else:
                context = contextvars.copy_context()
                result, error = await asyncio.get_running_loop().run_in_executor(
                    self._threads, context.run, _outcome, self._handler, record
                )
                if error is not None:
                    raise error
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError as error:
            if task.cancelling():
                raise
            return error
        except Exception as error:
            return error
        return None

    async def _pause(self, seconds: float, is_last: Callable[[], bool]) -> bool:
        """Wait; return False if the worker ends and another member may process the record."""
        if not self._is_ending.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._is_ending.wait()
            except TimeoutError:
                return True
        if not is_last():
            return False
        await asyncio.sleep(seconds)
        return True


def place_of(record: ShareRecord) -> str:
    """Return where a record is, for messages."""
    return f"{record.topic}-{record.partition} offset {record.offset}"


def _outcome(handler: Handler, record: ShareRecord) -> tuple[object, BaseException | None]:
    """Call a plain function. Returned, not raised: a future cannot take every exception."""
    try:
        return handler(record), None
    except BaseException as error:
        return None, error


def _is_coroutine_function(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004  an object with such a method
    )
