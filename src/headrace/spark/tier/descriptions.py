"""The segments to read, from the brokers' events or from the store alone, under a lease.

The lease is written before the descriptions are read: what they show as finished is not deleted
then (see `remote.leases`).
"""

import re
from collections.abc import Iterable

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.remote_log import RemoteLogTopic
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import PartitionIndex, TopicId, TopicName, topic_id_text
from headrace.remote.coverage import Coverage, cover_log
from headrace.remote.leases import Lease, whole_topic, write_lease
from headrace.remote.reconstruction import Found, list_segments, read_segments
from headrace.remote.segments import RemoteSegment, SegmentState
from headrace.remote.store import ObjectStore, StoreRefused
from headrace.spark.lookup import find_topics
from headrace.spark.offsets import describe
from headrace.spark.options import InvalidOption
from headrace.spark.read_options import Subscription
from headrace.spark.tier.options import TierOptions
from headrace.surroundings import clocks, new_uuid


class Described(msgspec.Struct):
    """What there is to read."""

    partitions: dict[TopicPartition, Coverage]
    topic_ids: dict[str, TopicId]
    lease: Lease | None


async def describe_with_brokers(
    cluster: Cluster, store: ObjectStore, options: TierOptions
) -> Described:
    """Return what the events of a cluster say of the topics."""
    found = await find_topics(cluster, options.subscription)
    ids = {name: TopicId(found.id_of(name)) for name in found.topics}
    for name, topic_id in ids.items():
        if options.topic_id and topic_id_text(topic_id) != options.topic_id:
            raise InvalidOption(
                f"option 'topicId': topic {name!r} of the cluster has the id "
                f"{topic_id_text(topic_id)}; leave 'kafka.bootstrap.servers' out to read another"
            )
    lease = await take_lease(store, ids, options.lease_ms)
    keys = {(ids[each.topic], PartitionIndex(each.partition)): each for each in found.partitions}
    known = await RemoteLogTopic(cluster).read(keys)
    return Described(
        {
            each: _coverage(known.cache.segments(key))
            for key, each in keys.items()
            if key not in known.deletions
        },
        ids,
        lease,
    )


async def describe_from_store(store: ObjectStore, options: TierOptions) -> Described:
    """Return what the store itself shows of the topics."""
    subscription = options.subscription
    names = None if subscription.pattern else [TopicName(each) for each in subscription.names]
    ids = _choose(await list_segments(store, names), subscription, options.topic_id)
    lease = await take_lease(store, ids, options.lease_ms)
    # Again, now that deletion sees the lease: what is complete here stays.
    listed = await list_segments(store, [TopicName(name) for name in ids])
    chosen = set(ids.values())
    wanted = {segment: kinds for segment, kinds in listed.items() if segment[0][0] in chosen}
    partitions = {
        TopicPartition(segments[0].partition.topic, key[1]): _coverage(segments)
        for key, segments in (await read_segments(store, wanted)).items()
    }
    if subscription.assigned:
        missing = set(subscription.assigned).difference(partitions)
        if missing:
            raise InvalidOption(
                f"option 'assign' names {describe(missing)}, which the tier has not"
            )
        partitions = {each: partitions[each] for each in subscription.assigned}
    return Described(partitions, ids, lease)


async def take_lease(
    store: ObjectStore, topic_ids: dict[str, TopicId], lease_ms: int
) -> Lease | None:
    """Write a lease on whole topics; None if the user wants none."""
    if not lease_ms or not topic_ids:
        return None
    lease = Lease(
        id=str(new_uuid()),
        holder=f"Spark read of {', '.join(sorted(topic_ids))}",
        expires_ms=clocks().time_ns() // 1_000_000 + lease_ms,
        topics=tuple(whole_topic(topic_id, name) for name, topic_id in topic_ids.items()),
    )
    try:
        await write_lease(store, lease)
    except StoreRefused as error:
        raise InvalidOption(
            f"the lease that keeps deletion away cannot be written: {error}; allow this reader to "
            "write below .headrace/leases/, or set lease=false if nothing is deleted meanwhile"
        ) from None
    return lease


def _choose(found: Found, subscription: Subscription, topic_id: str) -> dict[str, TopicId]:
    """Return the id of each topic; a name with several needs the user's choice."""
    matches = re.compile(subscription.pattern).fullmatch if subscription.pattern else None
    ids: dict[str, set[TopicId]] = {}
    for kinds in found.values():
        _, key = next(iter(kinds.values()))
        name: str = key.partition.topic
        if (matches is None or matches(name)) and (
            not topic_id or topic_id_text(key.partition.topic_id) == topic_id
        ):
            ids.setdefault(name, set()).add(key.partition.topic_id)
    for named in subscription.names:
        if named not in ids:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the tier has no complete segment of topic {named!r}"
                + (f" with the id {topic_id}" if topic_id else ""),
            )
    for topic, several in ids.items():
        if len(several) > 1:
            texts = ", ".join(sorted(map(topic_id_text, several)))
            raise InvalidOption(
                f"the tier has {len(several)} topics of the name {topic!r}: say which one with the "
                f"option 'topicId' ({texts}), or name a broker, which knows the current one"
            )
    return {name: min(several) for name, several in ids.items()}


def _coverage(segments: Iterable[RemoteSegment]) -> Coverage:
    return cover_log(each for each in segments if each.state is SegmentState.COPY_FINISHED)
