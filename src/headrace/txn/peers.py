"""The other brokers, as coordinators of transactions and leaders of partitions need them."""

from collections.abc import Awaitable
from typing import Any, Protocol

from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.ids import BrokerId
from headrace.wire.schema import Message


class Peers(Protocol):
    """Connections to other brokers (`headrace.cluster.peers.PeerLine`)."""

    def send(self, node_id: BrokerId, request: Message, *, version_min: int = 0) -> Awaitable[Any]:
        """Send a request and return its response; raise HeadraceError without one."""


def refusal(code: int, about: str) -> KafkaError:
    """Return the error for a code in a response."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{about}: error code {code}")
    return KafkaError(known, f"{about}: {known.name}")


def unanswered(error: Exception) -> KafkaError:
    """Return the error of a request that got no response."""
    if isinstance(error, HeadraceError):
        return KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")
