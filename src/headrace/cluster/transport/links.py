"""All connections of a node to other nodes, and of other nodes to it.

    links = Links(identity, secret=secret, address_of=address_of, on_event=log_it)
    links.on_message(RAFT_KIND, take_raft_message)     # (sender, payload) -> None
    links.serve(66, propose_for_a_peer)                # (IncomingCall) -> None
    await links.open("0.0.0.0", 9093)
    links.set_peers(voters)
    response = await links.call(leader, payload, 2000, kind=66)
    await links.close(drain_ms=1000)

The sender that handlers get is the node that the handshake proved. Once a newer life of a node has
been heard of, nothing of an older one is delivered.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Iterable
from ipaddress import ip_address

from headrace.cluster.transport.accepted import AcceptedPeer
from headrace.cluster.transport.calls import (
    KIND_MAX,
    CallError,
    CallHandler,
    MessageHandler,
    NotConnected,
)
from headrace.cluster.transport.connection import NodeConnection
from headrace.cluster.transport.crowd import Crowd
from headrace.cluster.transport.events import (
    Connected,
    ConnectionRefused,
    Disconnected,
    Event,
    LinkState,
    PeerCounters,
)
from headrace.cluster.transport.handshake import Local, duplicate_node
from headrace.cluster.transport.hello import OPERATOR, Identity, Purpose
from headrace.cluster.transport.outgoing import Address, PeerLink
from headrace.cluster.transport.refusals import (
    OPERATOR_IS_NO_PEER,
    TOO_MANY_CONNECTIONS,
    Reason,
    Refused,
)
from headrace.cluster.transport.settings import TransportSettings
from headrace.cluster.transport.tls import LinkTls
from headrace.cluster.transport.tls_accepting import TlsAcceptor
from headrace.ids import BrokerId as NodeId
from headrace.surroundings import new_random, new_uuid
from headrace.wire.schema import Buffer

OnClient = Callable[[asyncio.Transport, bytes], None]
"""Takes a program of seed 002 and what it has sent so far: set a protocol on the transport, feed it
the bytes, then resume reading."""

CLOSING = Refused(Reason.CLOSING, "the node is stopping", "")


class Links:
    """Use it on the loop that it was made on."""

    def __init__(
        self,
        identity: Identity,
        *,
        secret: bytes | None,
        address_of: Callable[[NodeId], Address | None],
        folder_of: Callable[[NodeId], bytes | None] = lambda node: None,
        on_event: Callable[[Event], None] = lambda event: None,
        on_client: OnClient | None = None,
        settings: TransportSettings | None = None,
        tls: LinkTls | None = None,
    ) -> None:
        """Ask `address_of` before every try, and `folder_of` for the data folder a node is known
        to have (None if that is not known yet) when one connects. Without `tls` all is sent in
        plain text, and nothing else is understood."""
        self.identity = identity
        self.settings = TransportSettings() if settings is None else settings
        self.random = new_random()
        self.message_handlers: dict[int, MessageHandler] = {}
        self.call_handlers: dict[int, CallHandler] = {}
        self.operator_kinds: set[int] = set()
        """The kinds of calls that a program of an operator may make."""
        self.newcomer_kinds: set[int] = set()
        """The kinds of calls that a node without a certificate may make, where nodes need one."""
        self.unregistered_kinds: set[int] = set()
        """The kinds of calls that a node with a certificate may make before it is registered."""
        self.may_act: Callable[[Identity], bool] = lambda peer: True
        """Says of every message and most calls whether their sender is of the cluster."""
        self.knows_all: Callable[[], bool] = lambda: False
        """Says whether what this node knows of others is what the cluster has decided."""
        self.refusals: Counter[Reason] = Counter()
        """Refusals of all connections, by this side or the other."""
        self.stranger_refusals: Counter[Reason] = Counter()
        """Refusals of connections whose peer had not proven who it is."""
        self.unreachable: frozenset[NodeId] = frozenset()
        """Nodes that `cut` has cut off."""
        self._secret = secret
        self._tls = tls
        self._address_of = address_of
        self._folder_of = folder_of
        self._on_event = on_event
        self._on_client = on_client
        self._counters: dict[NodeId, PeerCounters] = {}
        self._links: dict[tuple[NodeId, Purpose], PeerLink] = {}
        self._probes: dict[PeerLink, None] = {}
        self._unproven: Crowd[AcceptedPeer] = Crowd(self.settings.unproven_connections_max)
        self._accepted: dict[AcceptedPeer, None] = {}
        self._single_calls: Crowd[AcceptedPeer] = Crowd(self.settings.single_calls_max)
        """Those of the accepted ones that came for one call."""
        self._lives: dict[tuple[NodeId, bytes], int] = {}
        self._server: asyncio.AbstractServer | TlsAcceptor | None = None
        self._is_closing = False
        self._ended = asyncio.Event()
        """Set when a call has ended, for who waits for the last."""

    # What a node calls

    async def open(self, host: str, port: int) -> int:
        """Listen for peers; return the port."""
        loop = asyncio.get_running_loop()
        if self._tls is not None:
            self._server = acceptor = TlsAcceptor(
                self._tls, self.settings, self.accept, self._on_tls_refused
            )
            return acceptor.open(host, port)
        self._server = await loop.create_server(self.accept, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    def accept(self) -> NodeConnection:
        """Return the protocol of a new connection, for a server that somebody else runs."""
        return AcceptedPeer(self).connection

    def on_message(self, kind: int, handler: MessageHandler) -> None:
        """Route messages of a kind to a handler, which raises InvalidPayload for a bad one."""
        self.message_handlers[_checked(kind)] = handler

    def serve(
        self,
        kind: int,
        handler: CallHandler,
        *,
        for_operators: bool = False,
        for_newcomers: bool = False,
        for_unregistered: bool = False,
    ) -> None:
        """Route calls of a kind to a handler, which responds now or later.

        Calls of an operator's program are refused, unless the kind is for operators, and likewise
        those of a node that needs a certificate and has none, or that is not registered.
        """
        self.call_handlers[_checked(kind)] = handler
        if for_newcomers:
            self.newcomer_kinds.add(kind)
        if for_unregistered:
            self.unregistered_kinds.add(kind)
        if for_operators:
            self.operator_kinds.add(kind)

    def set_peers(self, nodes: Iterable[NodeId]) -> None:
        """Connect to these nodes and drop the connections to others."""
        wanted = {node for node in nodes if node != self.identity.node}
        for node, purpose in [key for key in self._links if key[0] not in wanted]:
            self._links.pop((node, purpose)).close("it is not a peer any more", is_gentle=True)
        if not self._is_closing:
            for node in sorted(wanted):
                self._link(node, Purpose.CONTROL).start()

    def address_changed(self, node: NodeId) -> None:
        """Look for a peer at its new address at once."""
        for purpose in Purpose:
            if (link := self._links.get((node, purpose))) is not None:
                link.hurry()

    def cut(self, nodes: Iterable[NodeId]) -> None:
        """Reach these nodes no more, nor be reached by them, as if the network was cut: for tests.

        All others are reached again.
        """
        self.unreachable = frozenset(nodes)
        reason = "the network is cut"
        for (node, _), link in self._links.items():
            if node in self.unreachable:
                link.drop(reason)
            else:
                link.hurry()
        for accepted in tuple(self._accepted):
            if accepted.peer is not None and accepted.peer.node in self.unreachable:
                accepted.connection.close(reason)

    def joined(self, cluster_id: str) -> None:
        """Set the cluster id; connections are reopened with it."""
        self.identity = self.identity._replace(cluster_id=cluster_id)
        for link in self._links.values():
            link.drop("the node has joined a cluster")

    def send(
        self,
        node: NodeId,
        kind: int,
        parts: list[Buffer],
        *,
        purpose: Purpose = Purpose.CONTROL,
        is_urgent: bool = False,
    ) -> bool:
        """Send a message if that is possible now; return whether it may arrive.

        Nothing waits, and nothing says whether it did arrive.
        """
        if (node, Purpose.CONTROL) not in self._links:
            return False
        return self._link(node, purpose).send(kind, parts, is_urgent=is_urgent)

    async def call(
        self,
        node: NodeId,
        payload: Buffer,
        timeout_ms: int,
        *,
        kind: int,
        purpose: Purpose = Purpose.CONTROL,
    ) -> bytes:
        """Return a peer's response, or raise a CallError: at once if there is no connection."""
        if self._is_closing or (node, Purpose.CONTROL) not in self._links:
            raise NotConnected(node, "the node is stopping" if self._is_closing else "no peer")
        return await self._link(node, purpose).call(kind, payload, timeout_ms)

    async def call_address(
        self, address: Address, payload: Buffer, timeout_ms: int, *, kind: int
    ) -> tuple[Identity, bytes]:
        """Call whichever node is at an address, on a connection for this call alone."""
        if self._is_closing:
            raise NotConnected(None, "the node is stopping")
        link = PeerLink(self, None, Purpose.ONE_CALL, address=address)
        self._probes[link] = None
        try:
            response = await link.call(kind, payload, timeout_ms)
            peer = link.peer
            if peer is None:
                raise NotConnected(None, "the connection was lost")
            return peer, response
        except CallError as error:
            error.refused = link.last_refusal
            raise
        finally:
            del self._probes[link]
            link.close("the call is over", is_gentle=True)

    def connected(self, node: NodeId) -> Identity | None:
        """Return who is connected as a peer, None if nobody is."""
        link = self._links.get((node, Purpose.CONTROL))
        return None if link is None else link.peer

    def has_accepted(self, node: NodeId) -> bool:
        """Return whether a connection that a node opened is there."""
        return any(
            accepted.peer is not None and accepted.peer.node == node for accepted in self._accepted
        )

    def drop_certified(self, is_distrusted: Callable[[bytes], bool]) -> None:
        """End connections whose peer has shown a certificate that is not trusted any more."""
        reason = "its certificate is not trusted any more"
        for link in self._links.values():
            if (shown := link.certificate()) and is_distrusted(shown):
                link.drop(reason)
        for accepted in tuple(self._accepted):
            shown = accepted.connection.certificate
            if shown and is_distrusted(shown):
                accepted.connection.close(reason)

    def drop_life(self, node: NodeId, folder_id: bytes) -> None:
        """End connections with a node that has left the cluster, or has another folder now."""
        reason = f"node {node} with this data folder is not of the cluster any more"
        for link in self._links.values():
            if link.peer is not None and (link.peer.node, link.peer.folder_id) == (node, folder_id):
                link.drop(reason)
        for accepted in tuple(self._accepted):
            peer = accepted.peer
            if peer is not None and (peer.node, peer.folder_id) == (node, folder_id):
                accepted.connection.close(reason)

    def describe(self) -> list[LinkState]:
        return [self._links[key].describe() for key in sorted(self._links)]

    @property
    def counters(self) -> dict[NodeId, PeerCounters]:
        return self._counters

    @property
    def accepted_count(self) -> int:
        return len(self._accepted) + len(self._unproven)

    async def close(self, drain_ms: int = 0) -> None:
        """Refuse new connections and calls; return when those in flight end or time is up."""
        self._is_closing = True
        if self._server is not None:
            self._server.close()
        try:
            async with asyncio.timeout(drain_ms / 1000):
                while self._is_busy():
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            pass
        self._end(is_gentle=True)

    def crash(self) -> None:
        """End everything at once."""
        self._is_closing = True
        if self._server is not None:
            self._server.close()
        self._end(is_gentle=False)

    # What connections call

    def local(self, transport: asyncio.Transport) -> Local:
        is_loopback = all(
            is_loopback_address(transport.get_extra_info(end)) for end in ("peername", "sockname")
        )
        nonce = new_uuid().bytes + new_uuid().bytes
        channel = None if self._tls is None else self._tls.channel(transport)
        return Local(self.identity, self._secret, nonce, is_loopback, channel)

    def tls_context(self) -> ssl.SSLContext | None:
        return None if self._tls is None else self._tls.client_context()

    def address_of(self, node: NodeId) -> Address | None:
        return None if node in self.unreachable else self._address_of(node)

    def judge(self, peer: Identity) -> Refused | None:
        """Return why an authenticated node is refused, or None."""
        if self._is_closing or peer.node in self.unreachable:
            return CLOSING
        folder = self._folder_of(peer.node)
        if folder is not None and folder != peer.folder_id:
            refused = duplicate_node(peer.node)
            return refused._replace(reason=Reason.TAKEN_NODE_ID) if self.knows_all() else refused
        newest = self._lives.get((peer.node, peer.folder_id), 0)
        if peer.boot_epoch < newest:
            return Refused(
                Reason.OLD_LIFE,
                f"node {peer.node} has boot epoch {peer.boot_epoch}, and {newest} was seen",
                "stop the older process; if its data folder was restored, join it as a new node",
            )
        return None

    def judge_accepted(self, peer: Identity, purpose: Purpose) -> Refused | None:
        lasting = len(self._accepted) - len(self._single_calls)
        is_lasting = purpose is not Purpose.ONE_CALL
        if is_lasting and lasting >= self.settings.accepted_connections_max:
            return TOO_MANY_CONNECTIONS
        if peer.node == OPERATOR:
            if purpose is not Purpose.ONE_CALL:
                return OPERATOR_IS_NO_PEER
            return CLOSING if self._is_closing else None
        if self._folder_of(peer.node) is None and any(
            each.node == peer.node and each.folder_id != peer.folder_id
            for each in (accepted.peer for accepted in self._accepted)
            if each is not None
        ):
            return duplicate_node(peer.node)
        return self.judge(peer)

    def admit(self, accepted: AcceptedPeer) -> bool:
        if self._is_closing:
            return False
        leaving = self._unproven.add(accepted, accepted.connection.address)
        if leaving is not None:
            leaving[0].connection.refuse(TOO_MANY_CONNECTIONS)
        return True

    def note_accepted(self, accepted: AcceptedPeer) -> None:
        """Replace older connections of the same node and purpose by a new one."""
        peer = accepted.peer
        assert peer is not None
        self._unproven.discard(accepted)
        for each in tuple(self._accepted):
            is_same = each.peer is not None and each.peer.node == peer.node
            is_lasting = accepted.purpose is not Purpose.ONE_CALL
            if is_same and is_lasting and each.purpose is accepted.purpose:
                each.connection.close("the peer has connected again")
        self._accepted[accepted] = None
        if accepted.purpose is Purpose.ONE_CALL:
            leaving = self._single_calls.add(accepted, accepted.connection.address)
            if leaving is not None:
                leaving[0].connection.refuse(TOO_MANY_CONNECTIONS)
        if accepted.is_certified:  # else it may be anybody who has the secret
            self.note_connected(peer)
        self.emit(Connected(peer, accepted.purpose, False))

    def note_connected(self, peer: Identity) -> None:
        """Remember a life of a node, and end what is left of older ones."""
        if peer.node == OPERATOR:
            return
        key = peer.node, peer.folder_id
        newest = self._lives.pop(key, 0)
        self._lives[key] = max(newest, peer.boot_epoch)
        while len(self._lives) > self.settings.remembered_lives_max:
            del self._lives[next(iter(self._lives))]
        if peer.boot_epoch > newest:
            reason = f"node {peer.node} has started again"
            for accepted in tuple(self._accepted):
                if accepted.peer is not None and _is_older(accepted.peer, peer):
                    accepted.connection.close(reason)
            for link in self._links.values():
                if link.peer is not None and _is_older(link.peer, peer):
                    link.drop(reason)

    def note_gone(self, accepted: AcceptedPeer, reason: str) -> None:
        self._unproven.discard(accepted)
        self._single_calls.discard(accepted)
        if accepted in self._accepted:
            del self._accepted[accepted]
            assert accepted.peer is not None
            self.emit(Disconnected(accepted.peer, accepted.purpose, False, reason))
        self._ended.set()

    def note_client(self, accepted: AcceptedPeer, first_bytes: bytes) -> None:
        if self._on_client is None:
            accepted.connection.close("programs of seed 002 are not served here")
            return
        self._on_client(accepted.connection.release(), first_bytes)

    def note_refused(self, refused: Refused, node: NodeId | None) -> None:
        if node is None:
            self.stranger_refusals[refused.reason] += 1

    def note_call_ended(self) -> None:
        self._ended.set()

    def emit(self, event: Event) -> None:
        if isinstance(event, ConnectionRefused):
            self.refusals[event.refused.reason] += 1
        self._on_event(event)

    def counters_of(self, node: NodeId) -> PeerCounters:
        counters = self._counters.get(node)
        if counters is None:
            while len(self._counters) >= self.settings.remembered_lives_max:
                del self._counters[next(iter(self._counters))]
            counters = self._counters[node] = PeerCounters()
        return counters

    # Inside

    def _on_tls_refused(self, address: str, refused: Refused) -> None:
        self.stranger_refusals[refused.reason] += 1
        self.emit(ConnectionRefused(None, address, refused))

    def _end(self, *, is_gentle: bool) -> None:
        for link in (*self._links.values(), *self._probes):
            link.close("the node is stopping", is_gentle=is_gentle)
        self._links.clear()
        for accepted in (*self._accepted, *self._unproven):
            accepted.connection.close("the node is stopping", is_gentle=is_gentle)

    def _link(self, node: NodeId, purpose: Purpose) -> PeerLink:
        link = self._links.get((node, purpose))
        if link is None:
            link = self._links[node, purpose] = PeerLink(self, node, purpose)
        return link

    def _is_busy(self) -> bool:
        return any(link.call_count for link in (*self._links.values(), *self._probes)) or any(
            accepted.call_count for accepted in self._accepted
        )


def is_loopback_address(address: object) -> bool:
    """Return whether an end of a connection is a loopback address."""
    if not isinstance(address, tuple) or not address:
        return False
    try:
        ip = ip_address(str(address[0]).partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped or ip).is_loopback)


def _is_older(one: Identity, other: Identity) -> bool:
    return (one.node, one.folder_id) == (other.node, other.folder_id) and (
        one.boot_epoch < other.boot_epoch
    )


def _checked(kind: int) -> int:
    if not 0 <= kind <= KIND_MAX:
        raise ValueError(f"kind {kind}: must be 0 to {KIND_MAX}")
    return kind
