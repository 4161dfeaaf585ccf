"""The brokers that a client may connect to, with their addresses for its listener."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from headrace.ids import BrokerId
from headrace.metadata.image import Image
from headrace.metadata.state import Broker as BrokerRow
from headrace.metadata.state import Endpoint

if TYPE_CHECKING:
    from headrace.server.broker import Broker

NO_CONTROLLER: Final = BrokerId(-1)


def broker_endpoints(image: Image, listener: str) -> Iterator[tuple[BrokerRow, Endpoint]]:
    """Return the brokers with a listener of that name, fenced ones too, and its address."""
    for broker in image.brokers():
        for endpoint in broker.endpoints:
            if endpoint.listener == listener:
                yield broker, endpoint
                break


def controller_id(broker: "Broker") -> BrokerId:
    """Return the broker that accepts metadata changes now, or -1 if unknown."""
    leader = broker.quorum.driver.state.leader
    return NO_CONTROLLER if leader is None else BrokerId(leader)
