"""Messages and their bytes: what is inside a seal.

A datagram is read as a whole or not at all. A message has its sender's life and incarnation: that
alone is a claim, so that every message is a sign of life and every response to an accusation
refutes it.
"""

import struct
from struct import Struct as Layout
from typing import Final

import msgspec

from headrace.cluster.swim.claims import (
    BOOT_EPOCH_MAX,
    INCARNATION_MAX,
    Claim,
    Standing,
)
from headrace.ids import BrokerId as NodeId

NODE_ID_MAX: Final = 2**31 - 1
NO_REPLY: Final = 0
"""The number of a ping whose ack is not awaited: its arrival is enough."""


class InvalidMessage(Exception):
    """Bytes that no member of this version sends; the text says why."""


class Ping(msgspec.Struct, frozen=True):
    """Are you there?"""

    number: int


class Ack(msgspec.Struct, frozen=True):
    """I am."""

    number: int


class PingRequest(msgspec.Struct, frozen=True):
    """Is the target there? It does not respond to me."""

    number: int
    target: NodeId


class RelayedAck(msgspec.Struct, frozen=True):
    """The target responded to me, in this life and incarnation."""

    number: int
    target: NodeId
    boot_epoch: int
    incarnation: int


class Nack(msgspec.Struct, frozen=True):
    """The target does not respond to me either; but I respond to you."""

    number: int


class Sync(msgspec.Struct, frozen=True):
    """The claims here are all I know of members from `first` to `last`. What do you know?"""

    first: NodeId
    last: NodeId


class News(msgspec.Struct, frozen=True):
    """Claims that may be new to you: the response to a Sync, or unsolicited."""


Body = Ping | Ack | PingRequest | RelayedAck | Nack | Sync | News


class Message(msgspec.Struct, frozen=True):
    sender: NodeId
    boot_epoch: int
    incarnation: int
    is_leaving: bool
    body: Body
    claims: tuple[Claim, ...] = ()


_HEAD: Final = Layout(">BBQB")
"""Kind, flags, incarnation of the sender, number of claims."""
_CLAIM: Final = Layout(">BIQQI")
CLAIM_BYTES: Final = _CLAIM.size
CLAIMS_MAX: Final = 255
_LEAVING: Final = 1
_BODIES: Final[tuple[tuple[type[Body], Layout], ...]] = (
    (Ping, Layout(">I")),
    (Ack, Layout(">I")),
    (PingRequest, Layout(">II")),
    (RelayedAck, Layout(">IIQQ")),
    (Nack, Layout(">I")),
    (Sync, Layout(">II")),
    (News, Layout(">")),
)
_KINDS: Final = {body: (kind, layout) for kind, (body, layout) in enumerate(_BODIES)}
MESSAGE_BYTES_MAX: Final = _HEAD.size + max(layout.size for _, layout in _BODIES)
"""The largest message without claims."""


def encode_message(message: Message) -> bytes:
    """Return the bytes of a message, but for sender and boot epoch, which its seal has."""
    body = message.body
    kind, layout = _KINDS[type(body)]
    flags = _LEAVING if message.is_leaving else 0
    return b"".join(
        (
            _HEAD.pack(kind, flags, message.incarnation, len(message.claims)),
            layout.pack(*msgspec.structs.astuple(body)),
            *(
                _CLAIM.pack(
                    claim.standing, claim.node, claim.boot_epoch, claim.incarnation, claim.accuser
                )
                for claim in message.claims
            ),
        )
    )


def decode_message(data: bytes, sender: NodeId, boot_epoch: int) -> Message:
    """Return the message of a sealed datagram, or raise InvalidMessage.

    The work is in proportion to the bytes there are, whatever they say.
    """
    try:
        kind, flags, incarnation, count = _HEAD.unpack_from(data)
    except struct.error:
        raise InvalidMessage(f"{len(data)} bytes are too few") from None
    if kind >= len(_BODIES) or flags & ~_LEAVING:
        raise InvalidMessage(f"kind {kind} with flags {flags}")
    body_type, layout = _BODIES[kind]
    claims_at = _HEAD.size + layout.size
    if len(data) != claims_at + count * CLAIM_BYTES:
        raise InvalidMessage(f"{len(data)} bytes of kind {kind} with {count} claims")
    if incarnation > INCARNATION_MAX:
        raise InvalidMessage(f"incarnation {incarnation}")
    body = body_type(*layout.unpack_from(data, _HEAD.size))
    _check_body(body)
    claims = tuple(_claim(*fields) for fields in _CLAIM.iter_unpack(data[claims_at:]))
    return Message(sender, boot_epoch, incarnation, bool(flags & _LEAVING), body, claims)


def _check_body(body: Body) -> None:
    if isinstance(body, PingRequest | RelayedAck):
        if body.target > NODE_ID_MAX:
            raise InvalidMessage(f"node {body.target}")
        if isinstance(body, RelayedAck) and (
            not 1 <= body.boot_epoch <= BOOT_EPOCH_MAX or body.incarnation > INCARNATION_MAX
        ):
            raise InvalidMessage(f"boot epoch {body.boot_epoch}, incarnation {body.incarnation}")


def _claim(standing: int, node: int, boot_epoch: int, incarnation: int, accuser: int) -> Claim:
    if (
        standing > Standing.LEFT
        or node > NODE_ID_MAX
        or accuser > NODE_ID_MAX
        or not 1 <= boot_epoch <= BOOT_EPOCH_MAX
        or incarnation > INCARNATION_MAX
    ):
        raise InvalidMessage(
            f"a claim of standing {standing} by {accuser} on node {node} in boot epoch "
            f"{boot_epoch} and incarnation {incarnation}"
        )
    return Claim(NodeId(node), boot_epoch, incarnation, Standing(standing), NodeId(accuser))
