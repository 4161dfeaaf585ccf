"""How much went in the last windows, and how long to wait for it to be little enough. Pure.

The arithmetic is Kafka's, as clients see its results: throttle times. A window that was begun long
ago is dropped once its last value is older than all windows together, and windows that are missing
count as empty ones, so a client that begins is measured as if it had been silent before.
"""

from collections import deque
from dataclasses import dataclass
from math import floor
from typing import Final

WAIT_MS_MAX: Final = 2**31 - 1
"""The longest wait that a response can tell."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Over how many windows of which length a rate is measured."""

    count: int
    size_ms: int

    @property
    def span_ms(self) -> int:
        return self.count * self.size_ms


class _Window:
    __slots__ = ("begun_ms", "last_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.begun_ms = now_ms
        self.last_ms = now_ms
        self.value = 0.0


class SampledRate:
    """A rate per second over windows."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[_Window] = deque()

    def record(self, value: float, now_ms: int) -> None:
        """Count a value; a negative one takes back what was counted at the same time."""
        self._forget(now_ms)
        samples = self._samples
        if not samples or now_ms - samples[-1].begun_ms >= self._windows.size_ms:
            samples.append(_Window(now_ms))
        samples[-1].value += value
        samples[-1].last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        """Return the rate now."""
        self._forget(now_ms)
        total = sum(each.value for each in self._samples)
        return total * 1000 / self._measured_ms(now_ms)

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Return how long nothing may go until the rate is the limit; 0 if it is not above it."""
        rate = self.per_second(now_ms)
        if rate <= limit:
            return 0
        if limit <= 0:
            return WAIT_MS_MAX
        wait = (rate - limit) / limit * self._measured_ms(now_ms)
        return WAIT_MS_MAX if wait >= WAIT_MS_MAX else floor(wait + 0.5)

    def is_idle(self, now_ms: int) -> bool:
        """Return whether nothing was counted in the windows."""
        self._forget(now_ms)
        return not self._samples

    def _measured_ms(self, now_ms: int) -> int:
        """Return the time that the rate is measured over: at least all windows but the last."""
        size_ms = self._windows.size_ms
        elapsed_ms = now_ms - self._samples[0].begun_ms if self._samples else 0
        missing = self._windows.count - 1 - elapsed_ms // size_ms
        return max(elapsed_ms + max(missing, 0) * size_ms, size_ms)

    def _forget(self, now_ms: int) -> None:
        """Drop windows that are over; after a clock that was put back, all of them."""
        span_ms = self._windows.span_ms
        samples = self._samples
        while samples and now_ms - samples[0].last_ms >= span_ms:
            samples.popleft()
        if samples and now_ms < samples[-1].last_ms:
            samples.clear()


class TokenBucket:
    """Tokens that come back at the rate of a limit; full, it has those of all windows.

    A caller that finds any may take as many as it wants, and leaves a debt that others wait for
    (KIP-599): one large change is possible, a stream of them is not.
    """

    __slots__ = ("_filled_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = 0.0
        self._filled_ms: int | None = None
        """None for a bucket that nobody has used: it is full, whatever its limit is."""

    def record(self, value: float, limit: float, now_ms: int) -> None:
        """Take tokens, whether they are there or not."""
        self._fill(limit, now_ms)
        self._tokens -= value

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Return how long it takes until there is no debt; 0 if there is none."""
        self._fill(limit, now_ms)
        if self._tokens >= 0:
            return 0
        if limit <= 0:
            return WAIT_MS_MAX
        wait = -self._tokens / limit * 1000
        return WAIT_MS_MAX if wait >= WAIT_MS_MAX else floor(wait + 0.5)

    def _fill(self, limit: float, now_ms: int) -> None:
        most = limit * self._windows.span_ms / 1000
        if self._filled_ms is None:
            self._tokens = most
        else:
            elapsed_ms = max(now_ms - self._filled_ms, 0)
            self._tokens = min(most, self._tokens + limit * elapsed_ms / 1000)
        self._filled_ms = now_ms
