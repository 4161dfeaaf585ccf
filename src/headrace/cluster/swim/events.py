"""What comes out of the machine: datagrams to send, and events for others to use.

An event is a hint. It may be wrong, and it may be late; only the metadata log fences.
"""

import msgspec

from headrace.cluster.swim.messages import Message
from headrace.ids import BrokerId as NodeId


class Peer(msgspec.Struct, frozen=True):
    """A member that the metadata image allows."""

    node: NodeId
    host: str
    port: int
    boot_epoch: int = 0
    """The boot epoch of its registration, zero if that is not known: older lives are ignored."""


class Event(msgspec.Struct, frozen=True):
    """Base of the events below."""

    node: NodeId
    boot_epoch: int


class Joined(Event, frozen=True):
    """A life of the member was heard of for the first time."""


class Suspected(Event, frozen=True):
    """The member does not respond to a node, which may be that node's fault."""

    accuser: NodeId


class Recovered(Event, frozen=True):
    """The member is there after all: it refuted what was said of it."""


class Unreachable(Event, frozen=True):
    """The member did not refute the suspicion in time, or was not heard of at all."""


class Left(Event, frozen=True):
    """The member said that it goes."""


class Forgotten(Event, frozen=True):
    """The member has been gone for so long that it is no longer gossiped about."""


class Superseded(Event, frozen=True):
    """A node with this node's id and a higher boot epoch is there, or was: another process, or
    this one's boot epoch went back."""


class LeaveFinished(Event, frozen=True):
    """Enough members know that this node leaves."""


class Send(msgspec.Struct, frozen=True):
    """A message and the member it goes to: always to the address of the image, never to whichever
    address a datagram came from."""

    to: Peer
    message: Message


class Outputs(msgspec.Struct, frozen=True):
    """What a step wants done."""

    sends: list[Send]
    events: list[Event]
