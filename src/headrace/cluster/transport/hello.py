"""The words of a handshake, and their bytes.

    magic 8 | lowest version 1 | highest version 1 | size 2 | MessagePack array

The first twelve bytes are the same in every version, so that nodes of any two versions can tell
each other that they have none in common. The magic is no size of a frame of seed 002, no text and
no TLS: one look at the first byte tells a node from everything else.
"""

from collections.abc import Callable
from enum import IntEnum, unique
from struct import Struct as Layout
from typing import Annotated, Final, NamedTuple

import msgspec

from headrace.cluster.transport.refusals import MALFORMED, Reason, Refused
from headrace.ids import BrokerId as NodeId

MAGIC: Final = b"\xf5hrnode\n"
VERSION_MIN: Final = 1
VERSION_MAX: Final = 1
HEADER: Final = Layout(">8sBBH")
BODY_BYTES_MAX: Final = 4096
NONCE_BYTES: Final = 32
TAG_BYTES: Final = 32
FOLDER_ID_BYTES: Final = 16
ANY_NODE: Final = -1
AUTHORITIES_MAX: Final = 3
"""How many CAs a hello shows: the newest ones, and more would not fit."""
OPERATOR: Final = NodeId(2**31 - 1)
"""The id of an operator's program. No node has it (node.id refuses it), and it is no peer: it may
make one call per connection, of the kinds that are served to operators."""


@unique
class Purpose(IntEnum):
    """What a connection is for: bulk data never stands before a heartbeat."""

    CONTROL = 0
    BULK = 1
    ONE_CALL = 2
    """To whoever is at an address."""


class Identity(NamedTuple):
    """A node's identity in one of its lives."""

    node: NodeId
    folder_id: bytes
    """The id of its data folder: another folder is another node, whatever its number."""
    boot_epoch: int
    """Grows with every start of the node."""
    cluster_id: str = ""
    """Empty until the node has joined a cluster."""


_Number = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_FolderId = Annotated[bytes, msgspec.Meta(min_length=FOLDER_ID_BYTES, max_length=FOLDER_ID_BYTES)]
_Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
_Name = Annotated[str, msgspec.Meta(max_length=128)]
_Tag = Annotated[bytes, msgspec.Meta(max_length=TAG_BYTES)]
_Text = Annotated[str, msgspec.Meta(max_length=1024)]
_Certificate = Annotated[bytes, msgspec.Meta(max_length=1024)]


class Hello(msgspec.Struct, tag=0, array_like=True, frozen=True):
    """The sender's identity; both sides send it."""

    node: _Number
    folder_id: _FolderId
    boot_epoch: _Epoch
    cluster_id: _Name
    purpose: Purpose
    to: Annotated[int, msgspec.Meta(ge=ANY_NODE, le=2**31 - 1)]
    """Which node I mean, ANY_NODE if I know an address only."""
    has_secret: bool
    nonce: _Nonce
    authorities: Annotated[tuple[_Certificate, ...], msgspec.Meta(max_length=AUTHORITIES_MAX)] = ()
    """Under TLS, from who accepted: the CAs of its cluster, for a peer that was told a pin."""

    def identity(self) -> Identity:
        return Identity(NodeId(self.node), self.folder_id, self.boot_epoch, self.cluster_id)


class Proof(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """That I know the secret; from who accepted, that the connection is open too."""

    tag: _Tag


class Refusal(msgspec.Struct, tag=2, array_like=True, frozen=True):
    """Why there is no connection."""

    reason: _Number
    sentence: _Text
    remedy: _Text
    tag: _Tag = b""
    """That who says so knows the secret; empty before the peer has proven that it does."""


Word = Hello | Proof | Refusal

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[Word]] = msgspec.msgpack.Decoder(Word)


def encode_word(word: Word) -> bytes:
    body = _encoder.encode(word)
    return HEADER.pack(MAGIC, VERSION_MIN, VERSION_MAX, len(body)) + body


def take_word(data: bytearray) -> tuple[Word, bytes] | Refused | None:
    """Split the first word off `data`: return it and its bytes, or None if it is not whole yet.

    Nothing is taken, and no more than a word is ever kept waiting for, if it is refused.
    """
    if not MAGIC.startswith(data[: len(MAGIC)]):
        return MALFORMED
    if len(data) < HEADER.size:
        return None
    _, lowest, highest, size = HEADER.unpack_from(data)
    if lowest > VERSION_MAX or highest < VERSION_MIN:
        return unsupported_version(lowest, highest)
    end = HEADER.size + size
    if len(data) < end and size <= BODY_BYTES_MAX:
        return None
    taken = bytes(data[:end])
    try:
        if size > BODY_BYTES_MAX:
            raise msgspec.ValidationError("too large")
        word = _decoder.decode(memoryview(taken)[HEADER.size :])
    except (msgspec.MsgspecError, UnicodeDecodeError):  # msgspec lets the second through
        return MALFORMED
    del data[:end]
    return word, taken


def versions_of(its_bytes: bytes) -> bytes:
    """Return the part of a word that names versions: a node says the same in all its words."""
    return its_bytes[len(MAGIC) : len(MAGIC) + 2]


def unsupported_version(lowest: int, highest: int) -> Refused:
    return Refused(
        Reason.UNSUPPORTED_VERSION,
        f"one node speaks versions {lowest} to {highest} of the transport, the other "
        f"{VERSION_MIN} to {VERSION_MAX}",
        "upgrade the older node one release at a time",
    )


Judge = Callable[[Identity, Purpose], Refused | None]
"""Says whether a node, whose word is proven, may connect."""
