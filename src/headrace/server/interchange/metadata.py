"""FetchMetadata: topics, partitions and brokers as this node's image has them.

Topics that do not exist are left out: the response has no place for an error of one topic. A node
is named by its number.
"""

from collections.abc import Coroutine, Iterable
from typing import Any

from headrace.cluster.protocol import NodeId, ResponseHeader, node_id_of, requests, responses
from headrace.ids import BrokerId, TopicName
from headrace.loop.slices import Slice, Slices, in_slices
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER, Endpoint, Partition, Topic
from headrace.metadata.state import Broker as BrokerRow
from headrace.server.broker import Broker
from headrace.server.interchange.call import ClusterCall


def fetch_metadata(
    broker: Broker, call: ClusterCall
) -> responses.Metadata | Coroutine[Any, Any, responses.Metadata]:
    return in_slices(_metadata(broker, call))


def _metadata(broker: Broker, call: ClusterCall) -> Slices[responses.Metadata]:
    image, current = broker.image, Slice()
    topics = yield from _asked_topics(image, call, current)
    up = {each.broker_id for each in image.brokers() if not each.is_fenced}
    rows = []
    for topic in topics:
        partitions = []
        for index, row in enumerate(topic.partitions[:]):  # more may be added meanwhile
            partitions.append(_partition(index, row, up))
            if current.spend(2):
                yield
        rows.append(responses.TopicMetadata(topic.name, tuple(partitions), topic.is_internal))
        if current.spend():
            yield
    leader = broker.quorum.driver.state.leader
    return responses.Metadata(
        ResponseHeader(call.correlation_id),
        image.state.cluster_id,
        None if leader is None else node_id_of(leader),
        tuple(rows),
        tuple(
            _broker(each, endpoint)
            for each in image.brokers()
            if not each.is_fenced and (endpoint := _endpoint(each, call.peer.listener)) is not None
        ),
    )


def _asked_topics(image: Image, call: ClusterCall, current: Slice) -> Slices[list[Topic]]:
    asked: requests.FetchMetadata = call.asked  # type: ignore[assignment]
    if asked.topics is None:
        return list(image.topics())
    found: dict[TopicName, Topic] = {}
    for name in asked.topics:
        topic = image.topic(TopicName(name))
        if topic is not None:
            found[topic.name] = topic
        if current.spend():
            yield
    return list(found.values())


def _partition(index: int, row: Partition, up: set[BrokerId]) -> responses.PartitionMetadata:
    return responses.PartitionMetadata(
        index,
        None if row.leader == NO_LEADER else node_id_of(row.leader),
        row.leader_epoch,
        _names(row.replicas),
        _names(row.isr),
        _names(each for each in row.replicas if each not in up),
    )


def _names(brokers: Iterable[BrokerId]) -> tuple[NodeId, ...]:
    return tuple(map(node_id_of, brokers))


def _broker(row: BrokerRow, endpoint: Endpoint) -> responses.BrokerMetadata:
    name = node_id_of(row.broker_id)
    return responses.BrokerMetadata(name, endpoint.host, endpoint.port, row.rack)


def _endpoint(row: BrokerRow, listener: str) -> Endpoint | None:
    """Return a broker's address on a listener, or the first if it has none of that name."""
    for endpoint in row.endpoints:
        if endpoint.listener == listener:
            return endpoint
    return row.endpoints[0] if row.endpoints else None
