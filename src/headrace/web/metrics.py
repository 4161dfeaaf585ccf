"""A node's metrics in Prometheus' text format. docs/metrics.md documents them.

No state is kept here: the collector reads the broker's plain counters on each request, in slices,
as there may be many. Names are ours, in base units; the help text has the name of Kafka's metric
where there is one.
"""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

import headrace
from headrace.loop.counters import LATENCY_BOUNDS_NS, ApiCounters
from headrace.loop.slices import Slice, Slices, finish, run_whole
from headrace.metadata.state import NO_LEADER
from headrace.node.upkeep import MEANING_OF_FREED
from headrace.replication.partition import Partition
from headrace.security.certificates import Certificates
from headrace.web.cluster_metrics import cluster_metrics
from headrace.web.families import PAUSE, Collected, counter, counters, gauge, gauges
from headrace.web.group_metrics import group_metrics
from headrace.web.quota_metrics import quota_metrics
from headrace.web.share_metrics import share_metrics
from headrace.web.tier_metrics import tier_metrics
from headrace.web.topic_metrics import topic_metrics
from headrace.wire import APIS

if TYPE_CHECKING:
    from headrace.node.node import Node

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
NS: Final = 1_000_000_000


class NodeMetrics:
    """The metrics of one node."""

    def __init__(self, node: "Node", certificates: Certificates | None = None) -> None:
        """`certificates` are those of the pages, if they use TLS."""
        self._collector = NodeCollector(node, certificates)
        self._process = ProcessCollector(registry=None)
        self._page: asyncio.Task[bytes] | None = None

    async def page(self) -> bytes:
        """Return the current page. Concurrent requests share one."""
        if self._page is None or self._page.done():
            self._page = asyncio.ensure_future(finish(self.writing()))
        return await asyncio.shield(self._page)

    def text(self) -> bytes:
        """Return the page without yielding to the loop."""
        return run_whole(self.writing())

    def writing(self) -> Slices[bytes]:
        """Write the page, a few metrics per slice."""
        current = Slice()
        page = bytearray()
        for metric in chain(self._collector.collect_in_slices(), self._process.collect()):
            if metric is PAUSE:
                yield
                continue
            page += generate_latest(_One(metric))
            if current.spend(1 + _UNITS_PER_SAMPLE * len(metric.samples)):
                yield
        return bytes(page)


_UNITS_PER_SAMPLE: Final = 5


class _One(NamedTuple):
    """A registry with a single metric."""

    metric: Metric

    def collect(self) -> Iterator[Metric]:
        yield self.metric


class NodeCollector(Collector):
    """Collector that reads a node's counters on each call."""

    def __init__(self, node: "Node", certificates: Certificates | None = None) -> None:
        self._node = node
        self._certificates = certificates

    def describe(self) -> Iterable[Metric]:
        """Return nothing: prometheus-client would otherwise collect to check for duplicates."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        return (metric for metric in self.collect_in_slices() if metric is not PAUSE)

    def collect_in_slices(self) -> Collected:
        """Yield all metrics, with pauses in between."""
        yield self._identity()
        yield from topic_metrics(self._node.broker)
        yield from group_metrics(self._node.broker)
        yield from share_metrics(self._node.broker)
        yield from self._requests()
        yield from self._connections()
        yield from quota_metrics(self._node)
        yield from self._partitions()
        yield from cluster_metrics(self._node)
        yield from self._loop()
        yield from self._upkeep()
        yield from tier_metrics(self._node.tier)

    def _identity(self) -> Metric:
        node = self._node
        labels = (str(node.node_id), node.broker.image.state.cluster_id, headrace.__version__)
        return gauges(
            "headrace_node",
            "1, with the node's id, its cluster and Headrace's version",
            [(labels, 1)],
            labels=("node_id", "cluster_id", "version"),
        )

    def _requests(self) -> Iterator[Metric]:
        asked = {
            APIS[key].name: each
            for key, each in self._node.counters.apis.items()
            if each.requests or each.errors
        }
        yield counters(
            "headrace_requests",
            "Requests that got a response (RequestMetrics RequestsPerSec)",
            [((name,), each.requests) for name, each in asked.items()],
            labels=("api",),
        )
        yield counters(
            "headrace_request_errors",
            "Requests whose handler failed, each with an incident number in the log",
            [((name,), each.errors) for name, each in asked.items()],
            labels=("api",),
        )
        seconds = HistogramMetricFamily(
            "headrace_request_seconds",
            "Time from a complete request to its response (RequestMetrics TotalTimeMs)",
            labels=("api",),
        )
        for name, each in asked.items():
            seconds.add_metric([name], _buckets(each), each.total_ns / NS)
        yield seconds

    def _authentication(self) -> Iterator[Metric]:
        counts, protection = self._node.counters, self._node.protection
        yield counter(
            "headrace_handshakes_failed",
            "Connections that ended in the handshake of TLS, or were too many to authenticate",
            counts.handshakes_failed,
        )
        yield counter(
            "headrace_authentications_succeeded",
            "Logins with SASL (socket-server-metrics successful-authentication-total)",
            counts.authentications_succeeded,
        )
        yield counter(
            "headrace_authentications_failed",
            "Failed logins with SASL (socket-server-metrics failed-authentication-total)",
            counts.authentications_failed,
        )
        yield counter(
            "headrace_requests_denied",
            "Requests, or parts of them, that a client had no rights for",
            counts.requests_denied,
        )
        files = None if self._node.audit is None else self._node.audit.files
        yield counter(
            "headrace_audit_events",
            "Lines in the audit log",
            0 if files is None else files.written,
        )
        yield counter(
            "headrace_audit_events_dropped",
            "Events that are not in the audit log: its queue was full, or its disk took no line",
            0 if files is None else files.dropped + files.lost,
        )
        expiry = GaugeMetricFamily(
            "headrace_certificate_expiry_seconds",
            "When the certificate of each `listener` expires, in seconds since 1970; "
            "`HEADRACE-NODES` is the node's own among nodes",
            labels=("listener",),
        )
        expiries = {} if protection is None else protection.expiry_seconds()
        if self._certificates is not None:
            expiries |= self._certificates.expiry_seconds()
        for listener, seconds in expiries.items():
            expiry.add_metric([listener], seconds)
        yield expiry

    def _connections(self) -> Iterator[Metric]:
        counts, traffic = self._node.counters, self._node.traffic
        yield gauge(
            "headrace_connections",
            "Open client connections (socket-server-metrics connection-count)",
            len(traffic.connections),
        )
        yield counter(
            "headrace_connections_accepted",
            "Connections accepted (socket-server-metrics connection-creation-total)",
            counts.connections_accepted,
        )
        yield counter(
            "headrace_connections_refused",
            "Connections refused by max.connections or max.connections.per.ip",
            counts.connections_refused,
        )
        yield counter(
            "headrace_connections_idle_closed",
            "Connections closed after connections.max.idle.ms (expired-connections-killed-count)",
            counts.connections_idle_closed,
        )
        yield counter(
            "headrace_connections_stuck_closed",
            "Connections closed because their client stopped reading its responses",
            counts.connections_stuck_closed,
        )
        yield from self._authentication()
        yield gauge(
            "headrace_unsent_response_bytes",
            "Bytes of responses that clients have not read yet",
            self._node.traffic.unsent_bytes,
        )
        yield counter(
            "headrace_undecodable_requests",
            "Requests that could not be decoded or are not supported; each closed its connection",
            counts.undecodable_requests,
        )
        yield gauge(
            "headrace_in_flight_request_bytes",
            "Bytes of requests without a response yet; bounded by queued.max.request.bytes",
            traffic.in_flight_bytes,
        )
        yield gauge(
            "headrace_starved_connections",
            "Connections that are not read from because queued.max.request.bytes is reached",
            len(traffic.starved),
        )

    def _partitions(self) -> Collected:
        broker = self._node.broker
        partitions = tuple(broker.replicas)
        current = Slice()
        led, lacking, moving, under_min_isr, read_only = 0, 0, 0, 0, 0
        offline = len(broker.folder.offline)
        for each in partitions:
            if each.is_leader:
                led += 1
                lacking += len(each.isr) < len(each.replicas) - len(each.adding)
                moving += each.is_moving
                under_min_isr += _is_under_min_isr(each)
            offline += each.leader == NO_LEADER
            read_only += each.log.failure is not None
            if current.spend(2):
                yield PAUSE
        yield gauge(
            "headrace_partitions",
            "Partitions that have a replica here (ReplicaManager PartitionCount)",
            len(partitions),
        )
        yield gauge(
            "headrace_leader_partitions",
            "Partitions that this node leads (ReplicaManager LeaderCount)",
            led,
        )
        yield gauge(
            "headrace_under_replicated_partitions",
            "Partitions led here that have replicas which are not in sync, beyond those that a "
            "move adds (ReplicaManager UnderReplicatedPartitions)",
            lacking,
        )
        yield gauge(
            "headrace_reassigning_partitions",
            "Partitions led here that are moving to other nodes "
            "(ReplicaManager ReassigningPartitions)",
            moving,
        )
        yield gauge(
            "headrace_under_min_isr_partitions",
            "Partitions led here with fewer replicas in sync than min.insync.replicas "
            "(ReplicaManager UnderMinIsrPartitionCount)",
            under_min_isr,
        )
        yield gauge(
            "headrace_offline_partitions",
            "Partitions here without a leader, or whose log did not open "
            "(KafkaController OfflinePartitionsCount, ReplicaManager OfflineReplicaCount)",
            offline,
        )
        yield gauge(
            "headrace_read_only_partitions",
            "Partitions whose log is read-only because of a full or failing disk",
            read_only,
        )
        yield counter(
            "headrace_isr_expansions",
            "Replicas that came into sync with this leader (ReplicaManager IsrExpandsPerSec)",
            broker.counters.isr_expansions,
        )
        yield counter(
            "headrace_isr_shrinks",
            "How often this leader dropped replicas that lagged (ReplicaManager IsrShrinksPerSec)",
            broker.counters.isr_shrinks,
        )
        yield counter(
            "headrace_replica_bytes_in",
            "Bytes that followers here copied (BrokerTopicMetrics ReplicationBytesInPerSec)",
            broker.counters.replica_bytes_in,
        )
        yield counter(
            "headrace_replica_fetches",
            "Fetch requests of followers here (FetcherStats RequestsPerSec)",
            broker.counters.replica_fetches,
        )
        yield counter(
            "headrace_replica_fetch_failures",
            "Fetch requests of followers here without a usable response",
            broker.counters.replica_fetch_failures,
        )
        yield counter(
            "headrace_replica_errors",
            "How often a follower here paused for an error of its partition",
            broker.counters.replica_errors,
        )
        yield counter(
            "headrace_replica_truncations",
            "How often a follower here cut off its log, or began it again",
            broker.counters.replica_truncations,
        )
        yield gauge(
            "headrace_replica_lag_records_max",
            "Committed records that a follower here lacks at most (ReplicaFetcherManager MaxLag)",
            broker.fetchers.lag_max,
        )
        yield gauge(
            "headrace_metadata_leader",
            "Whether the metadata log has a leader: 1 or 0",
            int(broker.quorum.driver.state.leader is not None),
        )
        yield gauge(
            "headrace_metadata_disk_full",
            "Whether changes are refused because the disk has no room for the metadata log: 1 or 0",
            int(broker.quorum.driver.full_disk.reason is not None),
        )
        yield counter(
            "headrace_metadata_entries",
            "Entries of the metadata log that are applied here "
            "(broker-metadata-metrics last-applied-record-offset)",
            broker.quorum.driver.applied_index,
        )

    def _loop(self) -> Iterator[Metric]:
        counts = self._node.counters
        yield counter(
            "headrace_loop_stalls",
            "How often the event loop stood still for headrace.loop.stall.warn.ms or longer",
            counts.loop_stalls,
        )
        yield counter(
            "headrace_loop_stall_seconds",
            "Total duration of these stalls",
            counts.loop_stall_ns / NS,
        )
        yield gauge(
            "headrace_loop_lag_seconds",
            "How late the last tick of the loop was",
            counts.loop_lag_ns / NS,
        )
        yield gauge(
            "headrace_loop_lag_max_seconds",
            "How late the latest tick of the loop was since startup",
            counts.loop_lag_ns_max / NS,
        )

    def _upkeep(self) -> Iterator[Metric]:
        done = self._node.upkeep.counters
        yield counters(
            "headrace_upkeep_runs",
            "How often each kind of background work ran",
            [((name,), each.runs) for name, each in done.items()],
            labels=("work",),
        )
        yield counters(
            "headrace_upkeep_failures",
            "How often each kind failed, each time with a line in the log",
            [((name,), each.failures) for name, each in done.items()],
            labels=("work",),
        )
        yield counters(
            "headrace_upkeep_freed",
            "Work done: "
            + ", ".join(f"{name}: {meaning}" for name, meaning in MEANING_OF_FREED.items()),
            [((name,), each.freed) for name, each in done.items()],
            labels=("work",),
        )
        yield gauges(
            "headrace_upkeep_last_seconds",
            "Duration of the last run",
            [((name,), each.last_duration_ns / NS) for name, each in done.items()],
            labels=("work",),
        )


def _is_under_min_isr(partition: Partition) -> bool:
    return len(partition.isr) < partition.min_insync_replicas


def _buckets(counters: ApiCounters) -> list[tuple[str, float]]:
    """Return the cumulative histogram that Prometheus expects."""
    buckets, so_far = [], 0
    for bound_ns, count in zip(LATENCY_BOUNDS_NS, counters.buckets, strict=False):
        so_far += count
        buckets.append((str(bound_ns / NS), float(so_far)))
    return [*buckets, ("+Inf", float(sum(counters.buckets)))]
