"""A node's part in its cluster: its port for other nodes, and what goes through it.

    cluster = Cluster(identity, settings, disk, secret=..., address=...)
    await cluster.open("127.0.0.1", 9093)
    members = await cluster.find(register)          # found a cluster, join one, or neither
    quorum = MetadataQuorum(..., transport=cluster.raft, forward=cluster.forwarding)
    await quorum.start(members)
    cluster.attach(quorum, incarnation_id)
    await cluster.wait_for_leader()
    await cluster.register(register)

Composition: it decides nothing. `joining` is the way in, `controller` the leader's work, `presence`
the session of every other node, `forwarding` the proposals; SWIM hints at who cannot be reached.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from headrace import config
from headrace.cluster import words
from headrace.cluster.address_book import AddressBook, parse_address
from headrace.cluster.controller import Controller
from headrace.cluster.encryption.authority_keys import AuthorityKeys
from headrace.cluster.encryption.care import CertificateCare, no_certificate, sign_itself
from headrace.cluster.encryption.enrolment import Enroller, Enrolment
from headrace.cluster.encryption.node_tls import NodeTls
from headrace.cluster.forwarding import Forwarding
from headrace.cluster.joining import CannotJoin, Joining
from headrace.cluster.link_log import LinkLog
from headrace.cluster.looking import Looking
from headrace.cluster.operator import Operator
from headrace.cluster.partition_care import CareSettings
from headrace.cluster.presence import Presence
from headrace.cluster.quorum_members import QuorumMembers
from headrace.cluster.registrar import Admission, is_registered
from headrace.cluster.swim import events as swim_events
from headrace.cluster.swim.sealing import Sealer
from headrace.cluster.swim.settings import swim_settings
from headrace.cluster.swim.shell import SwimShell, udp_endpoint
from headrace.cluster.transport import events as link_events
from headrace.cluster.transport.calls import CallError, IncomingCall, InvalidPayload
from headrace.cluster.transport.hello import Identity
from headrace.cluster.transport.links import Links, OnClient
from headrace.cluster.transport.raft_transport import RaftTransport
from headrace.cluster.transport.refusals import Reason
from headrace.cluster.transport.settings import transport_settings
from headrace.config import Settings
from headrace.ids import BrokerId
from headrace.log.disk import Disk
from headrace.metadata.applier import Outcome
from headrace.metadata.image import Image
from headrace.metadata.quorum import FOLDER, MetadataQuorum
from headrace.metadata.state import NodeState, ResourceType
from headrace.raft.errors import RaftError
from headrace.raft.membership import Membership
from headrace.raft.messages import (
    AppendAccepted,
    HeartbeatAnswer,
    Message,
    PreVoteAnswer,
    SnapshotProgress,
    VoteAnswer,
)
from headrace.raft.storage import SNAPSHOT_FILE
from headrace.surroundings import new_random

REGISTER_TIMEOUT_MS: Final = 10_000
RETRY_SECONDS: Final = 0.5
"""How soon a node that lost its certificate asks again for one."""

_COUNTED: Final = (PreVoteAnswer, VoteAnswer, AppendAccepted, HeartbeatAnswer, SnapshotProgress)
"""What makes up a majority."""

logger = logging.getLogger(__name__)


class Cluster:
    """The other nodes, from the view of one."""

    def __init__(  # noqa: PLR0913  what a node has before its cluster
        self,
        identity: Identity,
        settings: Settings,
        disk: Disk,
        *,
        secret: bytes | None,
        now_ms: Callable[[], int],
        needs_tokens: bool = False,
        tls: NodeTls | None = None,
        token: str = "",
        on_client: OnClient | None = None,
        on_superseded: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`now_ms` is the wall clock; with `needs_tokens` a node that is no seed joins with one.

        With `tls` nodes speak TLS to each other; `token` is what a new one asks with.
        """
        self._tls = tls
        self._token = token
        self._keys = None if tls is None else AuthorityKeys(disk)
        self.certificates: CertificateCare | None = None
        """What is done for certificates, where nodes speak TLS."""
        self._settings = settings
        self._now_ms = now_ms
        self._needs_tokens = needs_tokens
        self._secret = secret
        self._disk = disk
        self._on_superseded = on_superseded
        self.on_decommissioned: Callable[[], None] = lambda: None
        """Called when this node has left the cluster."""
        self.on_trust: Callable[[], None] = lambda: None
        """Called when this node trusts other CAs than before."""
        self._own_state: NodeState | None = None
        self._folders: dict[int, bytes] = {}
        """The nodes of the image, and their data folders."""
        self._seeds = settings[config.SEEDS] or settings[config.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS]
        self.addresses = AddressBook(disk)
        self.links = Links(
            identity,
            secret=secret,
            address_of=self.addresses.find,
            folder_of=self._last_folder_of,
            on_event=self._on_link_event,
            on_client=on_client,
            settings=transport_settings(settings),
            tls=tls,
        )
        self.links.may_act = self._may_act
        self.links.knows_all = lambda: self.is_controller
        self.raft = RaftTransport(self.links, self._on_raft_message)
        self.forwarding = Forwarding(self.links)
        self.operator = Operator(
            self.links,
            self.addresses,
            has_secret=secret is not None,
            now_ms=now_ms,
            explain_waiting=self.explain_waiting,
        )
        self.controller: Controller | None = None
        self.members: QuorumMembers | None = None
        self.presence: Presence | None = None
        self.swim: SwimShell | None = None
        self._quorum: MetadataQuorum | None = None
        self._is_founding = self._has_log()
        self._joining: Joining | None = None
        self._looking: Looking | None = None
        self._link_log = LinkLog()
        self._refused_by: set[BrokerId] = set()
        """The nodes that know a later life of this node."""
        self._is_entered = False
        self.leader_changes = 0
        """How often this node heard of another leader of the metadata log."""
        self._last_leader: BrokerId | None = None
        self.links.serve(words.ASK, self._on_ask, for_newcomers=True)
        self.operator.serve()

    @property
    def node(self) -> BrokerId:
        return self.links.identity.node

    @property
    def address(self) -> str:
        """Where other nodes reach this one."""
        return self.operator.address

    @address.setter
    def address(self, address: str) -> None:
        self.operator.address = address

    @property
    def is_controller(self) -> bool:
        return self.controller is not None and self.controller.is_active

    async def open(self, host: str, port: int) -> int:
        """Listen for other nodes; return the port. OSError if the address cannot be had."""
        return await self.links.open(host, port)

    async def find(self, register: words.Register) -> Membership | None:
        """Return the members that a new quorum begins with, None for a node that has a log.

        Waits until there is a cluster; CannotJoin if it refuses this node.
        """
        if self._has_log():
            await self._certify_again()
            return None
        if not self._seeds:
            self._is_founding = True
            return Membership((self.node,))
        joining = self._joining = Joining(
            self.links, self._seeds, self.address, self._note_founding, self._enrolment()
        )
        registered = await joining.run(register)
        if registered is None:
            return Membership((self.node,))
        self._take_registered(registered)
        return Membership()

    def attach(self, quorum: MetadataQuorum, incarnation_id: bytes) -> None:
        """Take part in a quorum that has started."""
        settings = self._settings
        self._quorum = quorum
        admission = Admission(
            self._now_ms, self._secret if self._needs_tokens else None, self._seeds
        )
        self.forwarding.serve(quorum, self._is_registered)
        self.controller = Controller(
            quorum,
            self.links,
            self.addresses,
            session_timeout_ms=settings[config.BROKER_SESSION_TIMEOUT_MS],
            heartbeat_interval_ms=settings[config.BROKER_HEARTBEAT_INTERVAL_MS],
            voters_max=self._voters_max,
            admission=admission,
            care=CareSettings.of(settings),
            token_check_seconds=settings[config.DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS] / 1000,
        )
        self.presence = Presence(
            quorum,
            self.links,
            incarnation_id,
            interval_ms=settings[config.BROKER_HEARTBEAT_INTERVAL_MS],
            on_superseded=self._on_superseded,
            hear_own=self.controller.heard,
        )
        self.members = QuorumMembers(quorum, self.links)
        self._looking = Looking(
            quorum,
            self.links,
            self.addresses,
            seeds=self._seeds,
            own_address=self.address,
            learn=self._learn,
        )
        self.controller.serve()
        self.members.serve()
        self._care_for_certificates(quorum, admission)
        self.operator.attach(quorum, self.controller, self.members, self.certificates)
        quorum.driver.on_leadership.append(self._connect)
        quorum.driver.on_leadership.append(self._note_leader)
        self._connect()

    async def wait_for_leader(self) -> None:
        """Return when this node has all that was committed before the call.

        CannotJoin if it was removed from its cluster.
        """
        assert self._looking is not None
        assert self._quorum is not None
        if self._tls is not None and not self._tls.is_certified:
            members = self._quorum.driver.state.membership.members
            if members and members != (self.node,):
                raise CannotJoin(no_certificate(self.node))
        await self._looking.wait_for_leader()

    async def certify(self) -> None:
        """Return when this node has a certificate, if it needs one; CannotJoin if it gets none."""
        if self.certificates is not None:
            await self.certificates.settle()

    def explain_waiting(self) -> str:
        """Return what this node waits for before it serves, nothing if it does."""
        if self._is_entered:
            return ""
        if self._quorum is None:
            return "asking its seeds" if self._joining is None else self._joining.waiting
        driver = self._quorum.driver
        if driver.leader is None:
            return "there is no leader: " + " ".join(self._quorum.explain())
        return f"node {driver.leader} leads, and this node catches up and registers with it"

    async def register(self, register: words.Register) -> None:
        """Put this life of the node into the metadata log; CannotJoin if that is refused."""
        assert self._quorum is not None
        assert self.controller is not None
        driver = self._quorum.driver
        told = ""
        while True:
            leader = driver.leader
            response: words.Response | None = None
            try:
                if leader == self.node:
                    folder = self.links.identity.folder_id
                    response = await self.controller.register(self.node, folder, register)
                elif leader is not None:
                    payload = await self.links.call(
                        leader, words.encode(register), REGISTER_TIMEOUT_MS, kind=words.REGISTER
                    )
                    response = words.decode_response(payload)
            except CallError as error:
                logger.debug("not registered yet: %s", error)
            match response:
                case words.Registered(index=index):
                    self._take_registered(response)
                    await driver.wait_applied(index)
                    return
                case words.Failed(message=message, may_retry=False):
                    raise CannotJoin(f"the cluster does not take this node: {message}")
                case words.Failed(message=message) if message != told:
                    told = message
                    logger.info("the cluster cannot take this node yet: %s", message)
            await asyncio.sleep(0.02)

    def joined(self, cluster_id: str) -> None:
        """Be of a cluster, which has this id."""
        if self.links.identity.cluster_id != cluster_id:
            self.links.joined(cluster_id)
        self.note_image()

    async def enter(self) -> None:
        """Begin to be heard from; return when this node is unfenced."""
        assert self.presence is not None
        assert self._looking is not None
        self.presence.start()
        if self.certificates is not None:
            self.certificates.start()
        self._looking.watch(self._on_superseded)
        await self.presence.wait_unfenced()
        self._is_entered = True

    async def open_swim(self, host: str, port: int, cluster_id: str) -> None:
        """Begin to probe other nodes; OSError if the UDP port is taken."""
        identity = self.links.identity
        self.swim = SwimShell(
            identity.node,
            identity.boot_epoch,
            settings=swim_settings(self._settings),
            sealer=Sealer(
                identity.node, identity.boot_epoch, cluster_id=cluster_id, secret=self._secret
            ),
            below=new_random().randrange,
            on_event=self._on_swim_event,
            on_failure=self._on_swim_failure,
        )
        self.operator.swim = self.swim
        await self.swim.open(udp_endpoint(host, port))
        self._allow_swim()

    def note_image(self) -> None:
        """Follow the image after nodes or brokers have changed in it."""
        if self._quorum is None:
            return
        image = self._quorum.image
        nodes = image.state.nodes
        if nodes:
            brokers = image.state.brokers.values()
            folders: dict[int, bytes] = {
                each.broker_id: each.log_dirs[0] for each in brokers if each.log_dirs
            }
            self.addresses.put_folders(folders)
            self._drop_former(folders)
            for node in self.addresses.put({each.node_id: each.addr for each in nodes.values()}):
                self.links.address_changed(node)
        self._connect()
        self._allow_swim()
        self._note_own_state(image)
        if self.presence is not None:
            self.presence.note_image()
        if self.controller is not None:
            self.controller.note_image()
        self.note_trust()

    def note_trust(self) -> None:
        """Trust the CAs of the image soon, once that is durable."""
        if self.certificates is not None:
            self.certificates.note_image()

    def _note_own_state(self, image: Image) -> None:
        """Record in the log that this node is to leave, or stays; stop it when it has left."""
        row = image.node(self.node)
        former, self._own_state = self._own_state, None if row is None else row.state
        if former is self._own_state:
            return
        if self._own_state is NodeState.DRAINING:
            logger.warning(
                "this node is being decommissioned: its %d replicas move to other nodes, and then "
                "it stops",
                image.replica_count(self.node),
            )
        elif self._own_state is NodeState.DECOMMISSIONED:
            logger.warning("this node was decommissioned: it has nothing any more, and stops")
            self.on_decommissioned()
        elif former is NodeState.DRAINING and row is not None:
            logger.warning("this node stays: its decommissioning was cancelled")

    def note_outcome(self, outcome: Outcome) -> None:
        """Follow what an entry has changed."""
        if self.controller is not None:
            self.controller.note_outcome(outcome)

    def hear_guest(self, node: BrokerId) -> None:
        """Record that a node which speaks only the node-to-node protocol is alive."""
        if self.controller is not None:
            self.controller.hear_guest(node)

    def cut(self, nodes: Iterable[BrokerId]) -> None:
        """Behave as if the network to these nodes, and no others, was cut: for tests."""
        self.links.cut(nodes)
        if self.swim is not None:
            self.swim.unreachable = self.links.unreachable

    async def leave(self, timeout_seconds: float) -> None:
        """Hand over what this node leads, before it stops."""
        if self._quorum is None or self.presence is None:
            return
        driver = self._quorum.driver
        if driver.failure is None and len(driver.state.membership.voters) > 1:
            await self._hand_over(timeout_seconds)
        if driver.failure is None and len(self._quorum.image.state.nodes) > 1:
            await self.presence.stop(timeout_seconds)

    async def close(self) -> None:
        """Stop; the quorum has stopped before."""
        self.crash()
        if self._looking is not None:
            await self._looking.stop()
        if self.certificates is not None:
            await self.certificates.stop()
        await self.links.close(drain_ms=100)
        await self.addresses.close()

    def crash(self) -> None:
        """Fall silent at once."""
        if self._looking is not None:
            self._looking.close()
        if self.presence is not None:
            self.presence.close()
        if self.certificates is not None:
            self.certificates.close()
        if self.controller is not None:
            self.controller.close()
        self.forwarding.close()
        self.operator.close()
        if self.swim is not None:
            self.swim.close()
        self.links.crash()

    # Calls and events

    def _on_ask(self, call: IncomingCall) -> None:
        try:
            asked = words.decode_request(call.payload)
        except ValueError as error:  # msgspec's
            raise InvalidPayload(str(error)) from None
        if not isinstance(asked, words.Ask):
            raise InvalidPayload(f"a {type(asked).__name__} in place of an Ask")
        sender = call.sender
        is_known = self._folder_of(sender.node) == sender.folder_id
        # Without a certificate it may be any node that knows the secret.
        if asked.address and call.is_certified and self._is_member(sender):
            self._learn(sender.node, asked.address)
        response: words.Response
        cluster_id = self.links.identity.cluster_id
        if cluster_id:
            leader = None if self._quorum is None else self._quorum.driver.state.leader
            is_stranger = self.is_controller and not is_known
            response = words.Member(cluster_id, self.addresses.text(leader), is_stranger)
        elif self._is_founding or self._quorum is not None:
            response = words.Forming()
        else:
            response = words.Blank(self._seeds)
        call.answer(words.encode(response))

    def _on_raft_message(self, sender: Identity, message: Message) -> None:
        """Take a message; what counts as a voter's word must come from the voter's own folder.

        A node that starts does not know yet what is committed. A former life of a voter, with the
        folder of one that was removed, would help it to lead without what the others have.
        """
        if isinstance(message, _COUNTED) and self.addresses.is_other_folder(
            sender.node, sender.folder_id
        ):
            return
        if self._quorum is not None and self._quorum.driver.failure is None:
            self._quorum.driver.receive([message])

    def _on_link_event(self, event: link_events.Event) -> None:
        self._link_log.note(event)
        match event:
            case link_events.ConnectFailed(node, is_vacant=True) if self._quorum is not None:
                if not self.links.has_accepted(node):
                    self._quorum.driver.note_gone(node)
                    if self.controller is not None:
                        self.controller.gone(node)
            case link_events.ConnectionRefused(node, _, refused) if (
                node is not None
                and refused.is_by_peer
                and refused.is_proven
                and refused.reason is Reason.OLD_LIFE
            ):
                self._refused_by.add(node)
                self._note_old_life()
            case link_events.Connected(peer, _, True):
                self._refused_by.discard(peer.node)
            case _:
                pass

    def _note_old_life(self) -> None:
        """Stop if too few voters take this process for the node: another one has started since.

        It cannot hear of that in any other way, as nobody speaks to it any more.
        """
        if self._quorum is None or self._quorum.driver.failure is not None:
            return
        membership = self._quorum.driver.state.membership
        if len(set(membership.voters) - self._refused_by) < membership.quorum:
            self._on_superseded(
                f"another process of node {self.node} was started after this one, from a copy of "
                "this data folder: never run a copy; to go on with this one, stop the other and "
                "start this one again"
            )

    def _on_swim_event(self, event: swim_events.Event) -> None:
        match event:
            case swim_events.Unreachable(node=node):
                logger.info("node %d cannot be reached by probes", node)
                if self.controller is not None:
                    self.controller.suspect(node)
            case swim_events.Superseded(node=node):
                logger.error("there is another, newer process of node %d", node)
            case _:
                logger.debug("%s", event)

    def _on_swim_failure(self, error: Exception) -> None:
        logger.error("probing of other nodes has stopped; sessions still fence", exc_info=error)

    # Inside

    def _enrolment(self) -> Enrolment | None:
        """Return how this node gets a certificate, None if it needs none."""
        if self._tls is None:
            return None
        return Enrolment(self.links, self._tls, self.address, self._token)

    async def _certify_again(self) -> None:
        """Get a certificate for a node that is of a cluster already, and has none that is valid.

        One that can sign for itself does so. Else it needs a token; without it, whether it may go
        on is known when its log is read.
        """
        enrolment = self._enrolment()
        if enrolment is None or not enrolment.is_needed or self._tls is None:
            return
        assert self._keys is not None
        days = self._settings[config.NODE_CERTIFICATE_DAYS]
        if sign_itself(self._tls, self._keys, days) or not enrolment.has_token:
            return
        self._tls.set_aside()
        told = ""
        while True:
            known = {self.addresses.text(node) for node in self.addresses.nodes}
            problem = await enrolment.obtain(sorted({*known, *self._seeds} - {"", self.address}))
            if not problem:
                return
            if problem != told:
                told = problem
                logger.warning("this node has no certificate yet: %s", problem)
            await asyncio.sleep(RETRY_SECONDS)

    def _care_for_certificates(self, quorum: MetadataQuorum, admission: Admission) -> None:
        enrolment = self._enrolment()
        if self._tls is None or enrolment is None or self._keys is None:
            return
        assert self.controller is not None
        days = self._settings[config.NODE_CERTIFICATE_DAYS]
        self.certificates = CertificateCare(
            quorum,
            self.links,
            self._tls,
            keys=self._keys,
            enrolment=enrolment,
            enroller=Enroller(quorum, admission, self._tls, days=days),
            days=days,
            is_controller=lambda: self.is_controller,
            redirect=self.controller.redirection,
        )
        self.certificates.on_trust = self.on_trust
        self.certificates.serve()

    def _note_leader(self) -> None:
        assert self._quorum is not None
        leader = self._quorum.driver.state.leader
        if leader is not None and leader != self._last_leader:
            self._last_leader = leader
            self.leader_changes += 1

    def _voters_max(self) -> int:
        """Return how many nodes vote by themselves, as the cluster or this node has it."""
        name = config.VOTERS_MAX.name
        assert self._quorum is not None, "a controller has one"
        for resource in (str(self.node), ""):
            text = self._quorum.image.configs(ResourceType.BROKER, resource).get(name)
            if text is not None:
                return config.VOTERS_MAX.parse(text)
        return self._settings[config.VOTERS_MAX]

    def _has_log(self) -> bool:
        """Return whether this node is of a cluster already, or has begun to found one."""
        return self._disk.exists(f"{FOLDER}/{SNAPSHOT_FILE}")

    def _note_founding(self) -> None:
        self._is_founding = True

    def _folder_of(self, node: BrokerId) -> bytes | None:
        broker = None if self._quorum is None else self._quorum.image.broker(node)
        return broker.log_dirs[0] if broker is not None and broker.log_dirs else None

    def _last_folder_of(self, node: BrokerId) -> bytes | None:
        """Return the data folder that a node was last known with.

        After a start the image is that of the last snapshot. Who has joined since under an id that
        was free must not be refused: its vote may be what is missing.
        """
        return self.addresses.folder(node) if self.addresses.has_folders else self._folder_of(node)

    def _is_member(self, peer: Identity) -> bool:
        """Return whether a node is one that this one knows.

        After a start the image is empty until there is a leader, for which nodes must find each
        other: then the cluster that the peer is of counts.
        """
        folder = self._last_folder_of(peer.node)
        if folder is None:
            own = self.links.identity.cluster_id
            return own != "" and peer.cluster_id == own and bool(self.addresses.text(peer.node))
        return folder == peer.folder_id

    def _is_registered(self, peer: Identity) -> bool:
        """Return whether the image has a node with its folder; it can be known under TLS only."""
        if self._tls is None or self._quorum is None:
            return True
        return is_registered(self._quorum.image, peer.node, peer.folder_id)

    def _may_act(self, peer: Identity) -> bool:
        """Return whether to listen to a node that has shown its certificate.

        A removed node keeps that until it ends. The controller has all that is committed, so it
        listens to nobody else than the nodes of its image. Another node may lag: it may not know
        yet who votes and leads now, and without those it would never hear of it.
        """
        if self._quorum is None or self._is_registered(peer):
            return True
        if self.is_controller or self._last_folder_of(peer.node) not in (None, peer.folder_id):
            return False
        state = self._quorum.driver.state
        return state.leader in (None, peer.node) or peer.node in state.membership.members

    def _drop_former(self, folders: dict[int, bytes]) -> None:
        """End connections with nodes that are not registered any more."""
        former, self._folders = self._folders, folders
        if self._tls is None:
            return
        for node, folder in former.items():
            if folders.get(node) != folder:
                self.links.drop_life(BrokerId(node), folder)

    def _take_registered(self, registered: words.Registered) -> None:
        self.addresses.put(registered.nodes)
        if self.links.identity.cluster_id != registered.cluster_id:
            self.links.joined(registered.cluster_id)

    def _connect(self) -> None:
        """Be connected to every node that is known."""
        if self._quorum is None or self._quorum.driver.failure is not None:
            return
        members = self._quorum.driver.state.membership.members
        self.links.set_peers({*members, *self.addresses.nodes})

    def _allow_swim(self) -> None:
        if self.swim is None or self._quorum is None:
            return
        peers = []
        for row in self._quorum.image.state.nodes.values():
            if row.node_id != self.node:
                host, port = parse_address(row.addr)
                peers.append(swim_events.Peer(BrokerId(row.node_id), host, port))
        self.swim.allow(peers)

    def _learn(self, node: BrokerId, address: str) -> None:
        if self.addresses.learn(node, address):
            self._connect()  # it may be one that the log has not told of yet
            self.links.address_changed(node)

    async def _hand_over(self, timeout_seconds: float) -> None:
        """Transfer the leadership of the metadata log to another voter."""
        assert self._quorum is not None
        driver = self._quorum.driver
        try:
            async with asyncio.timeout(timeout_seconds):
                while driver.leader == self.node and (heir := driver.heir()) is not None:
                    driver.transfer(heir)
                    await driver.wait_leadership()
        except (TimeoutError, RaftError) as error:
            logger.info("the leadership was not handed over: %s", error)
