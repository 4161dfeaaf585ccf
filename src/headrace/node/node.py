"""The composition of a node: what starts, in which order, and how it stops.

    node = Node(load_settings(overrides={"log.dirs": "data"}))
    await node.start()          # ready: the metadata log has a leader and the listeners serve
    await node.stop()           # drained, flushed, marked as clean

This is the composition root: it decides nothing but the order.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace import config
from headrace.client.security.settings import PLAINTEXT, ClientSecurity
from headrace.cluster import words
from headrace.cluster.cluster import Cluster
from headrace.cluster.encryption.key_files import is_encrypted
from headrace.cluster.encryption.node_tls import NodeTls
from headrace.cluster.identity import begin_life
from headrace.cluster.transport.hello import Identity
from headrace.config import InvalidSetting, LiveSettings, Settings, effective_topic_configs
from headrace.config.security_checks import is_loopback, uses_node_tls
from headrace.groups.coordinator import load_machine
from headrace.groups.topic_offsets import forget_offsets
from headrace.ids import (
    GROUPS_TOPIC,
    REMOTE_METADATA_TOPIC,
    UNTIERED_TOPICS,
    BrokerId,
    TopicId,
    TopicName,
)
from headrace.log.disk import OwnedDisk
from headrace.log.folder import LogFolder
from headrace.log.ownership import check_node
from headrace.log.real_disk import RealDisk
from headrace.log.settings import LogSettings
from headrace.loop.clock import Clock
from headrace.loop.counters import Counters
from headrace.loop.watch import LoopWatch
from headrace.metadata.applier import Outcome, Watchers
from headrace.metadata.ddl import encode_ddl
from headrace.metadata.events import (
    AclsChanged,
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    CaTrustChanged,
    ConfigsChanged,
    DelegationTokenChanged,
    Event,
    MetadataGroupChanged,
    NodeChanged,
    QuotaChanged,
    TopicDeleted,
)
from headrace.metadata.image import Image
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import ResourceType
from headrace.node.audit import NodeAudit
from headrace.node.backups import NodeBackups
from headrace.node.first_users import take_first_users
from headrace.node.listening import Listening
from headrace.node.node_port import (
    JoinToken,
    advertised_address,
    listen_address,
    read_secret,
    read_token,
)
from headrace.node.parts import Parts
from headrace.node.protection import Protection
from headrace.node.quotas import NodeQuotas
from headrace.node.registration import name_cluster, registration
from headrace.node.tiered_topics import refuse_tiered_topics
from headrace.node.upkeep import Upkeep
from headrace.raft.ports import Host
from headrace.raft.settings import raft_settings
from headrace.replication.topic_settings import TopicSettings
from headrace.security.node_names import NodeName
from headrace.server.broker import Broker
from headrace.server.dispatch import Dispatcher
from headrace.server.listeners import (
    Bind,
    CannotListen,
    Listener,
    find_holder,
)
from headrace.share.coordinator import forget_share_states
from headrace.surroundings import new_random, new_uuid
from headrace.topics.internal import create_internal_topic

if TYPE_CHECKING:
    from headrace.node.node_tier import NodeTier
    from headrace.remote.store import ObjectStore

INT32_MAX: Final = 2**31 - 1
LEAVE_SECONDS_MAX: Final = 5
"""How long a stop waits until other nodes have taken over what this one leads."""

_MEMBERS_CHANGED: Final = (NodeChanged, MetadataGroupChanged, BrokerRegistered, BrokerUnregistered)

logger = logging.getLogger(__name__)


class Node:
    """One node of a cluster, in this process."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        disk: OwnedDisk | None = None,
        bind: Bind | None = None,
        raft_host: Host | None = None,
        store: "ObjectStore | None" = None,
        secret: bytes | None = None,
    ) -> None:
        """A simulation puts its own clock, disk, sockets and threads in place of the machine's.

        `secret` is the cluster's, in place of the file with it.
        """
        self.settings = settings
        """What the node was started with."""
        self.live_settings = self._live = LiveSettings(settings)
        """What holds now."""
        self.node_id = BrokerId(settings[config.NODE_ID])
        self.data = Path(settings.data_folder)
        self.is_ready = False
        self._has_started = False
        self.opened = asyncio.Event()
        """Set when its folder and its ports are its own; it may wait for its cluster then."""
        self.decommissioned = asyncio.Event()
        """Set when the cluster does without this node: whoever runs it stops it."""
        self.node_port = 0
        """The port for other nodes, once it listens."""
        self.clock = clock or Clock()
        self.counters = Counters()
        self._listening = Listening(self._live, self.counters, bind)
        self.traffic = self._listening.traffic
        self.quotas = NodeQuotas(self._live, self.counters, self.traffic)
        self._loop_watch = LoopWatch(self.counters, settings[config.LOOP_STALL_WARN_MS])
        self._given_disk = disk
        self._given_store = store
        self._raft_host = raft_host
        self._given_secret = secret
        self._secret: bytes | None = None
        self._token = JoinToken()
        self._tls: NodeTls | None = None
        self._incarnation_id = new_uuid().bytes
        self._cluster: Cluster | None = None
        self._random = new_random()
        self._disk: OwnedDisk | None = None
        self._quorum: MetadataQuorum | None = None
        self._broker: Broker | None = None
        self._parts: Parts | None = None
        self.protection: Protection | None = None
        """What protects the node, if its settings ask for that."""
        self.audit: NodeAudit | None = None
        """The audit log, if a file for it is configured."""
        self._takes_roles = False
        """Whether this life is registered. Before that the image has the roles of its former life,
        whose last records it may have lost."""

    @property
    def broker(self) -> Broker:
        """The handlers' view of the node; available from `start` on."""
        if self._broker is None:
            raise RuntimeError("the node has not been started")
        return self._broker

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher of requests; available from `start` on."""
        if self._listening.dispatcher is None:
            raise RuntimeError("the node has not been started")
        return self._listening.dispatcher

    @property
    def cluster(self) -> Cluster:
        """The other nodes; available from `start` on."""
        if self._cluster is None:
            raise RuntimeError("the node has not been started")
        return self._cluster

    @property
    def tier(self) -> "NodeTier | None":
        """The tier, if the node has one and was started."""
        return None if self._parts is None else self._parts.tier

    @property
    def listeners(self) -> list[Listener]:
        """Where clients connect."""
        return self._listening.listeners

    @property
    def node_listener(self) -> Listener | None:
        """A listener for nodes only, if that is none of `listeners`."""
        return self._listening.node_listener

    @property
    def bootstrap(self) -> str:
        """The address of the first listener, as `host:port`."""
        listener = self.listeners[0]
        return f"{listener.host or '127.0.0.1'}:{listener.port}"

    def explain_waiting(self) -> str | None:
        """Return what a node that starts waits for, None once it serves or stops."""
        if self._has_started:
            return None
        waiting = "" if self._cluster is None else self._cluster.explain_waiting()
        return f"waiting for the cluster: {waiting}" if waiting else "the node is starting"

    async def start(self) -> None:
        """Start serving, and return when that is so: a new node waits for its cluster.

        FolderInUse, CannotListen, WrongDirectory, CannotJoin or RaftError if it cannot.
        """
        try:
            await self._start()
        except BaseException:
            if self._quorum is not None:
                await self._quorum.stop()
            self.crash()
            raise

    async def stop(self) -> None:
        """Shut down cleanly: hand over, finish requests, flush, and leave a marker."""
        if self.settings[config.CONTROLLED_SHUTDOWN_ENABLE]:
            await self.cluster.leave(LEAVE_SECONDS_MAX)
        assert self._parts is not None
        if self._parts.tier is not None:
            await self._parts.tier.stop()
        await self.drain()
        await self.upkeep.stop()
        self._forget_clock()
        broker = self.broker
        broker.share_partitions.close()
        self._parts.persister.close()
        self._parts.isr_changes.close()
        self._parts.peers.close()
        self._parts.roles.close()
        await broker.replicas.stop()
        await broker.fetchers.stop()
        for log in broker.folder.logs.values():
            await log.finish_flush()
        loop = asyncio.get_running_loop()
        registered = broker.image.broker(self.node_id)
        broker_epoch = registered.broker_epoch if registered is not None else 0
        await loop.run_in_executor(None, broker.folder.close, broker_epoch)
        await broker.quorum.stop()
        await self.cluster.close()
        if self.audit is not None:
            await self.audit.close()
        assert self._disk is not None
        self._disk.close()
        logger.info("stopped")

    def cut(self, nodes: Iterable[BrokerId]) -> None:
        """Behave as if the network to these nodes, and no others, was cut: for tests."""
        cut_off = frozenset(nodes)
        self.cluster.cut(cut_off)
        if self._parts is not None:
            self._parts.peers.cut(cut_off)

    def crash(self) -> None:
        """Stop at once, like a killed process: nothing is flushed, no marker is left.

        Running tasks are not awaited; the caller ends the loop.
        """
        self._stop_listening()
        self._forget_clock()
        self._listening.close("the node is gone")
        if self._parts is not None:
            self._parts.isr_changes.close()
            self._parts.peers.close()
            if self._parts.tier is not None:
                self._parts.tier.crash()
        if self._cluster is not None:
            self._cluster.crash()
        if self.audit is not None:
            self.audit.abandon()
        if self._disk is not None:
            self._disk.close()

    # Starting

    async def _start(self) -> None:
        self._protect()
        disk = self._open_disk()
        self.audit = NodeAudit.of_settings(self.settings, self.data, self.clock.now_ms)
        self.traffic.audit = None if self.audit is None else self.audit.audit
        self._listening.take(self.protection)
        cluster = await self._open_cluster(disk)
        self.opened.set()
        quorum = await self._start_quorum(disk, cluster)
        folder = await self._open_folder(disk, quorum)
        tier = await self._open_tier(disk, quorum, folder)
        assert cluster.members is not None
        parts = self._parts = Parts.of(
            self.node_id,
            self._live,
            quorum,
            folder,
            self._topic_settings,
            members=cluster.members,
            clock=self.clock,
            counters=self.counters,
            choose_session_id=lambda: self._random.randint(1, INT32_MAX),
            data_path=str(self.data.absolute()),
            tier=tier,
            protection=self.protection,
        )
        self._broker = parts.broker
        parts.broker.hear = cluster.hear_guest
        if self.audit is not None:
            parts.broker.audit = self.audit.audit
            cluster.operator.on_command = self.audit.on_command
        cluster.operator.replicas = parts.broker.replicas
        self.clock.on_moved += parts.on_clock_moved
        await cluster.register(self._register(folder.clean_epoch))
        await self._open_partitions(parts.broker)
        await self._listening.serve(parts.broker, self.quotas)
        await self._enter(cluster, parts.broker)
        parts.isr_changes.start()
        if tier is not None:
            tier.start()
        self.upkeep = Upkeep(parts.broker, self.traffic, self.quotas.expire)
        self.upkeep.start()
        self._loop_watch.start()
        if self.protection is not None:
            self.protection.start()
        self.is_ready = self._has_started = True
        logger.info(
            "node %d of cluster %s is ready: %d partitions, data in %s",
            self.node_id,
            quorum.image.state.cluster_id,
            len(parts.broker.replicas),
            self.data,
        )

    def _protect(self) -> None:
        """Read certificates and keys before anything else; InvalidSetting if they are no good."""
        host, _ = listen_address(self.settings)
        self._secret = self._given_secret or read_secret(self.settings, host)
        self.protection = Protection.of_settings(
            self.settings,
            self._secret,
            lambda: None if self._quorum is None else self._quorum.image,
            self.clock.now_ms,
            self._find_tls,
        )
        self._token = read_token(self.settings)
        if self.protection is not None:
            self._secret = self.protection.secret

    def _find_tls(self) -> NodeTls:
        assert self._tls is not None, "nodes speak TLS, and the data folder was opened"
        return self._tls

    def _load_tls(self, disk: OwnedDisk, identity: Identity) -> NodeTls | None:
        """Return the node's certificate, None if nodes speak in plain text.

        InvalidSetting if that would part it from its cluster.
        """
        if uses_node_tls(self.settings):
            name = NodeName(identity.node, bytes(identity.folder_id))
            return NodeTls(disk, name, self._token.pins, self.clock.now_ms)
        if is_encrypted(disk):
            raise InvalidSetting(
                f"{config.NODE_TLS.name}={self.settings[config.NODE_TLS]}: the nodes of this "
                "cluster speak TLS to each other, and this one could not talk to them in plain "
                f"text: set {config.NODE_TLS.name}=true, or listen where other machines reach it"
            )
        return None

    @property
    def _node_security(self) -> ClientSecurity:
        """How this node connects to others, and to itself."""
        return PLAINTEXT if self.protection is None else self.protection.client

    def _open_disk(self) -> OwnedDisk:
        """Take the data folder, which must be this node's."""
        settings = self.settings
        disk = self._disk = self._given_disk or RealDisk(
            self.data,
            open_files_max=settings[config.OPEN_FILES_MAX],
            index_maps_max=settings[config.INDEX_MAPS_MAX],
        )
        disk.lock()
        check_node(disk, self.node_id)
        if self.protection is not None:
            self.protection.take_salts(disk)
        return disk

    async def _open_cluster(self, disk: OwnedDisk) -> Cluster:
        """Listen for other nodes, as a life of its own."""
        host, port = listen_address(self.settings)
        identity = begin_life(disk, self.node_id, self.clock.now_ms())
        tls = self._tls = self._load_tls(disk, identity)
        cluster = self._cluster = Cluster(
            identity,
            self.settings,
            disk,
            secret=self._secret,
            now_ms=self.clock.now_ms,
            needs_tokens=tls is not None or not is_loopback(host),
            tls=tls,
            token=self._token.token,
            on_client=self._listening.serve_program,
            on_superseded=self._give_up,
        )
        cluster.on_decommissioned = self.decommissioned.set
        cluster.on_trust = self._on_trust
        try:
            self.node_port = await cluster.open(host, port)
        except OSError as error:
            raise CannotListen(
                f"{config.NODE_LISTEN.name}: cannot listen on {host}:{port} "
                f"({error.strerror or error}), which {find_holder(port)} may hold: choose another "
                "with --node-listen HOST:PORT (port 0 picks a free one)"
            ) from None
        cluster.address = advertised_address(self.settings, host, self.node_port)
        return cluster

    async def _start_quorum(self, disk: OwnedDisk, cluster: Cluster) -> MetadataQuorum:
        """Catch up with the metadata log, name a new cluster, and take its dynamic settings."""
        settings = self.settings
        members = await cluster.find(self._register(clean_epoch=-1))
        quorum = self._quorum = MetadataQuorum(
            self.node_id,
            disk,
            watchers=Watchers(outcomes=self._on_outcome),
            on_restored=self._on_restored,
            transport=cluster.raft,
            forward=cluster.forwarding,
            settings=raft_settings(settings),
            host=self._raft_host,
            outcomes_max=settings[config.METADATA_OUTCOMES_MAX],
        )
        await quorum.start(members)
        cluster.attach(quorum, self._incarnation_id)
        await cluster.wait_for_leader()
        await cluster.certify()
        await name_cluster(quorum)
        await take_first_users(disk, quorum)
        cluster.joined(quorum.image.state.cluster_id)
        self._take_settings()
        return quorum

    def _register(self, clean_epoch: int) -> words.Register:
        """Return what this node says of itself to the controller."""
        folder_id = self.cluster.links.identity.folder_id
        protocol = "" if self.protection is None else self.protection.node_protocol
        broker = registration(
            self.node_id,
            self._incarnation_id,
            self.settings,
            self._listening.all,
            folder_id,
            node_address=self.cluster.address,
            node_protocol=protocol,
        )
        token = self._token.token
        return words.Register(self.cluster.address, encode_ddl(broker), clean_epoch, token)

    async def _enter(self, cluster: Cluster, broker: Broker) -> None:
        """Be a node that others may count on: probed, heard from, and unfenced."""
        host, _ = listen_address(self.settings)
        try:
            await cluster.open_swim(host, self.node_port, broker.image.state.cluster_id)
        except OSError as error:
            raise CannotListen(
                f"{config.NODE_LISTEN.name}: cannot listen on UDP port {self.node_port}: "
                f"{error.strerror or error}"
            ) from None
        await cluster.enter()
        await broker.replicas.settle()
        cluster.operator.backups = NodeBackups(broker)

    def _give_up(self, reason: str) -> None:
        """Stop as a node that cannot keep its promises; whoever runs it is told."""
        assert self._quorum is not None
        self._quorum.driver.give_up(reason)

    async def _open_folder(self, disk: OwnedDisk, quorum: MetadataQuorum) -> LogFolder:
        """Open all logs in a thread.

        After a crash all of them are read again, and this node may have a vote already: others must
        hear from it. Whoever cancels this waits for the thread, which writes in the folder.
        """
        open_all = partial(
            LogFolder.open,
            disk,
            lambda topic: self._topic_settings(topic).log,
            cluster_id=quorum.image.state.cluster_id,
            node_id=self.node_id,
            directory_id=TopicId(self.cluster.links.identity.folder_id),
        )
        opening = asyncio.get_running_loop().run_in_executor(None, open_all)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait({opening})
            raise

    async def _open_tier(
        self, disk: OwnedDisk, quorum: MetadataQuorum, folder: LogFolder
    ) -> "NodeTier | None":
        """Return the tier, if there is to be one.

        CannotUseTier if its store may not be used, TieredTopicsLeft if topics need one.
        """
        if not self._live[config.REMOTE_LOG_STORAGE_SYSTEM_ENABLE]:
            refuse_tiered_topics(quorum.image)
            return None
        from headrace.node.node_tier import NodeTier  # noqa: PLC0415  heavy, and may be off

        tier = NodeTier(
            self.node_id,
            self._live,
            quorum,
            disk,
            self.clock,
            store=self._given_store,
            bootstrap=self._listening.own_address,
            create_topic=lambda: create_internal_topic(self.broker, REMOTE_METADATA_TOPIC),
            checkpoint=folder.checkpoint,
            security=self._node_security,
        )
        await tier.claim()
        return tier

    async def _open_partitions(self, broker: Broker) -> None:
        """Lead and follow what the image says, and load the coordinators."""
        if broker.image.topic(GROUPS_TOPIC) is not None:
            # The loop would stand still for as long, in a node that may vote already.
            await asyncio.get_running_loop().run_in_executor(None, load_machine)
        self._takes_roles = True
        broker.replicas.mark_all()
        await broker.replicas.settle()

    # Changes while it runs

    def _on_outcome(self, outcome: Outcome) -> None:
        for event in outcome.events:
            if isinstance(event, ConfigsChanged) and event.resource_type is ResourceType.BROKER:
                self._take_settings()  # first of all: what follows goes by them
            elif isinstance(event, _MEMBERS_CHANGED):
                self.cluster.note_image()
                if isinstance(event, BrokerRegistered | BrokerUnregistered):
                    self._listening.drop_former_nodes()
            else:
                self._note_protection(event)
        self.cluster.note_outcome(outcome)
        if self._broker is None:
            return
        if self._takes_roles:
            self._broker.replicas.on_outcome(outcome)
        for event in outcome.events:
            if isinstance(event, AclsChanged):
                self._note_acls()
            elif isinstance(event, BrokerRegistered | BrokerChanged | BrokerUnregistered):
                assert self._parts is not None
                self._parts.peers.refresh()
                self._broker.replica_sessions.refresh(self._broker.image)
            elif isinstance(event, TopicDeleted):
                forget_offsets(self._broker.groups, event.name, event.topic_id)
                forget_share_states(self._broker.share_states, event.topic_id)

    def _on_trust(self) -> None:
        if self._tls is not None:
            self._listening.drop_distrusted(self._tls)

    def _note_protection(self, event: Event) -> None:
        """Pass a change on to quotas, nodes' TLS and delegation tokens if it is theirs."""
        if isinstance(event, QuotaChanged):
            assert self._quorum is not None
            self.quotas.note(self._quorum.image, event.entity)
        elif isinstance(event, CaTrustChanged):
            self.cluster.note_trust()
        elif isinstance(event, DelegationTokenChanged):
            tokens = None if self.protection is None else self.protection.delegation_tokens
            if tokens is not None:
                tokens.on_changed(event.token_id)

    def _note_acls(self) -> None:
        if self.protection is not None and self.protection.authorizer is not None:
            self.protection.authorizer.on_acls_changed()

    def _on_restored(self, image: Image) -> None:
        self._note_acls()
        self.quotas.take(image)
        self._take_settings()
        self.cluster.note_image()
        self._listening.drop_former_nodes()
        if self._broker is not None and self._takes_roles:
            self._broker.replicas.mark_all()
        if self._parts is not None:
            self._parts.peers.refresh()
            self._parts.broker.replica_sessions.refresh(image)

    def _take_settings(self) -> None:
        """Go by the dynamic configs that are in the image now."""
        if self._quorum is not None:
            self._live.change(*self._dynamic_configs(self._quorum.image))

    def _dynamic_configs(self, image: Image) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the dynamic configs of all brokers, and of this one."""
        return (
            image.configs(ResourceType.BROKER, ""),
            image.configs(ResourceType.BROKER, str(self.node_id)),
        )

    def _topic_settings(self, topic: TopicName) -> TopicSettings:
        assert self._quorum is not None
        image, live = self._quorum.image, self._live
        of_topic = image.configs(ResourceType.TOPIC, topic)
        configs = effective_topic_configs(of_topic, *self._dynamic_configs(image), live.at_start)
        log = LogSettings.from_configs(
            configs,
            live,
            jitter=self._random.random(),
            may_be_tiered=topic not in UNTIERED_TOPICS,
        )
        return TopicSettings.from_configs(log, configs, self.node_id)

    # Ending

    def _stop_listening(self) -> None:
        self.is_ready = False
        self._loop_watch.stop()
        self.quotas.stop()
        self._listening.stop()
        if self.protection is not None:
            self.protection.stop()

    def _forget_clock(self) -> None:
        """Unsubscribe from a clock that may outlive this node."""
        if self._parts is None:
            return
        for look_again in self._parts.on_clock_moved:
            if look_again in self.clock.on_moved:
                self.clock.on_moved.remove(look_again)

    async def drain(self) -> None:
        """Finish requests in progress, up to a time limit, and close every connection.

        Requests that wait for records or for group members get their responses at once. Call
        `stop` or `crash` afterwards.
        """
        self._stop_listening()
        await self._listening.drain()
