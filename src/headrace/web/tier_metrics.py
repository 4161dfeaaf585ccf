"""Metrics of the tier, by topic where that is bounded."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.loop.slices import Slice
from headrace.web.families import PAUSE, Collected, counter, counters, gauge, gauges

if TYPE_CHECKING:
    from headrace.node.node_tier import NodeTier
    from headrace.remote.tier_status import PartitionStatus

TOPICS_MAX: Final = 200
"""How many topics get their own rows: those with the most bytes in the tier and on the way."""
OTHERS: Final = "(others)"
LABELS: Final = ("topic",)
_LAGS: Final[tuple[tuple[str, str, "Callable[[PartitionStatus], int]"], ...]] = (
    (
        "headrace_tier_segments",
        "Segments in the tier, of partitions that this node leads (RemoteLogMetadataCount)",
        lambda row: row.remote_segments,
    ),
    (
        "headrace_tier_bytes",
        "Bytes in the tier, of partitions that this node leads (RemoteLogSizeBytes)",
        lambda row: row.remote_bytes,
    ),
    (
        "headrace_tier_copy_lag_segments",
        "Finished segments that are not in the tier yet (RemoteCopyLagSegments)",
        lambda row: row.lag_segments,
    ),
    (
        "headrace_tier_copy_lag_bytes",
        "Bytes of finished segments that are not in the tier yet (RemoteCopyLagBytes)",
        lambda row: row.lag_bytes,
    ),
    (
        "headrace_tier_delete_lag_segments",
        "Segments that are being deleted from the tier (RemoteDeleteLagSegments)",
        lambda row: row.delete_segments,
    ),
    (
        "headrace_tier_delete_lag_bytes",
        "Bytes of segments that are being deleted from the tier (RemoteDeleteLagBytes)",
        lambda row: row.delete_bytes,
    ),
    (
        "headrace_tier_dropped_bytes",
        "Bytes that headrace.tier.drop.uncopied let go from the disk without a copy in the tier",
        lambda row: row.dropped_bytes,
    ),
)


def tier_metrics(node_tier: "NodeTier | None") -> Collected:
    """Yield the metrics of a node's tier; none if it has no tier."""
    if node_tier is None:
        return
    # Here, as a node without a tier loads nothing of it.
    from headrace.tier.status import describe_partition  # noqa: PLC0415

    tier, reader = node_tier.tier, node_tier.reader
    current = Slice()
    rows = []
    for tiered in tier:
        rows.append(describe_partition(tier, tiered))
        if current.spend(10):
            yield PAUSE
    by_topic = _by_topic(rows)
    for column, (name, meaning, _) in enumerate(_LAGS):
        yield gauges(
            name,
            meaning,
            [((topic,), values[column]) for topic, values in by_topic.items()],
            labels=LABELS,
        )
    copier, remover, counts = tier.copier, tier.remover, tier.objects.counts
    yield counter(
        "headrace_tier_copied_bytes",
        "Bytes of segments copied to the tier (BrokerTopicMetrics RemoteCopyBytesPerSec)",
        copier.copied_bytes,
    )
    yield counter(
        "headrace_tier_copies",
        "Copies of segments that were begun (BrokerTopicMetrics RemoteCopyRequestsPerSec)",
        copier.requests,
    )
    yield counter(
        "headrace_tier_copy_errors",
        "Copies that failed; they are made again (BrokerTopicMetrics RemoteCopyErrorsPerSec)",
        copier.errors,
    )
    yield counter(
        "headrace_tier_fetched_bytes",
        "Bytes of records read from the tier (BrokerTopicMetrics RemoteFetchBytesPerSec)",
        reader.byte_count,
    )
    yield counter(
        "headrace_tier_fetches",
        "Reads from the tier (BrokerTopicMetrics RemoteFetchRequestsPerSec)",
        reader.request_count,
    )
    yield counter(
        "headrace_tier_fetch_errors",
        "Reads from the tier that failed (BrokerTopicMetrics RemoteFetchErrorsPerSec)",
        reader.error_count,
    )
    yield counter(
        "headrace_tier_fetches_throttled",
        "Reads that came back empty as remote.log.manager.fetch.max.bytes.per.second was reached",
        reader.throttled_count,
    )
    yield gauge(
        "headrace_tier_fetches_waiting",
        "Reads that wait for the store (RemoteLogReaderTaskQueueSize)",
        reader.waiting_count,
    )
    yield counter(
        "headrace_tier_deletes",
        "Segments that were to be deleted from the tier "
        "(BrokerTopicMetrics RemoteDeleteRequestsPerSec)",
        remover.requests,
    )
    yield counter(
        "headrace_tier_delete_errors",
        "Deletions that failed; they are tried again (BrokerTopicMetrics RemoteDeleteErrorsPerSec)",
        remover.errors,
    )
    yield counters(
        "headrace_tier_expired_segments",
        "Segments deleted from the tier, by reason",
        [((reason.name.lower(),), count) for reason, count in tier.expirer.counts.items()],
        labels=("reason",),
    )
    yield counter(
        "headrace_tier_orphans_deleted",
        "Objects deleted from the store that belonged to no segment",
        tier.orphans.deleted,
    )
    yield counter(
        "headrace_tier_orphan_bytes_deleted",
        "Bytes of objects deleted from the store that belonged to no segment",
        tier.orphans.deleted_bytes,
    )
    yield counter(
        "headrace_tier_look_seconds",
        "Time for looking through the segments of partitions (RemoteLogSizeComputationTime)",
        tier.expirer.look_seconds,
    )
    yield counter(
        "headrace_tier_history_reads",
        "How often a follower here had to begin behind what is in the tier "
        "(BrokerTopicMetrics BuildRemoteLogAuxStateRequestsPerSec)",
        node_tier.log.history_requests,
    )
    yield counter(
        "headrace_tier_history_errors",
        "How often that failed (BrokerTopicMetrics BuildRemoteLogAuxStateErrorsPerSec)",
        node_tier.log.history_errors,
    )
    yield counters(
        "headrace_tier_store_requests",
        "Requests to the store, as a provider bills them",
        [
            (("put",), counts.puts),
            (("get",), counts.gets),
            (("delete",), counts.deletes),
            (("list",), counts.lists),
        ],
        labels=("kind",),
    )
    yield counters(
        "headrace_tier_store_bytes",
        "Bytes of objects to and from the store",
        [(("put",), counts.put_bytes), (("get",), counts.get_bytes)],
        labels=("kind",),
    )
    yield counter(
        "headrace_tier_store_errors", "Calls of the store that failed for good", counts.errors
    )


def _by_topic(rows: "list[PartitionStatus]") -> dict[str, list[int]]:
    """Return the sums of each topic; of those with the least, one sum."""
    found: dict[str, list[int]] = {}
    for row in rows:
        values = [value_of(row) for _, _, value_of in _LAGS]
        sums = found.setdefault(row.topic, [0] * len(_LAGS))
        found[row.topic] = [sum(pair) for pair in zip(sums, values, strict=True)]
    if len(found) <= TOPICS_MAX:
        return found
    largest = sorted(found, key=lambda topic: found[topic][1] + found[topic][3], reverse=True)
    others = [found.pop(topic) for topic in largest[TOPICS_MAX:]]
    found[OTHERS] = [sum(column) for column in zip(*others, strict=True)]
    return found
