"""Why a connection between nodes is refused: a reason to count, a sentence and a remedy to read."""

from enum import IntEnum, unique
from typing import Final, NamedTuple

TEXT_CHARACTERS_MAX: Final = 400


@unique
class Reason(IntEnum):
    """The numbers are those of the wire; a newer peer may send others."""

    UNKNOWN = 0
    MALFORMED = 1
    UNSUPPORTED_VERSION = 2
    WRONG_CLUSTER = 3
    WRONG_SECRET = 4
    SECRET_MISSING = 5
    """The other side has no secret, this one has."""
    SECRET_UNEXPECTED = 6
    """The other side has a secret, this one has none."""
    NOT_LOOPBACK = 7
    DUPLICATE_NODE_ID = 8
    OLD_LIFE = 9
    SELF_CONNECTION = 10
    WRONG_NODE = 11
    NOT_HEADRACE = 12
    TOO_MANY_CONNECTIONS = 13
    TIMED_OUT = 14
    FORGED_FRAME = 15
    """A frame that is a copy, out of order or not the peer's."""
    FRAME_TOO_LARGE = 16
    CLOSING = 17
    NO_PEER = 18
    """A program of an operator, which may make single calls only."""
    TLS_EXPECTED = 19
    """The other side speaks in plain text, this one speaks TLS."""
    CERTIFICATE_MISSING = 20
    """The other side has no certificate of the cluster, and wants more than to get one."""
    WRONG_CERTIFICATE = 21
    """A certificate for another node, or of another authority."""
    TLS_FAILED = 22
    TAKEN_NODE_ID = 23
    """DUPLICATE_NODE_ID by the word of the controller, which has all that is committed."""


class Refused(NamedTuple):
    """A refusal, here or by the other side."""

    reason: Reason
    sentence: str
    remedy: str
    is_by_peer: bool = False
    is_proven: bool = True
    """False for the word of a peer that has not shown that it is of the cluster: log it, do not
    act on it."""

    def __str__(self) -> str:
        return f"{self.sentence}; {self.remedy}" if self.remedy else self.sentence


def told_by_peer(number: int, sentence: str, remedy: str, *, is_proven: bool) -> Refused:
    """Return what the other side says, with nothing in it that a terminal would act on."""
    try:
        reason = Reason(number)
    except ValueError:
        reason = Reason.UNKNOWN
    return Refused(
        reason, _printable(sentence), _printable(remedy), is_by_peer=True, is_proven=is_proven
    )


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text[:TEXT_CHARACTERS_MAX])


MALFORMED: Final = Refused(
    Reason.MALFORMED,
    "the handshake has bytes that no node of Headrace sends",
    "check that the address is a node port and that no proxy changes what passes",
)
TLS_EXPECTED: Final = Refused(
    Reason.TLS_EXPECTED,
    "nodes of this cluster speak TLS to each other, and this connection does not",
    "headrace.node.tls must be the same on all nodes of a cluster",
)
CERTIFICATE_MISSING: Final = Refused(
    Reason.CERTIFICATE_MISSING,
    "a node without a certificate of this cluster may only ask for one",
    "start the node again; if its certificate has expired, with a new join token",
)
CLOSED_EARLY: Final = Refused(
    Reason.NOT_HEADRACE,
    "the other side hung up without a word of the handshake",
    "check that the address is a node port (9093), not the one of Kafka's clients (9092)",
)
BROKEN_OFF: Final = Refused(
    Reason.UNKNOWN,
    "the other side hung up in the middle of the handshake",
    "its log says why",
)
TIMED_OUT: Final = Refused(
    Reason.TIMED_OUT,
    "the handshake took too long",
    "check that the address is a node port and that the node is not overloaded",
)
NOT_LOOPBACK: Final = Refused(
    Reason.NOT_LOOPBACK,
    "without a cluster secret nodes only speak to each other on loopback addresses",
    "give every node the same cluster secret",
)
WRONG_SECRET: Final = Refused(
    Reason.WRONG_SECRET,
    "the cluster secrets of the two nodes differ, or somebody is between them",
    "give every node the same cluster secret",
)
SECRET_MISSING: Final = Refused(
    Reason.SECRET_MISSING,
    "a node without a cluster secret speaks to one that has it",
    "give every node the same cluster secret",
)
SECRET_UNEXPECTED: Final = Refused(
    Reason.SECRET_UNEXPECTED,
    "a node with a cluster secret speaks to one that has none",
    "give every node the same cluster secret",
)
TOO_MANY_CONNECTIONS: Final = Refused(
    Reason.TOO_MANY_CONNECTIONS,
    "this node has as many connections of nodes as it takes",
    "look for programs that connect to the node port again and again",
)
FORGED_FRAME: Final = Refused(
    Reason.FORGED_FRAME,
    "a frame is a copy, out of order or was not sent by the peer",
    "look for a proxy or an attacker between the two nodes",
)
OPERATOR_IS_NO_PEER: Final = Refused(
    Reason.NO_PEER,
    "the node id 2147483647 is that of operators' programs, which are no peers",
    "give the node another node.id",
)


def wrong_certificate(node: int, named: int | None) -> Refused:
    """Return the refusal of a node whose certificate is for another one."""
    whose = "no node" if named is None else f"node {named}, or another data folder"
    return Refused(
        Reason.WRONG_CERTIFICATE,
        f"what calls itself node {node} has the certificate of {whose}",
        "check the addresses of the nodes, and that no data folder was copied",
    )


def not_pinned(why: str) -> Refused:
    """Return the refusal of a node that a joining one was not told to trust."""
    return Refused(
        Reason.WRONG_CERTIFICATE,
        f"the other side is not of the cluster that the join token is for: {why}",
        "look for a proxy or an attacker between the two nodes; or create another token",
    )


def tls_failed(why: str) -> Refused:
    return Refused(
        Reason.TLS_FAILED,
        f"TLS with the other side failed: {why}",
        "the log of the other side says more; headrace.node.tls must be the same on all nodes",
    )


CLIENT_NOT_LOOPBACK: Final = Refused(
    Reason.NOT_LOOPBACK,
    "programs that are no nodes are served on loopback addresses only",
    "connect from the machine of the node, or to the port of Kafka's clients",
)
