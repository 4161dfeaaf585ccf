"""Metrics of quotas: how often, and how long, they held clients back."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric

from headrace.web.families import counters, gauge

if TYPE_CHECKING:
    from headrace.node.node import Node


def quota_metrics(node: "Node") -> Iterator[Metric]:
    """Yield the metrics of quotas."""
    counts = node.counters.quotas
    yield counters(
        "headrace_throttled",
        "How often a client was held back, by the `quota` that it used up; connection is "
        "max.connection.creation.rate, connection_of_ip an address's connection_creation_rate "
        "(throttle-time of the client quota managers)",
        [((name,), each.throttled) for name, each in counts.items()],
        labels=("quota",),
    )
    yield counters(
        "headrace_throttle_milliseconds",
        "How long clients were held back, by the `quota` that they used up",
        [((name,), each.throttled_ms) for name, each in counts.items()],
        labels=("quota",),
    )
    yield gauge(
        "headrace_quota_meters",
        "Users and client ids whose use is measured, once for each of their limits; bounded by "
        "headrace.quota.clients.max",
        node.quotas.clients.meter_count,
    )
