"""The leader of a partition and its address, for responses that redirect clients (KIP-951)."""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.ids import BrokerId, TopicName
from headrace.metadata.image import Image


class CurrentLeader(NamedTuple):
    """The leader of a partition in the image; -1 for unknown values."""

    leader_id: int
    leader_epoch: int


class LeaderEndpoint(NamedTuple):
    """A broker's address for clients of one listener."""

    node_id: int
    host: str
    port: int
    rack: str | None


UNKNOWN_LEADER = CurrentLeader(-1, -1)


def current_leader(image: Image, topic: TopicName, index: int) -> CurrentLeader:
    row = image.partition(topic, index)  # type: ignore[arg-type]
    return UNKNOWN_LEADER if row is None else CurrentLeader(row.leader, row.leader_epoch)


def endpoints(image: Image, broker_ids: Iterable[int], listener: str) -> list[LeaderEndpoint]:
    """Return the brokers' addresses for clients of a listener."""
    found = []
    for broker_id in sorted(set(broker_ids)):
        broker = image.broker(BrokerId(broker_id))
        if broker is None:
            continue
        for endpoint in broker.endpoints:
            if endpoint.listener == listener:
                found.append(LeaderEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack))
    return found
