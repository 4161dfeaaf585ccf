"""The events of the tier, as tools and Spark read them: `__remote_log_metadata` of a cluster.

Brokers follow this topic (KIP-405). A tool reads it once from its beginning to its end, and may
add legal steps to it, as a broker would.
"""

from collections.abc import Iterable
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.consumer import Consumer
from headrace.client.offsets import Start
from headrace.client.producer import Producer
from headrace.client.settings import ConsumerSettings
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import REMOTE_METADATA_TOPIC
from headrace.remote.events import UnreadableEvent, decode_event, encode_event
from headrace.remote.inventory import Known
from headrace.remote.placement import metadata_partition
from headrace.remote.segments import MetadataEvent, PartitionKey, RemoteSegment

_LIMITS: Final = ConsumerSettings(partition_max_bytes=8 * 1024 * 1024)


class RemoteLogTopic:
    """The metadata topic of a cluster's tier."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def exists(self) -> bool:
        """Return whether the cluster has a tier that was used."""
        self._cluster.forget(REMOTE_METADATA_TOPIC)
        try:
            await self._cluster.topic(REMOTE_METADATA_TOPIC)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return False
        return True

    async def read(self, keys: Iterable[PartitionKey] | None = None) -> Known:
        """Return what all events say that were written before the call.

        With `keys` only the partitions of the topic are read that have events of these; what they
        have of others is in the result, too.
        """
        known = Known()
        if not await self.exists():
            return known
        count = len((await self._cluster.topic(REMOTE_METADATA_TOPIC)).partitions)
        wanted = None if keys is None else {metadata_partition(key, count) for key in keys}
        async with Consumer(self._cluster, limits=_LIMITS) as consumer:
            await consumer.assign(REMOTE_METADATA_TOPIC, Start.BEGINNING, wanted, until_end=True)
            while records := await consumer.poll():
                for record in records:
                    try:
                        known.apply(decode_event(record.value or b""))
                    except UnreadableEvent as error:
                        known.refused.append(
                            f"{REMOTE_METADATA_TOPIC}-{record.partition}, offset "
                            f"{record.offset}: {error}"
                        )
        return known

    async def publish(self, *events: MetadataEvent) -> None:
        """Write events in order; they are durable on return, and brokers apply them soon.

        An event that brokers would refuse is published nevertheless: check it first.
        """
        topic = await self._cluster.topic(REMOTE_METADATA_TOPIC)
        async with Producer(self._cluster) as producer:
            for event in events:
                key = event.key if isinstance(event, RemoteSegment) else event.partition.key
                partition = metadata_partition(key, len(topic.partitions))
                await producer.send(REMOTE_METADATA_TOPIC, encode_event(event), partition=partition)
