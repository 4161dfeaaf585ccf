"""A quota of bytes per second, measured over windows as in Kafka. Pure."""

from collections import deque


class Quota:
    """Says how long to wait before more bytes may go.

    The rate is that of the last windows. A long pause does not save up more than these windows
    hold, and the first bytes after it go at once.
    """

    def __init__(self, *, window_count: int, window_ms: int) -> None:
        self._window_ms = window_ms
        self._window_count = window_count
        self._windows: deque[list[int]] = deque()
        """When each began, and its bytes; the latest is the last."""
        self._total_bytes = 0

    def record(self, byte_count: int, now_ms: int) -> None:
        """Count bytes that go now."""
        self._forget(now_ms)
        if not self._windows or now_ms - self._windows[-1][0] >= self._window_ms:
            self._windows.append([now_ms, 0])
        self._windows[-1][1] += byte_count
        self._total_bytes += byte_count

    def wait_ms(self, bytes_per_second_max: int, now_ms: int) -> int:
        """Return how long to wait until the rate is at most the maximum; 0 to go on."""
        self._forget(now_ms)
        if not self._windows:
            return 0
        # As if all windows but the current one had passed: else the first bytes are a burst.
        elapsed_ms = now_ms - self._windows[0][0]
        missing = max(self._window_count - 1 - elapsed_ms // self._window_ms, 0)
        elapsed_ms = max(elapsed_ms + missing * self._window_ms, 1)
        due_ms = -(-self._total_bytes * 1000 // bytes_per_second_max)
        return max(due_ms - elapsed_ms, 0)

    def bytes_per_second(self, now_ms: int) -> float:
        """Return the rate of the last windows."""
        self._forget(now_ms)
        if not self._windows:
            return 0.0
        elapsed_ms = max(now_ms - self._windows[0][0], self._window_ms)
        return self._total_bytes * 1000 / elapsed_ms

    def _forget(self, now_ms: int) -> None:
        """Forget windows that are over; after a clock that was put back, all of them."""
        span_ms = self._window_count * self._window_ms
        while self._windows and not 0 <= now_ms - self._windows[0][0] < span_ms:
            self._total_bytes -= self._windows.popleft()[1]
