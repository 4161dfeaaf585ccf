"""Mirrors that become topics of their own: the end of a migration.

A transaction that is open at the source when the mirror ends has no marker in the target. Readers
of committed records would wait for it forever, so a promotion refuses, or aborts it.
"""

from collections.abc import Sequence

import msgspec

from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.configs import ConfigSource, Resource
from headrace.client.mirror.choice import InvalidChoice
from headrace.client.mirror.raw import extents
from headrace.client.outcomes import values_of
from headrace.client.topics import TopicPartition
from headrace.config.topic import MIRROR_SOURCE
from headrace.errors import KafkaError


class Promoted(msgspec.Struct, frozen=True):
    """A topic that is its own now."""

    topic: str
    source: str
    """What it was a mirror of."""
    aborted: int
    """How many open transactions were aborted, one for each partition that they were in."""


class _Open(msgspec.Struct, frozen=True):
    partition: TopicPartition
    producer_id: int


async def promote(
    admin: Admin, topic: str, *, source: Cluster | None, aborts_open: bool, is_forced: bool
) -> Promoted:
    """Open a mirror to producers; raise InvalidChoice if it is not ready.

    With `source`, everything that it has must be copied, unless `is_forced`.

    A mirror that still runs may copy another transaction until the topic is its own: it is aborted
    as well, or the error says where it is, as nobody else would end it.
    """
    mirrored = await mirror_source(admin, topic)
    if mirrored is None:
        raise InvalidChoice(f"topic {topic!r} is not a mirror, so it needs no promotion")
    known = await admin.describe_topic(topic)
    partitions = [TopicPartition(topic, each.index) for each in known.partitions]
    if source is not None and not is_forced:
        await _check_lag(admin.cluster, source, partitions)
    opened = await _open_transactions(admin, partitions)
    if opened and not aborts_open:
        raise InvalidChoice(
            f"transactions are open in {_places(opened)}: let them end at the source and be "
            "copied, or abort them here with --abort-open"
        )
    await admin.alter_configs(Resource.topic(topic), unset=[MIRROR_SOURCE.name])
    left = await _open_transactions(admin, partitions)
    if left and not aborts_open:
        raise InvalidChoice(
            f"{topic} is promoted, but a mirror that still ran has copied transactions meanwhile "
            f"that are open in {_places(left)}: `headrace txn abort` ends them"
        )
    for each in left:
        await admin.abort_hanging_transaction(each.partition, each.producer_id)
    return Promoted(topic, mirrored, len(left))


def _places(opened: Sequence[_Open]) -> str:
    return ", ".join(sorted({str(each.partition) for each in opened}))


async def mirror_source(admin: Admin, topic: str) -> str | None:
    """Return what a topic is a mirror of, None if it is not one; KafkaError without the topic."""
    resource = Resource.topic(topic)
    rows = values_of(await admin.describe_configs([resource], names=[MIRROR_SOURCE.name]))
    for row in rows[resource]:
        if row.source is ConfigSource.DYNAMIC_TOPIC_CONFIG:
            return row.value
    return None


async def _open_transactions(admin: Admin, partitions: Sequence[TopicPartition]) -> list[_Open]:
    found = values_of(await admin.describe_producers(partitions))
    return [
        _Open(partition, row.producer_id)
        for partition, rows in found.items()
        for row in rows
        if row.transaction_start_offset >= 0
    ]


async def _check_lag(
    target: Cluster, source: Cluster, partitions: Sequence[TopicPartition]
) -> None:
    ours, theirs = await extents(target, partitions), await extents(source, partitions)
    for partition in partitions:
        here, there = ours[partition], theirs[partition]
        if isinstance(here, KafkaError) or isinstance(there, KafkaError):
            raise here if isinstance(here, KafkaError) else there  # type: ignore[misc]
        if there.end > here.end:
            raise InvalidChoice(
                f"{partition} ends at {here.end}, the source at {there.end}: stop the producers "
                "and let the mirror catch up, or leave the rest behind with --force"
            )
