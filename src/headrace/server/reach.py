"""Which replicas a client can reach through the listener that it came through."""

from collections.abc import Iterable

from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER, Endpoint, Partition
from headrace.server.live_brokers import broker_endpoints


class Reach:
    """The brokers that are up and have a listener, as the image has them now."""

    def __init__(self, image: Image, listener: str) -> None:
        self.endpoints: dict[BrokerId, Endpoint] = {}
        self.racks: dict[BrokerId, str | None] = {}
        self._image = image
        for broker, endpoint in broker_endpoints(image, listener):
            if not broker.is_fenced:
                self.endpoints[broker.broker_id] = endpoint
                self.racks[broker.broker_id] = broker.rack

    def leader(self, row: Partition) -> tuple[BrokerId, ErrorCode]:
        """Give who leads a partition, or why a client cannot talk to its leader."""
        leader = row.leader
        if leader in self.endpoints:
            return leader, ErrorCode.NONE
        broker = self._image.broker(leader)
        if broker is None or broker.is_fenced:
            return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
        return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND

    def offline(self, replicas: Iterable[int]) -> list[int]:
        return [each for each in replicas if each not in self.endpoints]
