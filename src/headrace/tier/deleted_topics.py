"""Deleting what topics that were deleted have left in the tier.

The leader of a partition of the metadata topic sweeps the partitions whose events are in it:
marked, started, every segment, finished. Each step is an event, so whoever leads next goes on with
it, and nothing is forgotten in a crash. A copy that was under way when the topic was deleted is
refused from the mark on, and deleted like the others.

A topic that is missing in the image may just be too new for it: first the image catches up with the
quorum.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from headrace.ids import BrokerId
from headrace.metadata.image import Image
from headrace.remote.segments import DeleteState, PartitionDelete, TopicIdPartition
from headrace.tier.ports import NotReady
from headrace.tier.removing import Remover
from headrace.tier.swappable import LedMetadata
from headrace.tier.topic_manifests import TopicManifests

LOOKED_AT_A_TURN: Final = 500

logger = logging.getLogger(__name__)


class DeletedTopics:
    """Sweeps the partitions of deleted topics."""

    def __init__(
        self,
        node_id: BrokerId,
        metadata: LedMetadata,
        remover: Remover,
        manifests: TopicManifests,
        *,
        image_of: Callable[[], Image],
        read_image: Callable[[], Awaitable[Image]],
        now_ms: Callable[[], int],
    ) -> None:
        self.swept = 0
        """How many partitions are gone for good."""
        self._node_id = node_id
        self._metadata = metadata
        self._remover = remover
        self._manifests = manifests
        self._image_of = image_of
        self._read_image = read_image
        self._now_ms = now_ms

    async def sweep(self, metadata_partitions: Iterable[int]) -> None:
        """Delete what is left of deleted topics in these partitions of the metadata.

        One that fails does not keep the others; the first error is raised at the end.
        """
        missing = []
        for index in metadata_partitions:
            try:
                known = self._metadata.keys_in(index)
            except NotReady:
                continue
            missing += await self._find_missing(known, self._image_of())
        if not missing:
            return
        missing = await self._find_missing(missing, await self._read_image())
        errors = []
        for partition in missing:
            try:
                await self._delete(partition)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    async def _find_missing(
        self, partitions: list[TopicIdPartition], image: Image
    ) -> list[TopicIdPartition]:
        found = []
        for number, partition in enumerate(partitions, 1):
            if image.topic_by_id(partition.topic_id) is None:
                found.append(partition)
            if number % LOOKED_AT_A_TURN == 0:
                await asyncio.sleep(0)
        return found

    async def _delete(self, partition: TopicIdPartition) -> None:
        state = self._metadata.delete_state(partition.key)
        if state is None:
            await self._step(partition, DeleteState.MARKED)
        if state is not DeleteState.STARTED:
            await self._step(partition, DeleteState.STARTED)
        segments = self._metadata.segments(partition.key)
        await self._remover.delete(segments)
        if left := len(self._metadata.segments(partition.key)):
            logger.debug("%s: %d segments stay for now, as they are read", partition.text, left)
            return
        await self._manifests.delete(partition.topic_id)
        await self._step(partition, DeleteState.FINISHED)
        self.swept += 1
        logger.info("%s: all %d segments are deleted from the tier", partition.text, len(segments))

    async def _step(self, partition: TopicIdPartition, state: DeleteState) -> None:
        await self._metadata.delete_partition(
            PartitionDelete(partition, self._now_ms(), state, self._node_id)
        )
