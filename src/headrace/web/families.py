"""Metric families in one call each.

A collector is an iterator of families. It yields `PAUSE` wherever the event loop may run other
work, because there may be ten thousand partitions and groups to visit. It iterates over its own
copies of collections, which may change during a pause.
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

Rows: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""Label values, and the value of the metric."""


PAUSE: Final = None
Collected: TypeAlias = Iterator[Metric | None]
"""Metric families, and pauses between them."""


def gauge(name: str, meaning: str, value: float) -> Metric:
    return gauges(name, meaning, [((), value)], labels=())


def gauges(name: str, meaning: str, rows: Rows, *, labels: tuple[str, ...]) -> Metric:
    """Return a gauge family."""
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def counter(name: str, meaning: str, value: float) -> Metric:
    return counters(name, meaning, [((), value)], labels=())


def counters(name: str, meaning: str, rows: Rows, *, labels: tuple[str, ...]) -> Metric:
    """Return a counter family; Prometheus appends `_total` to the name."""
    family = CounterMetricFamily(name, meaning, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family
