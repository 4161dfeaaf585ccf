"""One line for a metric."""

from collections.abc import Iterable
from typing import TypeAlias

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

Rows: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""Values of labels, and the number that they have."""


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
