"""A limit of bytes per second, with the debts of a burst paid before the next one. Pure."""


class Pace:
    """How long to wait so that bytes come at a rate."""

    def __init__(self, bytes_per_second: int | None, now: float) -> None:
        self._rate = bytes_per_second
        self._free_at = now

    def wait_seconds(self, byte_count: int, now: float) -> float:
        """Count bytes that came at a time; return how long to wait before the next ones."""
        if self._rate is None:
            return 0.0
        self._free_at = max(self._free_at, now) + byte_count / self._rate
        return self._free_at - now
