"""How two nodes learn who is at the other end of a connection. Pure: bytes in, bytes out.

    who opened                                    who accepted
    Hello(who, purpose, whom I mean, nonce)  ->
                                             <-   Hello(who, nonce), or a Refusal
    Proof(HMAC of both hellos)               ->
                                             <-   Proof(HMAC of both hellos), or a Refusal

Both tags and the keys of the frames that follow are HMAC-SHA256 by the cluster's secret of both
hellos, each with a label of its own: a tag is good for one side of one connection. Who knocks at a
port gets nothing to try secrets on before it has proven its own.

A refusal behind the proof of who opened has a tag too, which covers its words. One without, as
those of older nodes, may come from anybody: it is believed under TLS, from a node of the cluster.

Without a secret nothing is proven, so both ends must be loopback addresses.

Under TLS all of that is bound to the connection: the hash of the certificate of who accepted is in
what both sides prove. Somebody in between has another certificate, and gets two proofs that fit
nothing. A certificate that the cluster has signed names the node, and the hello must be that
node's. Without one a node may make single calls only (ask who is there, and for a certificate), and
so may an operator's program. A node that was told a pin proves nothing before it has seen that the
CA is the one that is pinned: it comes with the other side's hello.

What does not begin with the magic is a program of seed 002, which says no hello, or no friend.
"""

from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from typing import Final, NamedTuple

from msgspec import structs

from headrace.cluster.transport.foreign import CLIENT_START_BYTES, foreign_refusal
from headrace.cluster.transport.hello import (
    ANY_NODE,
    AUTHORITIES_MAX,
    MAGIC,
    Hello,
    Identity,
    Judge,
    Proof,
    Purpose,
    Refusal,
    Word,
    encode_word,
    take_word,
    versions_of,
)
from headrace.cluster.transport.refusals import (
    BROKEN_OFF,
    CERTIFICATE_MISSING,
    CLIENT_NOT_LOOPBACK,
    CLOSED_EARLY,
    MALFORMED,
    NOT_LOOPBACK,
    SECRET_MISSING,
    SECRET_UNEXPECTED,
    WRONG_SECRET,
    Reason,
    Refused,
    told_by_peer,
    wrong_certificate,
)
from headrace.ids import BrokerId as NodeId
from headrace.security.node_names import NodeName


class Established(NamedTuple):
    """Both sides know each other."""

    peer: Identity
    purpose: Purpose
    send_key: bytes | None
    receive_key: bytes | None
    rest: bytes
    """What arrived behind the handshake: the first bytes of frames."""
    is_certified: bool = True
    """Whether a certificate of the cluster says who it is; without TLS the secret has to do."""


class SeedClient(NamedTuple):
    """A program that speaks seed 002 without a hello."""

    first_bytes: bytes


class Step(NamedTuple):
    """What to send, and how the handshake ended; None if it goes on."""

    send: bytes
    outcome: Established | SeedClient | Refused | None


_WAITING: Final = Step(b"", None)


class Channel(NamedTuple):
    """What TLS says of a connection, before a word of the handshake."""

    binding: bytes
    """The hash of the certificate of who accepted: both sides of one connection have the same."""
    peer: NodeName | None
    """Which node the peer's certificate is for, if the cluster has signed it."""
    authorities: tuple[bytes, ...] = ()
    """The CAs to show to who opened."""
    check_pin: Callable[[tuple[bytes, ...]], NodeName | Refused] | None = None
    """Says, from the CAs that the other side shows, which node it is; for one that has a pin."""


class Local(NamedTuple):
    """What a node brings to a handshake."""

    identity: Identity
    secret: bytes | None
    nonce: bytes
    """New for every connection."""
    is_loopback: bool
    """Whether both ends of the connection are loopback addresses."""
    channel: Channel | None = None
    """None without TLS."""

    @property
    def binding(self) -> bytes:
        return b"" if self.channel is None else self.channel.binding


class Initiator:
    """The side that opened the connection."""

    def __init__(self, local: Local, *, to: NodeId | None, purpose: Purpose) -> None:
        self._local = local
        self._to = to
        self._purpose = purpose
        self._own = encode_word(_hello(local, purpose, ANY_NODE if to is None else to))
        self._received = bytearray()
        self._has_word = False
        self._peer: Hello | None = None
        self._transcript = b""
        self._versions = b""
        self._ended = False

    def start(self) -> Step:
        """Return the first word, or why nothing is to be said on this connection."""
        if self._local.secret is None and not self._local.is_loopback:
            return self._end(NOT_LOOPBACK)
        return Step(self._own, None)

    def receive(self, data: bytes) -> Step:
        if self._ended:
            return _WAITING
        self._received += data
        refused = None if self._has_word else foreign_refusal(self._received)
        if refused is not None:
            return self._end(refused)
        if len(self._received) < 4:
            return _WAITING  # more is needed to tell what it is
        taken = take_word(self._received)
        if taken is None:
            return _WAITING
        return self._end(taken) if isinstance(taken, Refused) else self._on_word(*taken)

    def _on_word(self, word: Word, its_bytes: bytes) -> Step:
        self._has_word = True
        if isinstance(word, Refusal):
            is_proven = self._is_proven(word)
            return self._end(
                told_by_peer(word.reason, word.sentence, word.remedy, is_proven=is_proven)
            )
        if isinstance(word, Hello) and self._peer is None:
            return self._on_hello(word, its_bytes)
        is_same_version = versions_of(its_bytes) == self._versions
        if isinstance(word, Proof) and self._peer is not None and is_same_version:
            return self._on_proof(word, self._peer)
        return self._end(MALFORMED)

    def closed(self) -> Refused:
        """Return what it means that the other side hung up now."""
        return BROKEN_OFF if self._has_word else CLOSED_EARLY

    def _on_hello(self, hello: Hello, its_bytes: bytes) -> Step:
        refused = (
            _identity_refusal(self._local, hello)
            or self._aim_refusal(hello)
            or self._certificate_refusal(hello)
        )
        if refused is not None:
            return self._end(refused)
        self._peer = hello
        self._versions = versions_of(its_bytes)
        self._transcript = sha256(self._own + its_bytes + self._local.binding).digest()
        tag = _tag(self._local.secret, _INITIATOR_PROOF, self._transcript)
        return Step(encode_word(Proof(tag)), None)

    def _on_proof(self, proof: Proof, peer: Hello) -> Step:
        secret = self._local.secret
        if not compare_digest(proof.tag, _tag(secret, _ACCEPTOR_PROOF, self._transcript)):
            return self._end(WRONG_SECRET)
        if (refused := _duplicate_refusal(self._local, peer)) is not None:
            return self._end(refused)
        self._ended = True
        outgoing = _key(secret, _FROM_INITIATOR, self._transcript)
        incoming = _key(secret, _FROM_ACCEPTOR, self._transcript)
        rest = bytes(self._received)
        return Step(b"", Established(peer.identity(), self._purpose, outgoing, incoming, rest))

    def _is_proven(self, refusal: Refusal) -> bool:
        """Return whether a refusal comes from a node of the cluster."""
        secret, channel = self._local.secret, self._local.channel
        if channel is not None and channel.peer is not None:
            return self._to is None or channel.peer.node == self._to
        if self._peer is None:
            return secret is None  # on loopback, where nothing is proven
        return compare_digest(refusal.tag, _refusal_tag(secret, self._transcript, refusal))

    def _certificate_refusal(self, hello: Hello) -> Refused | None:
        channel = self._local.channel
        if channel is None:
            return None
        peer = channel.peer
        if peer is None and channel.check_pin is not None:
            checked = channel.check_pin(hello.authorities)
            if isinstance(checked, Refused):
                return checked
            peer = checked
        return _name_refusal(peer, hello)

    def _aim_refusal(self, hello: Hello) -> Refused | None:
        if hello.purpose is not self._purpose:
            return MALFORMED
        if self._to is None or hello.node == self._to:
            return None
        return Refused(
            Reason.WRONG_NODE,
            f"node {hello.node} is at the address of node {self._to}",
            f"check the advertised address of node {self._to}",
        )

    def _end(self, refused: Refused) -> Step:
        self._ended = True
        self._received.clear()
        return Step(b"", refused)


class Acceptor:
    """The side that the connection was opened to."""

    def __init__(self, local: Local, judge: Judge) -> None:
        self._local = local
        self._judge = judge
        self._received = bytearray()
        self._peer: Hello | None = None
        self._transcript = b""
        self._versions = b""
        self._ended = False

    def receive(self, data: bytes) -> Step:
        if self._ended:
            return _WAITING
        self._received += data
        if self._received and self._received[0] != MAGIC[0]:
            return self._on_client()
        taken = take_word(self._received)
        if taken is None:
            return _WAITING
        return self._refuse(taken) if isinstance(taken, Refused) else self._on_word(*taken)

    def _on_word(self, word: Word, its_bytes: bytes) -> Step:
        if isinstance(word, Hello) and self._peer is None:
            return self._on_hello(word, its_bytes)
        is_same_version = versions_of(its_bytes) == self._versions
        if isinstance(word, Proof) and self._peer is not None and is_same_version:
            return self._on_proof(word, self._peer)
        return self._refuse(MALFORMED)

    def closed(self) -> Refused:
        return BROKEN_OFF

    def _on_client(self) -> Step:
        """Handle bytes without the magic. Send no reply: the peer could not read it."""
        foreign = foreign_refusal(self._received)
        if foreign is None and len(self._received) < CLIENT_START_BYTES:
            return _WAITING
        self._ended = True
        if foreign is None and not self._local.is_loopback:
            foreign = CLIENT_NOT_LOOPBACK
        return Step(b"", foreign or SeedClient(bytes(self._received)))

    def _on_hello(self, hello: Hello, its_bytes: bytes) -> Step:
        local = self._local
        if local.secret is None and not local.is_loopback:
            return self._refuse(NOT_LOOPBACK)
        refused = _identity_refusal(local, hello) or self._aim_refusal(hello)
        if refused is None and local.channel is not None:
            refused = _name_refusal(local.channel.peer, hello)
        if refused is not None:
            return self._refuse(refused)
        own = encode_word(_hello(local, hello.purpose, hello.node, shows_authorities=True))
        self._peer = hello
        self._versions = versions_of(its_bytes)
        self._transcript = sha256(its_bytes + own + local.binding).digest()
        if self._received:
            return self._refuse(MALFORMED)  # a proof of what it cannot have seen yet
        return Step(own, None)

    def _on_proof(self, proof: Proof, peer: Hello) -> Step:
        secret = self._local.secret
        if not compare_digest(proof.tag, _tag(secret, _INITIATOR_PROOF, self._transcript)):
            return self._refuse(WRONG_SECRET)
        identity = peer.identity()
        refused = _duplicate_refusal(self._local, peer) or self._judge(identity, peer.purpose)
        if refused is not None:
            return self._refuse(refused, is_proving=True)
        self._ended = True
        tag = _tag(secret, _ACCEPTOR_PROOF, self._transcript)
        outgoing = _key(secret, _FROM_ACCEPTOR, self._transcript)
        incoming = _key(secret, _FROM_INITIATOR, self._transcript)
        rest = bytes(self._received)
        channel = self._local.channel
        is_certified = channel is None or channel.peer is not None
        established = Established(
            identity, peer.purpose, outgoing, incoming, rest, is_certified=is_certified
        )
        return Step(encode_word(Proof(tag)), established)

    def _aim_refusal(self, hello: Hello) -> Refused | None:
        own = self._local.identity.node
        if hello.to in (ANY_NODE, own):
            return None
        return Refused(
            Reason.WRONG_NODE,
            f"node {own} is at the address of node {hello.to}",
            f"check the advertised address of node {hello.to}",
        )

    def _refuse(self, refused: Refused, *, is_proving: bool = False) -> Step:
        self._ended = True
        self._received.clear()
        refusal = _refusal(refused)
        if is_proving:
            tag = _refusal_tag(self._local.secret, self._transcript, refusal)
            refusal = structs.replace(refusal, tag=tag)
        return Step(encode_word(refusal), refused)


def encode_refusal(refused: Refused) -> bytes:
    return encode_word(_refusal(refused))


def duplicate_node(node: int) -> Refused:
    return Refused(
        Reason.DUPLICATE_NODE_ID,
        f"two nodes with different data folders call themselves node {node}",
        "give one of them another node.id, or remove the old one from the cluster first",
    )


def _identity_refusal(local: Local, hello: Hello) -> Refused | None:
    """Return what is wrong with the identity a peer claims, before it is proven."""
    own = local.identity
    if hello.has_secret != (local.secret is not None):
        return SECRET_UNEXPECTED if hello.has_secret else SECRET_MISSING
    if own.cluster_id and hello.cluster_id and own.cluster_id != hello.cluster_id:
        return Refused(
            Reason.WRONG_CLUSTER,
            f"node {own.node} is of cluster {own.cluster_id}, node {hello.node} of cluster "
            f"{hello.cluster_id}",
            "correct the addresses of the seeds, or start the node with an empty data folder",
        )
    if (hello.node, hello.folder_id, hello.boot_epoch) == own[:3]:
        return Refused(
            Reason.SELF_CONNECTION,
            f"node {own.node} has connected to itself",
            "remove its own address from those of its peers",
        )
    return None


def _duplicate_refusal(local: Local, hello: Hello) -> Refused | None:
    """Return what is wrong with a peer that has proven that it is of the cluster.

    Not before: a node that joins gives up when it hears of it.
    """
    own = local.identity
    if hello.node != own.node:
        return None
    refused = duplicate_node(own.node)
    if hello.folder_id == own.folder_id:
        return refused._replace(
            sentence=f"two processes call themselves node {own.node}, and the data folder of one "
            "is a copy of the other's",
            remedy="stop one of them, and never run a copy of a data folder",
        )
    return refused


def _name_refusal(name: NodeName | None, hello: Hello) -> Refused | None:
    """Return what is wrong with the certificate of a peer that says hello."""
    if name is None:
        return None if hello.purpose is Purpose.ONE_CALL else CERTIFICATE_MISSING
    if name == (hello.node, hello.folder_id):
        return None
    return wrong_certificate(hello.node, name.node)


def _hello(local: Local, purpose: Purpose, to: int, *, shows_authorities: bool = False) -> Hello:
    node, folder_id, boot_epoch, cluster_id = local.identity
    has_secret = local.secret is not None
    hello = Hello(node, folder_id, boot_epoch, cluster_id, purpose, to, has_secret, local.nonce)
    if shows_authorities and local.channel is not None:
        hello = structs.replace(hello, authorities=local.channel.authorities[-AUTHORITIES_MAX:])
    return hello


_INITIATOR_PROOF: Final = b"headrace transport 1: proof of who opened\0"
_ACCEPTOR_PROOF: Final = b"headrace transport 1: proof of who accepted\0"
_REFUSAL_PROOF: Final = b"headrace transport 1: refusal of who accepted\0"
_FROM_INITIATOR: Final = b"headrace transport 1: frames of who opened\0"
_FROM_ACCEPTOR: Final = b"headrace transport 1: frames of who accepted\0"


def _tag(secret: bytes | None, label: bytes, transcript: bytes) -> bytes:
    return b"" if secret is None else hmac_digest(secret, label + transcript, "sha256")


def _refusal(refused: Refused) -> Refusal:
    return Refusal(int(refused.reason), refused.sentence, refused.remedy)


def _refusal_tag(secret: bytes | None, transcript: bytes, refusal: Refusal) -> bytes:
    words = encode_word(structs.replace(refusal, tag=b""))
    return _tag(secret, _REFUSAL_PROOF, transcript + words)


def _key(secret: bytes | None, label: bytes, transcript: bytes) -> bytes | None:
    return None if secret is None else hmac_digest(secret, label + transcript, "sha256")
