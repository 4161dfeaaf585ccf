"""The certificate of a node, whom it trusts, and the TLS contexts that follow from both.

    tls = NodeTls(disk, NodeName(3, folder_id), pins, clock.now_ms)     # a LinkTls
    request = tls.request()                          # a new key, and the CSR for it
    tls.install(certificate, authorities)            # durable on return
    tls.trust(authorities)                           # as the metadata log has them
    change = tls.installing(certificate, authorities)    # or so, where the loop must not wait,
    change = tls.trusting(authorities)                   # or so
    await tls.adopt(change)

What cannot be stored is not used: a node goes on with what it had.
Until it has a certificate of the cluster, a node shows one that it has signed itself, which says
nothing: its peers go by the pin or by the secret then. New connections take new contexts, those
that are open stay.
"""

import asyncio
import hashlib
import ssl
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, NamedTuple

from headrace.cluster.encryption.key_files import (
    NODE_FILE,
    NodeFile,
    in_thread,
    load_node,
    store_node,
    unreadable,
)
from headrace.cluster.transport.handshake import Channel
from headrace.cluster.transport.refusals import Refused, not_pinned
from headrace.log.disk import Disk
from headrace.security.key_stores import as_file
from headrace.security.node_certificates import (
    BadCertificate,
    PrivateKey,
    Validity,
    check_pinned,
    find_signer,
    fingerprint,
    in_order,
    is_readable,
    is_signed_by,
    key_pem,
    make_request,
    moment,
    new_key,
    node_of,
    pem_of,
    read_key,
    sign_itself,
    validity_of,
)
from headrace.security.node_names import NodeName

_BINDING: Final = b"headrace transport 1: certificate of who accepted\0"


class Context(ssl.SSLContext):
    """A context of TLS 1.3 that remembers the certificate in it."""

    own: bytes = b""
    trusts: bool = False
    """Whether a certificate of the peer was checked if it has shown one."""


class Contexts(NamedTuple):
    """Those of new connections."""

    server: Context
    listener: Context
    client: Context


class Change(NamedTuple):
    """What a node is about to show and to trust."""

    disk: Disk
    key: PrivateKey
    certificate: bytes
    trusted: tuple[bytes, ...]
    contexts: Contexts

    def store(self) -> None:
        """Make it durable; OSError if that fails. Any thread may call it."""
        store_node(self.disk, NodeFile(key_pem(self.key), self.certificate, self.trusted))


class NodeTls:
    """What one node brings to connections with others (`transport.tls.LinkTls`)."""

    def __init__(
        self, disk: Disk, name: NodeName, pins: tuple[str, ...], now_ms: Callable[[], int]
    ) -> None:
        """KeyFileUnreadable if what is stored is damaged. `now_ms` is the wall clock."""
        self.name = name
        self.pins = pins
        """Pins of CAs that came with a join token."""
        self._disk = disk
        self._now_ms = now_ms
        self._requested: PrivateKey | None = None
        self._key = new_key()
        self._certificate = b""
        self._trusted: tuple[bytes, ...] = ()
        self._shown = sign_itself(self._key, name, self.now())
        stored = load_node(disk)
        try:
            if stored is not None:
                self._take_stored(stored)
            self._make_contexts()
        except (BadCertificate, ssl.SSLError) as error:
            raise unreadable(NODE_FILE, str(error)) from None

    def now(self) -> datetime:
        return moment(self._now_ms())

    @property
    def certificate(self) -> bytes:
        """The certificate of the cluster that the node has, empty without one."""
        return self._certificate

    @property
    def validity(self) -> Validity | None:
        return validity_of(self._certificate) if self._certificate else None

    @property
    def is_certified(self) -> bool:
        """Whether the node has a certificate of the cluster that is valid now."""
        validity = self.validity
        if validity is None or not validity.begins <= self.now() <= validity.ends:
            return False
        return self.signer is not None

    @property
    def signer(self) -> bytes | None:
        """The fingerprint of the trusted CA that has signed the certificate."""
        return find_signer(self._certificate, self._trusted) if self._certificate else None

    @property
    def trusted(self) -> tuple[bytes, ...]:
        """The CAs that the node trusts, the newest last."""
        return self._trusted

    def request(self) -> bytes:
        """Return the request for a certificate of a new key, which stays here."""
        self._requested = new_key()
        return make_request(self._requested)

    def install(self, certificate: bytes, authorities: Iterable[bytes]) -> None:
        """Use a certificate that was requested, once it is stored; errors as of `installing`.

        This waits for the disk: for a node that does not serve yet.
        """
        change = self.installing(certificate, authorities)
        change.store()
        self.use(change)

    def installing(self, certificate: bytes, authorities: Iterable[bytes]) -> Change:
        """Return what it takes to use a certificate that was requested.

        BadCertificate if it is not what was asked for.
        """
        key, trusted = self._requested, tuple(in_order(authorities))
        if key is None or node_of(certificate) != self.name:
            raise BadCertificate(f"a certificate that is not for node {self.name.node}")
        if find_signer(certificate, trusted) is None:
            raise BadCertificate("a certificate that none of the cluster's CAs has signed")
        if not _belongs(key, certificate):
            raise BadCertificate("a certificate for another key")
        if self.is_certified and self._rank_of(certificate) < self._rank_of(self._certificate):
            # It was under way while the CA was replaced, and others count on the one that is here.
            raise BadCertificate("a certificate of an older CA than it has one of")
        validity, now = validity_of(certificate), self.now()
        if not validity.begins <= now <= validity.ends:
            raise BadCertificate(
                f"a certificate that is valid from {validity.begins} to {validity.ends}, and here "
                f"it is {now}: set the clocks of this node and of the controller, which signed it"
            )
        return self._change(key, certificate, trusted)

    def set_aside(self) -> None:
        """Show the certificate to nobody until the next start: its time is over."""
        self._certificate = b""
        self._key = new_key()
        self._shown = sign_itself(self._key, self.name, self.now())
        self._make_contexts()

    def trust(self, authorities: Iterable[bytes]) -> bool:
        """Trust these CAs and no others, durably; return whether that is new."""
        change = self.trusting(authorities)
        if change is None:
            return False
        change.store()
        self.use(change)
        return True

    def trusting(self, authorities: Iterable[bytes]) -> Change | None:
        """Return what it takes to trust these CAs and no others, None if that is so."""
        trusted = tuple(in_order(authorities))
        if trusted == self._trusted or not trusted:
            return None
        return self._change(self._key, self._certificate, trusted)

    async def adopt(self, change: Change) -> None:
        """Store a change in a thread, then go by it; OSError if it cannot be stored.

        Until then the node shows and trusts what it did. One change is adopted at a time.
        """
        await in_thread(change.store)
        self.use(change)

    def use(self, change: Change) -> None:
        """Go by a change that is stored. Nothing else may change between its making and this."""
        if change.key is self._requested:
            self._requested = None
        self._key, self._certificate = change.key, change.certificate
        self._trusted = change.trusted
        self._server, self._listener, self._client = change.contexts

    def distrusts(self, certificate: bytes) -> bool:
        """Return whether none of the CAs that are trusted now has signed a certificate."""
        return find_signer(certificate, self._trusted) is None

    # What connections ask for

    def server_context(self) -> ssl.SSLContext:
        return self._server

    def client_context(self) -> ssl.SSLContext:
        return self._client

    def listener_context(self) -> ssl.SSLContext:
        """Return the context of a listener that is for nodes only."""
        if not self._listener.trusts:
            raise ssl.SSLError("this node does not know the CA of its cluster yet")
        return self._listener

    def channel(self, transport: asyncio.Transport) -> Channel:
        tls: ssl.SSLObject = transport.get_extra_info("ssl_object")
        shown = tls.getpeercert(binary_form=True) or b""
        context = tls.context
        assert isinstance(context, Context)
        peer = node_of(shown) if shown and context.trusts else None
        if context.protocol == ssl.PROTOCOL_TLS_SERVER:
            return Channel(binding(context.own), peer, self._trusted)
        checks = None if context.trusts or not self.pins else self._pin_check(shown)
        return Channel(binding(shown), peer, check_pin=checks)

    # Inside

    def _rank_of(self, certificate: bytes) -> int:
        """Return which of the trusted CAs has signed, counted from the oldest, -1 for none."""
        signers = [is_signed_by(certificate, each) for each in self._trusted]
        return signers.index(True) if True in signers else -1

    def _pin_check(self, shown: bytes) -> Callable[[tuple[bytes, ...]], NodeName | Refused]:
        def check(authorities: tuple[bytes, ...]) -> NodeName | Refused:
            try:
                return check_pinned(shown, authorities, self.pins, self.now())
            except BadCertificate as error:
                return not_pinned(str(error))

        return check

    def _take_stored(self, stored: NodeFile) -> None:
        self._trusted = stored.trusted
        if not stored.certificate:
            return
        if not is_readable(stored.certificate):
            raise BadCertificate("its certificate is none")
        if node_of(stored.certificate) == self.name:
            self._key, self._certificate = read_key(stored.key), stored.certificate

    def _change(self, key: PrivateKey, certificate: bytes, trusted: tuple[bytes, ...]) -> Change:
        contexts = _contexts(key, certificate, self._shown, trusted)
        return Change(self._disk, key, certificate, trusted, contexts)

    def _make_contexts(self) -> None:
        made = _contexts(self._key, self._certificate, self._shown, self._trusted)
        self._server, self._listener, self._client = made


class OperatorTls:
    """TLS of an operator's program: the secret proves both sides, bound to the connection."""

    def __init__(self) -> None:
        self._client = _context(ssl.PROTOCOL_TLS_CLIENT, b"", b"")

    def server_context(self) -> ssl.SSLContext:
        raise RuntimeError("an operator's program accepts no connections")

    def client_context(self) -> ssl.SSLContext:
        return self._client

    def channel(self, transport: asyncio.Transport) -> Channel:
        tls: ssl.SSLObject = transport.get_extra_info("ssl_object")
        return Channel(binding(tls.getpeercert(binary_form=True) or b""), None)


def binding(certificate: bytes) -> bytes:
    """Return what both sides of a connection prove that they see: who accepted it."""
    return hashlib.sha256(_BINDING + fingerprint(certificate)).digest()


def _belongs(key: PrivateKey, certificate: bytes) -> bool:
    try:
        _context(ssl.PROTOCOL_TLS_SERVER, (key_pem(key) + pem_of(certificate)).encode(), b"")
    except ssl.SSLError:
        return False
    return True


def _contexts(
    key: PrivateKey, certificate: bytes, shown: bytes, trusted: tuple[bytes, ...]
) -> Contexts:
    """Return the contexts of a node, which shows its own signature without a certificate."""
    own = certificate or shown
    chain = (key_pem(key) + pem_of(own)).encode()
    made = Contexts(
        _context(ssl.PROTOCOL_TLS_SERVER, chain, own),
        _context(ssl.PROTOCOL_TLS_SERVER, chain, own),
        _context(ssl.PROTOCOL_TLS_CLIENT, chain if certificate else b"", certificate),
    )
    if not trusted:
        return made
    for context, mode in (
        (made.server, ssl.CERT_OPTIONAL),  # newcomers and operators have none
        (made.listener, ssl.CERT_REQUIRED),
        (made.client, ssl.CERT_REQUIRED),
    ):
        context.load_verify_locations(cadata="".join(map(pem_of, trusted)))
        context.verify_mode = mode
        context.trusts = True
    return made


def _context(protocol: int, chain: bytes, own: bytes) -> Context:
    context = Context(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.own = own
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # a session that goes on would not be checked again
    if chain:
        with as_file(chain) as name:
            context.load_cert_chain(name)
    return context
