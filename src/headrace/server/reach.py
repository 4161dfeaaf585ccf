"""The brokers and replicas that a client can reach through its listener."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from headrace.cluster.address_book import parse_address
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER, Endpoint, Partition
from headrace.metadata.state import Broker as BrokerRow

if TYPE_CHECKING:
    from headrace.server.broker import Broker

CONTROLLER_LISTENER: Final = "CONTROLLER"
"""How Kafka's tools name the listener of voters; here it is the node port."""


class Reach:
    """The brokers of the current image that are up and have a listener."""

    def __init__(self, image: Image, listener: str) -> None:
        self.endpoints: dict[BrokerId, Endpoint] = {}
        self.racks: dict[BrokerId, str | None] = {}
        self._image = image
        for broker, endpoint in broker_endpoints(image, listener):
            if not broker.is_fenced:
                self.endpoints[broker.broker_id] = endpoint
                self.racks[broker.broker_id] = broker.rack

    def leader(self, row: Partition) -> tuple[BrokerId, ErrorCode]:
        """Return a partition's leader, or the error if a client cannot reach it."""
        leader = row.leader
        if leader in self.endpoints:
            return leader, ErrorCode.NONE
        broker = self._image.broker(leader)
        if broker is None or broker.is_fenced:
            return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
        return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND

    def offline(self, replicas: Iterable[int]) -> list[int]:
        return [each for each in replicas if each not in self.endpoints]


def broker_endpoints(image: Image, listener: str) -> Iterator[tuple[BrokerRow, Endpoint]]:
    """Return the brokers with a listener of that name, fenced ones too, and its address."""
    for broker in image.brokers():
        for endpoint in broker.endpoints:
            if endpoint.listener == listener:
                yield broker, endpoint
                break


def controller_id(broker: "Broker") -> BrokerId:
    """Return the broker that clients send metadata changes to: this one.

    Every broker takes them. A client that changes something here sees it here at once.
    """
    return broker.node_id


def node_address(image: Image, node: BrokerId) -> tuple[str, int] | None:
    """Return the host and the port where other nodes reach a node, None if it is not known."""
    row = image.node(node)
    return None if row is None else parse_address(row.addr)


def check_cluster_id(image: Image, cluster_id: str | None) -> None:
    """Raise INCONSISTENT_CLUSTER_ID if a request is meant for another cluster."""
    if cluster_id is not None and cluster_id != image.state.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"this is cluster {image.state.cluster_id}, not {cluster_id}",
        )
