"""What is worth knowing of a node's connections: events as they happen, and counters."""

import msgspec

from headrace.cluster.transport.hello import Identity, Purpose
from headrace.cluster.transport.refusals import Refused
from headrace.ids import BrokerId as NodeId


class Event(msgspec.Struct, frozen=True):
    """Base of the events below."""


class Connected(Event, frozen=True):
    """A connection is open, and its peer proven."""

    peer: Identity
    purpose: Purpose
    is_outgoing: bool


class Disconnected(Event, frozen=True):
    """A connection that was open is not any more."""

    peer: Identity
    purpose: Purpose
    is_outgoing: bool
    reason: str


class ConnectFailed(Event, frozen=True):
    """A peer could not be reached."""

    node: NodeId
    purpose: Purpose
    reason: str
    is_vacant: bool = False
    """Whether its machine says that nobody listens there."""


class ConnectionRefused(Event, frozen=True):
    """A connection was refused, by this side or the other.

    `node` is the one that was meant or has proven itself, None for a stranger.
    """

    node: NodeId | None
    address: str
    refused: Refused


class PeerCounters(msgspec.Struct):
    """Counters of one peer, over all connections to it and from it."""

    bytes_sent: int = 0
    messages_sent: int = 0
    bytes_received: int = 0
    messages_received: int = 0
    messages_dropped: int = 0
    """Because nothing was connected, or the queue was full."""
    calls: int = 0
    calls_failed: int = 0
    connects: int = 0
    failed_connects: int = 0
    refusals: int = 0


class LinkState(msgspec.Struct, frozen=True):
    """How one outgoing connection is, for `headrace cluster describe`."""

    node: NodeId
    purpose: Purpose
    state: str
    """idle, connecting, connected or waiting (to try again)."""
    peer: Identity | None
    last_problem: str
    queued_messages: int
    queued_bytes: int
    calls_in_flight: int
