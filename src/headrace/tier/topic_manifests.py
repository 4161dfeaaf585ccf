"""Keeping the descriptions of tiered topics in the store up to date (`remote.topic_manifest`).

The leaders of its partitions do so, once the tier has something of theirs. An object is never
changed in place by the tier, with this exception: the last one written counts, and each of them is
whole.

Whoever deletes what a deleted topic has left deletes its description, too. A leader that has not
heard of the deletion may write it again after that, so it asks the quorum afterwards.
"""

from collections.abc import Awaitable, Callable

from headrace.ids import TopicId, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import ResourceType
from headrace.remote.layout import topic_key
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.store import NoSuchObject
from headrace.remote.topic_manifest import (
    TopicManifest,
    UnreadableManifest,
    decode_manifest,
    describe_topic,
    encode_manifest,
)


class TopicManifests:
    """The descriptions of topics of which this node leads a partition."""

    def __init__(
        self,
        objects: SegmentObjects,
        now_ms: Callable[[], int],
        *,
        image_of: Callable[[], Image],
        read_image: Callable[[], Awaitable[Image]],
    ) -> None:
        """`read_image` returns the image after all that the quorum has decided so far."""
        self._objects = objects
        self._now_ms = now_ms
        self._image_of = image_of
        self._read_image = read_image
        self._written: dict[TopicId, TopicManifest] = {}
        self._unchecked: set[TopicId] = set()
        """Those that were written, perhaps after their topic was deleted."""

    def is_due(self, topic: TopicName) -> bool:
        """Return whether a topic has changed since it was described."""
        current = self._describe(topic)
        return current is not None and not current.says_the_same(self._written.get(current.id))

    async def write(self, topic: TopicName) -> None:
        """Describe a topic in the store, unless that is so already; raise StoreError."""
        current = self._describe(topic)
        if current is None or current.says_the_same(self._written.get(current.id)):
            return
        key = topic_key(current.id)
        store = self._objects.store
        if current.id not in self._written:
            try:
                known = decode_manifest(bytes(await store.get(key)), key)
            except (NoSuchObject, UnreadableManifest):
                known = None
            if current.says_the_same(known):
                self._written[current.id] = current
                return
        data = encode_manifest(current)
        self._unchecked.add(current.id)
        await store.put(key, data, len(data))
        self._written[current.id] = current
        await self.check_written()

    async def check_written(self) -> None:
        """Delete what was written of topics that are deleted; raise StoreError or KafkaError."""
        if not self._unchecked:
            return
        written = sorted(self._unchecked)
        image = await self._read_image()
        for topic_id in written:
            if image.topic_by_id(topic_id) is None:
                await self.delete(topic_id)
            self._unchecked.discard(topic_id)

    async def delete(self, topic_id: TopicId) -> None:
        """Forget a topic that is gone."""
        self._written.pop(topic_id, None)
        await self._objects.store.delete([topic_key(topic_id)])

    def forget(self, topic_id: TopicId) -> None:
        """Look again before the next time: another node may have written it meanwhile."""
        self._written.pop(topic_id, None)

    def _describe(self, name: TopicName) -> TopicManifest | None:
        image = self._image_of()
        topic = image.topic(name)
        if topic is None:
            return None
        return describe_topic(
            topic.topic_id,
            name,
            len(topic.partitions),
            dict(sorted(image.configs(ResourceType.TOPIC, name).items())),
            self._now_ms(),
        )
