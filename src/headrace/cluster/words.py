"""What nodes say to each other besides Raft and seed 002: the payloads of calls, by kind.

Kinds of Headrace's own begin at 64, behind all that seed 002 may come to have.
"""

from struct import Struct as Layout
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headrace.wire.schema import Buffer

PROPOSE: Final = 66
"""An entry of the metadata log for the leader of a term; `pack_proposal` makes the payload."""
HEARTBEAT: Final = 67
REGISTER: Final = 69
ASK: Final = 70
"""What a node is: the first question of one that starts."""
DESCRIBE_QUORUM: Final = 71
"""How far the members of the metadata log are; only the leader knows."""
ENROL: Final = 72
"""A certificate for a node: the first one, by secret and token, or the next one, by the last."""
CERTIFICATES: Final = 73
"""What a node has and trusts; only nodes with a certificate may ask."""
RENEW: Final = 74
CA_KEY: Final = 75
"""The key of a CA, among nodes that vote."""

OPERATE: Final = 80
"""What an operator asks of a node: see `operator_words`."""

_Epoch = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Address = Annotated[str, Meta(max_length=300)]
_Text = Annotated[str, Meta(max_length=2000)]
_Certificate = Annotated[bytes, Meta(max_length=8192)]
_Fingerprint = Annotated[bytes, Meta(min_length=32, max_length=32)]


class _Word(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The form they share: an array that begins with the name of the class."""


class Failed(_Word, frozen=True):
    """Nothing was done, or it is not known whether."""

    code: int
    """Kafka's error code."""
    message: _Text
    is_uncertain: bool = False
    may_retry: bool = False
    """Whether the next leader may take it."""


class Proposed(_Word, frozen=True):
    """An entry is applied by the leader."""

    index: _Epoch


class Ask(_Word, frozen=True):
    """Announce this node and ask what the other one is."""

    address: _Address
    """The node port of the node that asks."""


class Blank(_Word, frozen=True):
    """A node without a cluster, and the seeds that it was given."""

    seeds: tuple[_Address, ...]


class Forming(_Word, frozen=True):
    """A node that is about to found a cluster."""


class Member(_Word, frozen=True):
    """A node of a cluster."""

    cluster_id: str
    leader: _Address
    """The node port of the leader, empty if the node knows none."""
    is_stranger: bool = False
    """Whether the node that asks is not in the metadata log; only the controller knows."""


class Register(_Word, frozen=True):
    """A node starts: it joins the cluster, or comes back to it."""

    address: _Address
    """The address of its node port."""
    broker: bytes
    """A RegisterBroker, encoded."""
    clean_epoch: int
    """The broker epoch in which it last closed its logs, -1 if it did not."""
    token: _Text = ""


class Registered(_Word, frozen=True):
    """A node is in the metadata log."""

    cluster_id: str
    broker_epoch: _Epoch
    index: _Epoch
    """The index of the entry; the node is up to date once it has applied it."""
    nodes: dict[int, _Address]
    """The node ports of the cluster."""


class Redirected(_Word, frozen=True):
    """Somebody else leads."""

    address: _Address


class Heartbeat(_Word, frozen=True):
    """A node is alive."""

    broker_epoch: _Epoch
    applied_index: _Epoch
    is_stopping: bool = False


class Heard(_Word, frozen=True):
    """What the controller holds of a node."""

    is_fenced: bool
    may_stop: bool = False
    """Whether everything is handed over that a stopping node led."""


class DescribeQuorum(_Word, frozen=True):
    """Ask how far the members of the metadata log are."""


class QuorumMember(msgspec.Struct, frozen=True, array_like=True):
    """A voter or learner, as its leader sees it."""

    node: int
    is_voter: bool
    match_index: _Epoch
    """Up to here its log is the leader's, and durable."""
    silent_ms: int
    """How long ago it last responded, -1 if it has not in this term; the leader's own is 0."""
    behind_ms: int
    """How long ago it had all that the leader had, -1 if it had not in this term."""


class Quorum(_Word, frozen=True):
    """The metadata log of a leader, and its members."""

    leader: int
    term: _Epoch
    commit: _Epoch
    members: tuple[QuorumMember, ...]


class Enrol(_Word, frozen=True):
    """A node wants a certificate for the key of this request (CSR)."""

    address: _Address
    """The address of its node port."""
    request: _Certificate
    token: _Text = ""


class Enrolled(_Word, frozen=True):
    """A certificate, and the CAs of the cluster."""

    certificate: _Certificate
    authorities: tuple[_Certificate, ...]


class DescribeCertificates(_Word, frozen=True):
    """Ask which certificate a node has, and whom it trusts."""


class Certificates(_Word, frozen=True):
    """What a node has; CAs are named by the SHA-256 of their certificates."""

    trusted: tuple[_Fingerprint, ...]
    signer: bytes
    """The signer of its own certificate."""
    expires_s: int
    keys: tuple[_Fingerprint, ...]
    """The CAs whose keys it has."""


class Renew(_Word, frozen=True):
    """Ask a node to renew its certificate, whatever its age."""


class Renewing(_Word, frozen=True):
    """The node asks for a certificate now."""


class TakeKey(_Word, frozen=True):
    """Ask for the key of a CA, as a voter."""

    fingerprint: _Fingerprint


class CaKey(_Word, frozen=True):
    """The key of a CA, in PEM. It crosses TLS between two nodes that vote, and nothing else."""

    key: _Text
    certificate: _Certificate

    def __repr__(self) -> str:
        return "CaKey(hidden)"


Request = (
    Ask | Register | Heartbeat | DescribeQuorum | Enrol | DescribeCertificates | Renew | TakeKey
)
Response = (
    Failed
    | Proposed
    | Blank
    | Forming
    | Member
    | Registered
    | Redirected
    | Heard
    | Quorum
    | Enrolled
    | Certificates
    | Renewing
    | CaKey
)

encode: Final = msgspec.msgpack.Encoder().encode
_requests: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_responses: Final[msgspec.msgpack.Decoder[Response]] = msgspec.msgpack.Decoder(Response)


def decode_request(payload: Buffer) -> Request:
    """Read a request; msgspec.MsgspecError if it is none."""
    return _requests.decode(payload)


def decode_response(payload: Buffer) -> Response:
    """Read a response; msgspec.MsgspecError if it is none."""
    return _responses.decode(payload)


def pack_proposal(term: int, data: bytes) -> bytes:
    """Return the payload of a PROPOSE: a term, and an entry for its leader."""
    return _TERM.pack(term) + data


def unpack_proposal(payload: Buffer) -> tuple[int, bytes]:
    """Return the term and the entry of a PROPOSE; ValueError if it is none."""
    if len(payload) < _TERM.size:
        raise ValueError(f"a proposal of {len(payload)} bytes")
    (term,) = _TERM.unpack_from(payload)
    return term, bytes(payload[_TERM.size :])


_TERM: Final = Layout(">Q")
