"""The brokers and replicas that a client can reach through its listener."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER, Endpoint, Partition
from headrace.metadata.state import Broker as BrokerRow

if TYPE_CHECKING:
    from headrace.server.broker import Broker


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
