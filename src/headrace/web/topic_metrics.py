"""Metrics with a topic's name: as many topics as a page can bear, the others as one."""

from collections.abc import Callable, Iterator
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import Metric

from headrace.broker.counters import TopicCounters
from headrace.ids import TopicName
from headrace.web.families import Rows, counters, gauges

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

TOPICS_MAX: Final = 200
"""How many topics have rows of their own: those with the most bytes in and out."""
OTHERS: Final = "(others)"
"""The rest in one; no topic can have this name."""
LABELS: Final = ("topic",)

COUNTED: Final[tuple[tuple[str, str, Callable[[TopicCounters], int]], ...]] = (
    (
        "headrace_topic_bytes_in",
        "Bytes that producers sent (BrokerTopicMetrics BytesInPerSec)",
        lambda topic: topic.bytes_in,
    ),
    (
        "headrace_topic_bytes_out",
        "Bytes that consumers were sent (BrokerTopicMetrics BytesOutPerSec)",
        lambda topic: topic.bytes_out,
    ),
    (
        "headrace_topic_messages_in",
        "Records that producers sent (BrokerTopicMetrics MessagesInPerSec)",
        lambda topic: topic.messages_in,
    ),
    (
        "headrace_topic_produce_requests",
        "Appends to partitions asked for (BrokerTopicMetrics TotalProduceRequestsPerSec)",
        lambda topic: topic.produce_requests,
    ),
    (
        "headrace_topic_produce_failures",
        "Appends that were refused (BrokerTopicMetrics FailedProduceRequestsPerSec)",
        lambda topic: topic.produce_failures,
    ),
    (
        "headrace_topic_fetch_requests",
        "Reads of partitions asked for (BrokerTopicMetrics TotalFetchRequestsPerSec)",
        lambda topic: topic.fetch_requests,
    ),
)


def topic_metrics(broker: "Broker") -> Iterator[Metric]:
    """Give what is counted for each topic, and what its logs hold."""
    topics = broker.counters.topics
    shown = _shown(topics)
    for name, meaning, value_of in COUNTED:
        values = {topic: value_of(each) for topic, each in topics.items()}
        yield counters(name, meaning, _rows(values, shown), labels=LABELS)
    sizes: dict[TopicName, int] = {}
    partitions: dict[TopicName, int] = {}
    for partition in broker.replicas:
        topic = partition.topic
        sizes[topic] = sizes.get(topic, 0) + partition.log.size_bytes
        partitions[topic] = partitions.get(topic, 0) + 1
    yield gauges(
        "headrace_topic_log_bytes",
        "Bytes of a topic's logs on this node (Log Size)",
        _rows(sizes, shown),
        labels=LABELS,
    )
    yield gauges(
        "headrace_topic_partitions",
        "Partitions of a topic that have a replica here",
        _rows(partitions, shown),
        labels=LABELS,
    )


def _shown(topics: dict[TopicName, TopicCounters]) -> frozenset[TopicName]:
    if len(topics) <= TOPICS_MAX:
        return frozenset(topics)
    busiest = nlargest(
        TOPICS_MAX, topics, key=lambda name: topics[name].bytes_in + topics[name].bytes_out
    )
    return frozenset(busiest)


def _rows(values: dict[TopicName, int], shown: frozenset[TopicName]) -> Rows:
    rows = [((str(topic),), float(value)) for topic, value in values.items() if topic in shown]
    others = [value for topic, value in values.items() if topic not in shown]
    return [*rows, ((OTHERS,), float(sum(others)))] if others else rows
