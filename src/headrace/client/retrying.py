"""Retries: growing pauses with a little chance in them, and an end."""

import asyncio
from random import Random

from headrace.client.settings import RETRY_JITTER, ClientSettings
from headrace.surroundings import new_random


class Retries:
    """The pauses of one operation, up to its deadline."""

    def __init__(self, settings: ClientSettings, timeout_ms: int | None = None) -> None:
        """`timeout_ms` is that of the whole operation; the settings' if it is not given."""
        self._settings = settings
        self._random = new_random()
        self._count = 0
        patience_ms = settings.api_timeout_ms if timeout_ms is None else timeout_ms
        self._deadline = asyncio.get_running_loop().time() + patience_ms / 1000

    def is_over(self) -> bool:
        """Return whether the deadline has passed."""
        return asyncio.get_running_loop().time() > self._deadline

    async def pause(self) -> bool:
        """Wait before the next attempt; False, at once, if that would be beyond the deadline."""
        pause = pause_ms(self._count, self._settings, self._random) / 1000
        if asyncio.get_running_loop().time() + pause > self._deadline:
            return False
        self._count += 1
        await asyncio.sleep(pause)
        return True


def pause_ms(retry: int, settings: ClientSettings, random: Random) -> float:
    """Return the backoff before a retry; the first one is number 0."""
    nominal = min(
        settings.retry_backoff_ms * 2.0 ** min(retry, 30), float(settings.retry_backoff_max_ms)
    )
    return nominal * random.uniform(1 - RETRY_JITTER, 1 + RETRY_JITTER)
