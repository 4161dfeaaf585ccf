"""The metadata of remote segments of one node, from its start to its stop.

    service = MetadataService(open_log, snapshots)
    service.start()                     # returns at once; everything is NotReady until it is up
    tier = Tier(service.metadata, ...)

The topic may be on nodes that start later, or on this one, so that bringing it up is repeated for
as long as it takes. After some time that is reported, once.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from headrace.errors import HeadraceError
from headrace.loop.tasks import Tasks
from headrace.tier.event_log import MetadataEventLog
from headrace.tier.metadata_manager import MetadataWaits, TopicMetadata
from headrace.tier.snapshots import MetadataSnapshots
from headrace.tier.swappable import STARTING, NotReadyMetadata, SwappableMetadata

logger = logging.getLogger(__name__)


class StartSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the start is repeated: rlmm.config.remote.log.metadata.initialization.retry.*"""

    retry_interval_ms: int = 100
    retry_timeout_ms: int = 120_000
    """After how long it is reported that it does not succeed."""


class MetadataService:
    """Starts and stops the metadata, and puts it behind a facade."""

    def __init__(
        self,
        open_log: Callable[[], MetadataEventLog],
        snapshots: MetadataSnapshots | None = None,
        waits: MetadataWaits | None = None,
        starting: StartSettings | None = None,
    ) -> None:
        """`open_log` returns a log that was not started, for each attempt a new one."""
        self.metadata = SwappableMetadata()
        """What everyone uses, from before the start until after the stop."""
        self._open_log = open_log
        self._snapshots = snapshots
        self._waits = waits
        self._starting = starting or StartSettings()
        self._log: MetadataEventLog | None = None
        self._manager: TopicMetadata | None = None
        self._tasks = Tasks()

    @property
    def manager(self) -> TopicMetadata | None:
        """The manager, if it is up."""
        return self._manager

    def start(self) -> None:
        """Begin to bring it up."""
        self._tasks.start(self._run())

    async def stop(self) -> None:
        """Stop it; from then on it is not ready."""
        await self._tasks.stop()
        await self._take_down("the node stops")

    def crash(self) -> None:
        """Fall silent at once; whoever ends the loop cancels what is under way."""
        if self._log is not None:
            self._log.hang_up()

    async def _run(self) -> None:
        while True:
            log = self._log = await self._open()
            manager = self._manager = TopicMetadata(log, self._snapshots, self._waits)
            await manager.start()
            self.metadata.swap(manager)
            await manager.log_replaced.wait()
            logger.error(
                "the log of the metadata of remote segments was deleted and made anew: what it "
                "says now counts; `headrace tier fsck` shows what it has lost"
            )
            await self._take_down(STARTING)

    async def _open(self) -> MetadataEventLog:
        """Return a log that is started, however long that takes."""
        loop = asyncio.get_running_loop()
        overdue_at = loop.time() + self._starting.retry_timeout_ms / 1000
        is_reported = False
        while True:
            log = self._open_log()
            try:
                await log.start()
                return log
            except (HeadraceError, OSError, TimeoutError) as error:
                if not is_reported and loop.time() >= overdue_at:
                    is_reported = True
                    logger.error(
                        "the metadata of remote segments does not start, and nothing is copied to "
                        "or read from the tier: %s",
                        error,
                    )
            await asyncio.sleep(max(self._starting.retry_interval_ms, 1) / 1000)

    async def _take_down(self, why: str) -> None:
        self.metadata.swap(NotReadyMetadata(why))
        manager, self._manager = self._manager, None
        log, self._log = self._log, None
        if manager is not None:
            await manager.stop()
        if log is not None:
            await log.stop()
