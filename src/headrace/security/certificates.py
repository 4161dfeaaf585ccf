"""The certificates of listeners: read again when their files change, and watched until they expire.

    certificates = Certificates(settings, ["SSL"], now=...)
    certificates.context("SSL")           # for a new connection
    await certificates.look()             # every few seconds, off the loop

A file that changed and cannot be used leaves the former context in use; the log says so once, and
it is read again with every look until it can.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from headrace.config import InvalidSetting, Settings
from headrace.security.key_stores import store_files
from headrace.security.tls import MadeContext, make_context

LOOK_SECONDS: Final = 5.0
"""How often files are looked at."""
WARN_BEFORE: Final = timedelta(days=30)
WARN_EVERY: Final = timedelta(days=1)

logger = logging.getLogger(__name__)

_Stamp = tuple[tuple[int, int, int, int], ...]


class Certificates:
    """The contexts of the listeners that use TLS."""

    def __init__(
        self, settings: Settings, listeners: Iterable[str], now_ms: Callable[[], int]
    ) -> None:
        """Read all of them; InvalidSetting if that fails. `now_ms` is the wall clock."""
        self._settings = settings
        self._now_ms = now_ms
        self._stamps = {name: _stamp(store_files(settings, name)) for name in listeners}
        self._made: dict[str, MadeContext] = {
            name: make_context(settings, name) for name in self._stamps
        }
        self._failed: dict[str, tuple[_Stamp, str]] = {}
        """Listeners whose files cannot be used, and what was logged about it."""
        self._warned: dict[str, datetime] = {}
        self.reloads = 0
        """How often certificates were replaced."""
        self._task: asyncio.Task[None] | None = None
        self._warn()

    def context(self, listener: str) -> ssl.SSLContext:
        """Return the context for a new connection."""
        return self._made[listener].context

    def expiry_seconds(self) -> dict[str, float]:
        """Return for each listener when its certificate expires, in seconds since 1970."""
        return {name: made.expires.timestamp() for name, made in self._made.items()}

    def start(self) -> None:
        """Look at the files from now on, until `stop`."""
        if self._made:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def look(self) -> None:
        """Take what has changed, and warn of what expires soon."""
        loop = asyncio.get_running_loop()
        for name in self._made:
            made = await loop.run_in_executor(None, self._read_if_changed, name)
            if made is not None:
                self._made[name] = made
                self.reloads += 1
                logger.info(
                    "listener %s: new connections use the certificate of %s, which expires on %s",
                    *(name, made.subject, made.expires.date()),
                )
        self._warn()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception:  # nobody awaits this, and certificates expire
                logger.exception("certificates cannot be looked at")

    def _read_if_changed(self, name: str) -> MadeContext | None:
        stamp = _stamp(store_files(self._settings, name))
        if stamp == self._stamps[name]:
            return None
        try:
            made = make_context(self._settings, name)
        except Exception as error:  # whatever a library makes of damaged bytes
            failed = stamp, str(error)
            if self._failed.get(name) != failed:
                self._failed[name] = failed
                is_known = isinstance(error, InvalidSetting)
                logger.error(
                    "the former certificate stays in use: %s",
                    error if is_known else f"listener {name}: {error}",
                    exc_info=None if is_known else error,
                )
            return None
        # Taken before the files were read: what changes meanwhile is seen with the next look.
        self._stamps[name] = stamp
        self._failed.pop(name, None)
        return made

    def _warn(self) -> None:
        now = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        for name, made in self._made.items():
            warned = self._warned.get(name)
            if made.expires - now > WARN_BEFORE or (warned and now - warned < WARN_EVERY):
                continue
            self._warned[name] = now
            verb = "expires" if made.expires > now else "has expired"
            logger.warning(
                "the certificate of listener %s (%s) %s on %s: replace the file, no restart is "
                "needed",
                *(name, made.subject, verb, made.expires.date()),
            )


def _stamp(files: Iterable[str]) -> _Stamp:
    """Return what changes when one of the files does."""
    stamps = []
    for name in files:
        try:
            found = Path(name).stat()
        except OSError:
            stamps.append((0, 0, 0, 0))
        else:
            # Its rights and owner are in it, by the last: they may be put right later.
            stamps.append((found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns))
    return tuple(stamps)
