"""A node's tier in numbers, for tools and metrics."""

from headrace.ids import BrokerId
from headrace.loop.slices import Slice, Slices
from headrace.remote.tier_status import PartitionStatus, TierStatus, Work
from headrace.tier.metadata_manager import TopicMetadata
from headrace.tier.reading import RemoteReader
from headrace.tier.tier import Tier
from headrace.tier.tiered_partition import TieredPartition


def describe_tier(
    node_id: BrokerId,
    tier: Tier,
    reader: RemoteReader,
    manager: TopicMetadata | None,
    uptime_ms: int,
) -> Slices[TierStatus]:
    """Return what there is to say, some partitions per slice."""
    current = Slice()
    rows = []
    for tiered in tier:
        rows.append(describe_partition(tier, tiered))
        if current.spend(10):
            yield
    counts = tier.objects.counts
    copier, remover = tier.copier, tier.remover
    return TierStatus(
        node=node_id,
        store=tier.objects.store.url,
        uptime_ms=uptime_ms,
        copied=Work(copier.requests, copier.errors, copier.copied_bytes),
        deleted=Work(remover.requests, remover.errors, remover.deleted_bytes),
        fetched=Work(reader.request_count, reader.error_count, reader.byte_count),
        puts=counts.puts,
        gets=counts.gets,
        deletes=counts.deletes,
        lists=counts.lists,
        put_bytes=counts.put_bytes,
        get_bytes=counts.get_bytes,
        store_errors=counts.errors,
        known_segments=0 if manager is None else manager.segment_count,
        refused_events=0 if manager is None else manager.refused_count,
        swept_partitions=tier.deleted_topics.swept,
        leased=remover.leased,
        problems=_problems(tier, manager),
        partitions=tuple(rows),
    )


def describe_partition(tier: Tier, tiered: TieredPartition) -> PartitionStatus:
    """Return what there is to say about a partition."""
    log = tiered.partition.log
    lag_segments, lag_bytes = tiered.copy_lag() if tiered.is_leader else (0, 0)
    return PartitionStatus(
        topic=tiered.id.topic,
        partition=tiered.id.index,
        is_leader=tiered.is_leader,
        is_ready=tier.metadata.is_ready(tiered.key),
        start_offset=log.start_offset,
        local_start_offset=tiered.disk_start,
        remote_end_offset=log.remote_end_offset,
        end_offset=log.end_offset,
        remote_segments=tiered.remote_count,
        remote_bytes=tiered.remote_bytes,
        local_bytes=log.size_bytes,
        lag_segments=lag_segments,
        lag_bytes=lag_bytes,
        delete_segments=tiered.delete_lag[0],
        delete_bytes=tiered.delete_lag[1],
        dropped_bytes=log.uncopied_bytes_dropped,
        is_copying=tiered.copying is not None,
        problem=tier.adopters.error_of(tiered)
        or tier.adopter.trouble_of(tiered)
        or tier.copiers.error_of(tiered)
        or tier.expirers.error_of(tiered),
    )


def _problems(tier: Tier, manager: TopicMetadata | None) -> tuple[str, ...]:
    found = [
        each
        for each in (tier.store_problem, tier.sweep_error, tier.orphan_error)
        if each is not None
    ]
    if manager is None:
        return ("the metadata of the tier has not started yet", *found)
    return (*manager.troubles, *found)
