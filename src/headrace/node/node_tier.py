"""The tier of a node: its parts, each constructed with what it needs, and the order of their start.

The store must be this cluster's (`remote.marker`). One that is another's, or that refuses the node,
keeps it from starting. One that is away does not: the node serves what it has on its disk, and the
tier is not ready until the store is back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from headrace import config
from headrace.client.security.settings import PLAINTEXT, ClientSecurity
from headrace.config import LiveSettings
from headrace.errors import HeadraceError
from headrace.ids import REMOTE_METADATA_TOPIC, BrokerId
from headrace.log.disk import Disk
from headrace.loop.clock import Clock
from headrace.loop.slices import Slices
from headrace.loop.tasks import Tasks
from headrace.metadata.image import Image
from headrace.metadata.quorum import MetadataQuorum
from headrace.remote.marker import check, claim
from headrace.remote.object_store import open_store
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.store import ObjectStore, StoreError, StoreRefused
from headrace.remote.store_options import options_from
from headrace.remote.tier_status import TierStatus
from headrace.replication.fetchers import Fetchers
from headrace.replication.replicas import Replicas
from headrace.surroundings import new_random
from headrace.tier.metadata_manager import MetadataWaits
from headrace.tier.metadata_service import MetadataService, StartSettings
from headrace.tier.read_limits import ReadLimits
from headrace.tier.reading import RemoteReader
from headrace.tier.snapshots import MetadataSnapshots
from headrace.tier.status import describe_tier
from headrace.tier.tier import Surroundings, Tier
from headrace.tier.tier_log import TierLog
from headrace.tier.topic_event_log import CLIENT_SETTINGS, TopicEventLog

CLAIM_SECONDS: Final = 10
"""How long a start waits for a store that does not respond."""
CLAIM_RETRY_SECONDS: Final = 5

logger = logging.getLogger(__name__)


class CannotUseTier(HeadraceError):
    """The store of the tier is another cluster's, or refuses this node."""


class NodeTier:
    """The parts of a node that have to do with the tier."""

    def __init__(  # noqa: PLR0913  what a node has before its tier
        self,
        node_id: BrokerId,
        live: LiveSettings,
        quorum: MetadataQuorum,
        disk: Disk,
        clock: Clock,
        *,
        store: ObjectStore | None = None,
        bootstrap: Callable[[], str],
        create_topic: Callable[[], Awaitable[None]],
        checkpoint: Callable[[], Awaitable[None]],
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        """`bootstrap` returns this node's own address, once it listens.

        `create_topic` creates the topic of the metadata, `checkpoint` makes the starts of logs
        durable, `security` lets this node in on its own listener. A `store` other than the
        configured one is for tests, which close it themselves.
        """
        self._live = live
        self._quorum = quorum
        self._clock = clock
        self._node_id = node_id
        self._started_ms = clock.now_ms()
        self._tasks = Tasks()
        self.is_claimed = asyncio.Event()
        """Set when the store is known to be this cluster's."""
        self._is_own_store = store is None
        self.store = store or open_store(live[config.TIER_STORE], options_from(live))
        self.objects = SegmentObjects(self.store)

        async def create_when_claimed() -> None:
            # The topic tells that there was a store: see `_claim`.
            await self.is_claimed.wait()
            await create_topic()

        self.metadata_service = MetadataService(
            lambda: TopicEventLog(
                bootstrap, create_when_claimed, settings=replace(CLIENT_SETTINGS, security=security)
            ),
            MetadataSnapshots(disk),
            MetadataWaits(
                consume_wait_ms=live[config.RLMM_CONSUME_WAIT_MS],
                snapshot_interval_ms=live[config.TIER_SNAPSHOT_INTERVAL_MS],
            ),
            StartSettings(
                retry_interval_ms=live[config.RLMM_INITIALIZATION_RETRY_INTERVAL_MS],
                retry_timeout_ms=live[config.RLMM_INITIALIZATION_RETRY_MAX_TIMEOUT_MS],
            ),
        )
        metadata = self.metadata_service.metadata
        self.reader = RemoteReader(
            metadata, self.objects, disk, read_limits(live), now_ms=clock.now_ms
        )
        live.on_changed.append(lambda: self.reader.configure(read_limits(live)))
        self.log = TierLog(
            metadata, self.reader, self.objects, lambda: live[config.TIER_DROP_UNCOPIED]
        )
        self.tier = Tier(
            node_id,
            live,
            metadata,
            self.objects,
            Surroundings(
                now_ms=clock.now_ms,
                image_of=lambda: quorum.image,
                read_image=self._read_image,
                checkpoint=checkpoint,
                random=new_random(),
            ),
        )

    def describe(self) -> Slices[TierStatus]:
        """Return what there is to say about the tier."""
        return describe_tier(
            self._node_id,
            self.tier,
            self.reader,
            self.metadata_service.manager,
            self._clock.now_ms() - self._started_ms,
        )

    def attach(self, replicas: Replicas, fetchers: Fetchers) -> None:
        """Hear of the partitions of this node."""
        self.tier.is_starting = True
        self.tier.adopter.start_cut = fetchers.finish_cut
        self.tier.on_left.append(self.reader.forget)
        replicas.listeners.append(self.tier)
        replicas.before_deletion.append(self.tier.abandon)

    async def claim(self) -> None:
        """Make sure that the store is this cluster's; raise CannotUseTier if it is not.

        A store that does not respond is asked again later; nothing is copied before.
        """
        try:
            async with asyncio.timeout(CLAIM_SECONDS):
                await self._claim()
        except StoreRefused as error:
            raise CannotUseTier(f"{config.TIER_STORE.name}: {error}") from error
        except (StoreError, TimeoutError) as error:
            why = str(error) or f"nothing came for {CLAIM_SECONDS} seconds"
            logger.warning(
                "the store of the tier does not respond (%s); it is asked again every %d seconds",
                *(why, CLAIM_RETRY_SECONDS),
            )
            self.tier.store_problem = f"the store does not respond: {why}"
            self._tasks.start(self._claim_later())

    async def _claim(self) -> None:
        cluster_id = self._quorum.image.state.cluster_id
        if self._quorum.image.topic(REMOTE_METADATA_TOPIC) is None:
            await claim(self.store, cluster_id, self._clock.now_ms())
        else:  # there was a store before: a folder that is not mounted must not become one
            await check(self.store, cluster_id)
        self.is_claimed.set()
        self.tier.store_problem = None

    async def _claim_later(self) -> None:
        reported = ""
        while not self.is_claimed.is_set():
            await asyncio.sleep(CLAIM_RETRY_SECONDS)
            try:
                await self._claim()
            except StoreError as error:
                self.tier.store_problem = f"the store cannot be used: {error}"
                if isinstance(error, StoreRefused) and str(error) != reported:
                    reported = str(error)
                    logger.error("nothing is copied to the tier: %s", error)
        logger.info("the store of the tier responds")

    def start(self) -> None:
        """Begin, when this node serves clients: it is one of them."""
        self.metadata_service.start()
        self.tier.watch()
        self._tasks.start(self._start_moving())

    async def _start_moving(self) -> None:
        """Copy and delete from now on if the store is ours."""
        await self.is_claimed.wait()
        self.tier.start()

    async def stop(self) -> None:
        """Stop; on return nothing of the tier uses a log or the disk."""
        await self._tasks.stop()
        await self.tier.stop()
        await self.metadata_service.stop()
        await self.reader.close()
        if self._is_own_store:
            await self.store.close()

    def crash(self) -> None:
        """Fall silent at once, like a killed process."""
        self.metadata_service.crash()

    async def _read_image(self) -> Image:
        await self._quorum.catch_up()
        return self._quorum.image


def read_limits(settings: LiveSettings) -> ReadLimits:
    """Return what reading from the tier may use, by the settings."""
    return ReadLimits(
        chunk_bytes=settings[config.TIER_CHUNK_BYTES],
        chunk_cache_bytes=settings[config.TIER_CHUNK_CACHE_BYTES],
        read_ahead_bytes_max=settings[config.TIER_READ_AHEAD_MAX_BYTES],
        fill_bytes_max=settings[config.TIER_FILL_BUDGET_BYTES],
        fills_max=settings[config.REMOTE_LOG_READER_THREADS],
        pending_max=settings[config.REMOTE_LOG_READER_MAX_PENDING_TASKS],
        index_cache_bytes=settings[config.REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES],
        index_ttl_ms=settings[config.REMOTE_LOG_INDEX_FILE_CACHE_TTL_MS],
        bytes_per_second=settings[config.REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND],
        quota_windows=settings[config.REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_NUM],
        quota_window_ms=settings[config.REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_SIZE_SECONDS] * 1000,
        inflated_bytes_max=settings[config.INFLATED_BATCH_MAX_BYTES],
    )
