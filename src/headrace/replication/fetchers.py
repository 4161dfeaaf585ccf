"""The fetchers of a node: one for each leader that it follows, or num.replica.fetchers.

    fetchers = Fetchers(node_id, live, image_of, peers, clock, folder=folder, counters=counters)
    replicas.listeners.append(fetchers)
    replicas.before_deletion.append(fetchers.abandon)
    ...
    await fetchers.stop()                       # before the logs are closed

A partition goes to a fetcher by the hash of its topic id and index, and to another one whenever its
leader or leader epoch changes: what is in flight for the former epoch does not count any more.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol
from zlib import crc32

from headrace import config
from headrace.config import LiveSettings
from headrace.errors import KafkaError
from headrace.ids import BrokerId
from headrace.log.folder import LogFolder
from headrace.log.log import Log
from headrace.log.truncating import Cut, begin_truncation
from headrace.loop.clock import Clock
from headrace.loop.counters import Counters
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER
from headrace.replication.cuts import Cuts
from headrace.replication.fetcher import Fetcher
from headrace.replication.followed import Around, Followed, Line
from headrace.replication.partition import Partition
from headrace.replication.remote_log import RemoteLog
from headrace.replication.throttles import Throttle

PURPOSE: Final = "replication"
"""The lines to other brokers have this name and a number."""
MOVED_A_TURN: Final = 500
"""How many partitions go to another fetcher in one turn of the loop."""

logger = logging.getLogger(__name__)


class Lines(Protocol):
    """Connections to other brokers (`headrace.cluster.peers.BrokerPeers`)."""

    def line(
        self,
        purpose: str,
        *,
        request_timeout_ms: int | None = None,
        receive_buffer_bytes: int = -1,
    ) -> Line: ...


class Fetchers:
    """Follows the leaders of this node's partitions (`replicas.RoleListener`)."""

    def __init__(  # noqa: PLR0913  what surrounds a node's fetchers
        self,
        node_id: BrokerId,
        settings: LiveSettings,
        image_of: Callable[[], Image],
        peers: Lines,
        clock: Clock,
        *,
        folder: LogFolder,
        counters: Counters,
        remote: RemoteLog,
        throttle: Throttle,
    ) -> None:
        self._settings = settings
        self._peers = peers
        self._cuts = Cuts(folder)
        self._around = Around(
            node_id, settings, image_of, clock, counters, self._cuts, remote, throttle
        )
        self._followed: dict[Partition, Followed] = {}
        self._fetchers: dict[tuple[BrokerId, int], Fetcher] = {}
        self.count = settings[config.NUM_REPLICA_FETCHERS]
        """How many fetchers share the partitions of one leader."""
        self._unmoved: deque[Partition] = deque()
        """Partitions to be distributed anew."""
        self._is_closed = False
        settings.on_changed.append(self._on_settings_changed)

    def __iter__(self) -> Iterator[Followed]:
        """Iterate over the partitions that are followed."""
        return iter(self._followed.values())

    @property
    def lag_max(self) -> int:
        """How many committed records a partition here lacks at most, as far as known."""
        return max((followed.lag for followed in self._followed.values()), default=0)

    # Roles

    def on_leading(self, partition: Partition) -> None:
        self._drop(partition)
        partition.log.doubtful_offset = None  # nobody has more

    def on_following(self, partition: Partition) -> None:
        self._drop(partition)
        if self._is_closed or partition.leader in (NO_LEADER, self._around.node_id):
            return
        cutting = self._cuts.running(partition.log)
        if cutting is None and not partition.log.is_being_cut:
            try:
                cutting = self._begin_cut(partition)
            except KafkaError as error:
                logger.error("%s is not followed: %s", partition.name, error.message)
                return
        followed = self._followed[partition] = Followed(partition)
        fetcher = self._fetcher_of(followed)
        if cutting is not None:
            followed.follower.work()
        fetcher.add(followed)
        if cutting is not None:
            fetcher.wait_for(followed, cutting)

    def _begin_cut(self, partition: Partition) -> "asyncio.Task[bool] | None":
        """Begin to cut off what is wrong whatever the leader has; raise KafkaError if that fails.

        An epoch that this node began as the leader, without a record, is not the leader's. And
        after a crash a compacted log may lack records before others, which no leader would notice.
        """
        log, offset = partition.log, partition.log.end_offset
        if log.doubtful_offset is not None:
            offset = max(log.doubtful_offset, log.local_start_offset)
            logger.warning(
                "%s may lack records from offset %d on, as it was not closed: fetching them again",
                *(partition.name, offset),
            )
        cut = begin_truncation(log, offset)
        log.doubtful_offset = None
        return None if cut is None else self._cuts.start(partition, cut)

    def finish_cut(self, partition: Partition, cut: Cut) -> "asyncio.Task[bool]":
        """Finish a cut that its leader began; the task says whether that succeeded."""
        return self._cuts.start(partition, cut)

    def on_stopped(self, partition: Partition, *, is_deleted: bool) -> None:
        self._drop(partition)

    def _drop(self, partition: Partition) -> None:
        followed = self._followed.pop(partition, None)
        if followed is not None and followed.fetcher is not None:
            followed.fetcher.remove(followed)

    # Fetchers

    def _fetcher_of(self, followed: Followed) -> Fetcher:
        topic_id, index = followed.key
        key = followed.partition.leader, (crc32(topic_id) + index) % self.count
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            line = self._peers.line(
                f"{PURPOSE}-{key[1]}",
                request_timeout_ms=self._settings[config.REPLICA_SOCKET_TIMEOUT_MS],
                receive_buffer_bytes=self._settings[config.REPLICA_SOCKET_RECEIVE_BUFFER_BYTES],
            )
            fetcher = self._fetchers[key] = Fetcher(key[0], line, self._around)
        return fetcher

    def _on_settings_changed(self) -> None:
        """Distribute the partitions anew if there are to be more fetchers, or fewer."""
        count = self._settings[config.NUM_REPLICA_FETCHERS]
        if count == self.count or self._is_closed:
            return
        self.count = count
        if not self._unmoved:
            asyncio.get_running_loop().call_soon(self._move_some)
        self._unmoved = deque(self._followed)

    def _move_some(self) -> None:
        """Move some partitions to the fetchers that they belong to now."""
        if self._is_closed:
            return
        for _ in range(min(len(self._unmoved), MOVED_A_TURN)):
            partition = self._unmoved.popleft()
            if partition in self._followed:
                self.on_following(partition)
        if self._unmoved:
            asyncio.get_running_loop().call_soon(self._move_some)
            return
        for key in [key for key in self._fetchers if key[1] >= self.count]:
            self._fetchers.pop(key).close()

    async def abandon(self, log: Log) -> None:
        """Return when no thread works on a log's files: they are to be deleted."""
        await self._cuts.abandon(log)

    def close(self) -> None:
        """Stop fetching; truncations that are under way go on."""
        self._is_closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._followed.clear()

    async def stop(self) -> None:
        """Stop fetching; on return no thread works on a log any more."""
        self.close()
        tasks = [fetcher.task for fetcher in self._fetchers.values()]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._cuts.stop()
