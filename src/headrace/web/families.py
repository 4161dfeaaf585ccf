"""One line for a metric.

What collects metrics is an iterator of them, with `PAUSE` wherever others may have their turn:
there may be ten thousand partitions and groups to look at. It keeps lists of its own of what it
walks over.
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

Rows: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""Values of labels, and the number that they have."""


PAUSE: Final = None
Collected: TypeAlias = Iterator[Metric | None]
"""Metrics, and pauses between them."""


def gauge(name: str, meaning: str, value: float) -> Metric:
    return gauges(name, meaning, [((), value)], labels=())


def gauges(name: str, meaning: str, rows: Rows, *, labels: tuple[str, ...]) -> Metric:
    """Numbers that go up and down."""
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def counter(name: str, meaning: str, value: float) -> Metric:
    return counters(name, meaning, [((), value)], labels=())


def counters(name: str, meaning: str, rows: Rows, *, labels: tuple[str, ...]) -> Metric:
    """Numbers that only grow; Prometheus has `_total` behind the name."""
    family = CounterMetricFamily(name, meaning, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family
