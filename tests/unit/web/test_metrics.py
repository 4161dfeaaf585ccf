"""Metrics are what the node counted, bounded in number, and all of them are on the docs page."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from headrace.client.cluster import Cluster
from headrace.client.groups import commit_offsets
from headrace.client.topics import TopicPartition
from headrace.ids import TopicName
from headrace.loop.counters import LATENCY_BOUNDS_NS, ApiCounters, Counters
from headrace.testing.broker import TestBroker
from headrace.testing.plugin import headrace, headrace_settings  # noqa: F401  fixtures
from headrace.web.metrics import NodeCollector, NodeMetrics
from headrace.web.topic_metrics import OTHERS, TOPICS_MAX, topic_metrics
from headrace.wire import ApiKey

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(headrace_\w+)` \| (\w+) \| ([\w, ]*) \| (.*) \|$", re.MULTILINE)


TIER = {
    "remote.log.storage.system.enable": "true",
    "headrace.tier.store": "memory://",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
}


@pytest.fixture
def used(headrace: TestBroker) -> TestBroker:  # noqa: F811
    """A broker that has done something of each kind."""
    return use(headrace)


def use(broker: TestBroker) -> TestBroker:
    broker.create_topic("orders")
    broker.produce("orders", "one", "two")
    broker.consume("orders")
    return broker


def coordinate(broker: TestBroker) -> TestBroker:
    async def commit() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            await commit_offsets(cluster, "readers", {TopicPartition("orders", 0): 1})

    broker.run(commit())
    return broker


def row(metric: Metric) -> tuple[str, str, str, str]:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    labels = sorted({label for sample in metric.samples for label in sample.labels} - {"le"})
    return name, metric.type, ", ".join(labels), metric.documentation


def test_the_page_has_every_metric_and_no_other() -> None:
    with TestBroker(settings=TIER) as broker:
        coordinate(use(broker))
        broker.create_topic("tiered", configs={"remote.storage.enable": "true"})
        assert ROW.findall(PAGE.read_text()) == [
            row(each) for each in NodeCollector(broker.node).collect()
        ]


def test_a_node_without_a_tier_has_no_metrics_of_one(used: TestBroker) -> None:
    assert b"headrace_tier" not in NodeMetrics(used.node).text()


def test_the_text_is_what_prometheus_reads(used: TestBroker) -> None:
    families = text_string_to_metric_families(NodeMetrics(used.node).text().decode())
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    assert values["headrace_topic_messages_in_total", "orders"] == 2
    assert values["headrace_topic_bytes_in_total", "orders"] > 0
    assert values["headrace_topic_bytes_out_total", "orders"] > 0
    assert values["headrace_topic_log_bytes", "orders"] > 0
    assert values["headrace_request_seconds_count", "Produce"] >= 1
    assert values["headrace_leader_partitions",] == 1
    assert values["process_cpu_seconds_total",] > 0


def test_latencies_are_summed_up_over_the_buckets() -> None:
    counters = Counters()
    produce = counters.apis[ApiKey.PRODUCE] = ApiCounters()
    produce.requests, produce.total_ns = 3, 7_000_000_000
    produce.buckets[0] = 2
    produce.buckets[len(LATENCY_BOUNDS_NS)] = 1
    collector = NodeCollector(SimpleNamespace(counters=counters))  # type: ignore[arg-type]
    [seconds] = [each for each in collector._requests() if each.type == "histogram"]
    values = {sample.labels.get("le"): sample.value for sample in seconds.samples}
    assert (values["0.0001"], values["5.0"], values["+Inf"]) == (2, 2, 3)
    assert values[None] == 7


def test_topics_beyond_the_maximum_are_one_row() -> None:
    counters = Counters()
    for number in range(TOPICS_MAX + 10):
        counters.topic(TopicName(f"topic-{number}")).bytes_in = number + 1
    broker: Any = SimpleNamespace(counters=counters, replicas=())
    bytes_in = next(metric for metric in topic_metrics(broker) if metric is not None)
    values = {sample.labels["topic"]: sample.value for sample in bytes_in.samples}
    assert len(values) == TOPICS_MAX + 1
    assert values[OTHERS] == sum(range(1, 11))
    assert "topic-9" not in values
    assert values["topic-10"] == 11
