"""Metrics by topic: a bounded number of topics by name, the others as one."""

from collections.abc import Callable
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from headrace.ids import TopicName
from headrace.loop.counters import TopicCounters
from headrace.loop.slices import Slice
from headrace.web.families import PAUSE, Collected, Rows, counters, gauges

if TYPE_CHECKING:
    from headrace.server.broker import Broker

TOPICS_MAX: Final = 200
"""How many topics get their own rows: those with the most bytes in and out."""
OTHERS: Final = "(others)"
"""The label of the row for all other topics; no topic can have this name."""
_OTHERS: Final = TopicName(OTHERS)
LABELS: Final = ("topic",)

COUNTED: Final[tuple[tuple[str, str, Callable[[TopicCounters], int]], ...]] = (
    (
        "headrace_topic_bytes_in",
        "Bytes that producers sent (BrokerTopicMetrics BytesInPerSec)",
        lambda topic: topic.bytes_in,
    ),
    (
        "headrace_topic_bytes_out",
        "Bytes sent to consumers (BrokerTopicMetrics BytesOutPerSec)",
        lambda topic: topic.bytes_out,
    ),
    (
        "headrace_topic_messages_in",
        "Records that producers sent (BrokerTopicMetrics MessagesInPerSec)",
        lambda topic: topic.messages_in,
    ),
    (
        "headrace_topic_produce_requests",
        "Requested appends to partitions (BrokerTopicMetrics TotalProduceRequestsPerSec)",
        lambda topic: topic.produce_requests,
    ),
    (
        "headrace_topic_produce_failures",
        "Appends that were refused (BrokerTopicMetrics FailedProduceRequestsPerSec)",
        lambda topic: topic.produce_failures,
    ),
    (
        "headrace_topic_fetch_requests",
        "Requested reads of partitions (BrokerTopicMetrics TotalFetchRequestsPerSec)",
        lambda topic: topic.fetch_requests,
    ),
)


def topic_metrics(broker: "Broker") -> Collected:
    """Yield the counters of each topic, and the size of its logs."""
    current = Slice()
    topics = dict(broker.counters.topics)
    shown = _shown(topics)
    yield PAUSE
    for name, meaning, value_of in COUNTED:
        values: dict[TopicName, int] = {}
        others = 0
        for topic, each in topics.items():
            if topic in shown:
                values[topic] = value_of(each)
            else:
                others += value_of(each)
            if current.spend():
                yield PAUSE
        yield counters(
            name, meaning, _rows(values, others, len(topics) > len(shown)), labels=LABELS
        )
    sizes: dict[TopicName, int] = {}
    partitions: dict[TopicName, int] = {}
    for partition in tuple(broker.replicas):
        topic = partition.topic if partition.topic in shown else _OTHERS
        sizes[topic] = sizes.get(topic, 0) + partition.log.size_bytes
        partitions[topic] = partitions.get(topic, 0) + 1
        if current.spend(2):
            yield PAUSE
    has_others = _OTHERS in sizes
    yield gauges(
        "headrace_topic_log_bytes",
        "Bytes of a topic's logs on this node (Log Size)",
        _rows(sizes, sizes.pop(_OTHERS, 0), has_others),
        labels=LABELS,
    )
    yield gauges(
        "headrace_topic_partitions",
        "Partitions of a topic that have a replica here",
        _rows(partitions, partitions.pop(_OTHERS, 0), has_others),
        labels=LABELS,
    )


def _shown(topics: dict[TopicName, TopicCounters]) -> frozenset[TopicName]:
    if len(topics) <= TOPICS_MAX:
        return frozenset(topics)
    busiest = nlargest(
        TOPICS_MAX, topics, key=lambda name: topics[name].bytes_in + topics[name].bytes_out
    )
    return frozenset(busiest)


def _rows(values: dict[TopicName, int], others: int, has_others: bool) -> Rows:
    rows = [((str(topic),), float(value)) for topic, value in values.items()]
    return [*rows, ((OTHERS,), float(others))] if has_others else rows
