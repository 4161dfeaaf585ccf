"""The composition of a node: what starts, in which order, and how it stops.

    node = Node(load_settings(overrides={"log.dirs": "data"}))
    await node.start()          # ready: the metadata log has a leader and the listeners serve
    await node.stop()           # drained, flushed, marked as clean

This is the composition root: it decides nothing but the order.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from headrace import config
from headrace.cluster import words
from headrace.cluster.cluster import Cluster
from headrace.cluster.identity import begin_life
from headrace.config import LiveSettings, Settings, effective_topic_configs
from headrace.groups.topic_offsets import forget_offsets
from headrace.ids import BrokerId, TopicId, TopicName
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
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigsChanged,
    MetadataGroupChanged,
    NodeChanged,
    TopicDeleted,
)
from headrace.metadata.image import Image
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import ResourceType
from headrace.node.apis import SERVED, load_handler
from headrace.node.node_port import (
    advertised_address,
    is_loopback,
    listen_address,
    read_secret,
    read_token,
)
from headrace.node.parts import Parts
from headrace.node.registration import name_cluster, registration
from headrace.node.upkeep import Upkeep
from headrace.raft.ports import Host
from headrace.raft.settings import raft_settings
from headrace.replication.topic_settings import TopicSettings
from headrace.server.broker import Broker
from headrace.server.connection import Connection
from headrace.server.dispatch import Dispatcher
from headrace.server.interchange import Interchange
from headrace.server.listeners import (
    Bind,
    CannotListen,
    Listener,
    find_holder,
    parse_listener,
)
from headrace.server.traffic import Traffic, connection_limits
from headrace.share.coordinator import forget_share_states
from headrace.surroundings import new_random, new_uuid

INT32_MAX: Final = 2**31 - 1
DRAIN_SECONDS_MAX: Final = 5
"""How long a stop waits for responses in progress."""
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
        secret: bytes | None = None,
    ) -> None:
        """A simulation puts its own clock, disk, sockets and threads in place of the machine's.

        `secret` is the cluster's, in place of the file with it.
        """
        self.settings = settings
        """What the node was started with."""
        self.live_settings = self._live = LiveSettings(settings)
        """What holds now."""
        self._overrides = ""
        """The limits of connections by address that hold."""
        self.node_id = BrokerId(settings[config.NODE_ID])
        self.data = Path(settings.data_folder)
        self.is_ready = False
        self._has_started = False
        self.opened = asyncio.Event()
        """Set when its folder and its ports are its own; it may wait for its cluster then."""
        self.node_port = 0
        """The port for other nodes, once it listens."""
        self.listeners: list[Listener] = []
        self.clock = clock or Clock()
        self.counters = Counters()
        self.traffic = Traffic(
            self.counters,
            request_bytes_max=settings[config.SOCKET_REQUEST_MAX_BYTES],
            requests_max=settings[config.CONNECTION_REQUESTS_MAX],
            queued_bytes_max=settings[config.QUEUED_MAX_REQUEST_BYTES],
            unsent_bytes_max=settings[config.UNSENT_RESPONSES_MAX_BYTES],
        )
        self._loop_watch = LoopWatch(self.counters, settings[config.LOOP_STALL_WARN_MS])
        self._given_disk = disk
        self._bind = bind
        self._raft_host = raft_host
        self._given_secret = secret
        self._incarnation_id = new_uuid().bytes
        self._cluster: Cluster | None = None
        self._random = new_random()
        self._disk: OwnedDisk | None = None
        self._quorum: MetadataQuorum | None = None
        self._broker: Broker | None = None
        self._dispatcher: Dispatcher | None = None
        self._parts: Parts | None = None
        self._interchange: Interchange | None = None
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
        if self._dispatcher is None:
            raise RuntimeError("the node has not been started")
        return self._dispatcher

    @property
    def cluster(self) -> Cluster:
        """The other nodes; available from `start` on."""
        if self._cluster is None:
            raise RuntimeError("the node has not been started")
        return self._cluster

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
        await self.cluster.leave(LEAVE_SECONDS_MAX)
        await self.drain()
        await self.upkeep.stop()
        self._forget_clock()
        assert self._parts is not None
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
        for connection in tuple(self.traffic.connections):
            connection.close("the node is gone")
        if self._dispatcher is not None:
            self._dispatcher.close()
        if self._parts is not None:
            self._parts.isr_changes.close()
            self._parts.peers.close()
        if self._cluster is not None:
            self._cluster.crash()
        if self._disk is not None:
            self._disk.close()

    # Starting

    async def _start(self) -> None:
        disk = self._open_disk()
        self._bind_listeners()
        cluster = await self._open_cluster(disk)
        self.opened.set()
        quorum = await self._start_quorum(disk, cluster)
        folder = self._open_folder(disk, quorum)
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
        )
        self._broker = parts.broker
        parts.broker.hear = cluster.hear_guest
        self.clock.on_moved += parts.on_clock_moved
        await cluster.register(self._register(folder.clean_epoch))
        await self._open_partitions(parts.broker)
        self._limit_traffic()
        self._live.on_changed.append(self._limit_traffic)
        self.traffic.on_room_changed = self._limit_fetches
        await self._serve(parts.broker)
        await self._enter(cluster, parts.broker)
        parts.isr_changes.start()
        self.upkeep = Upkeep(parts.broker, self.traffic)
        self.upkeep.start()
        self._loop_watch.start()
        self.is_ready = self._has_started = True
        logger.info(
            "node %d of cluster %s is ready: %d partitions, data in %s",
            self.node_id,
            quorum.image.state.cluster_id,
            len(parts.broker.replicas),
            self.data,
        )

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
        return disk

    def _bind_listeners(self) -> None:
        """Take the addresses; clients are served later."""
        for text in self.settings[config.LISTENERS]:
            self.listeners.append(Listener(parse_listener(text), self.settings, self._bind))

    async def _open_cluster(self, disk: OwnedDisk) -> Cluster:
        """Listen for other nodes, as a life of its own."""
        host, port = listen_address(self.settings)
        secret = self._given_secret or read_secret(self.settings, host)
        identity = begin_life(disk, self.node_id, self.clock.now_ms())
        cluster = self._cluster = Cluster(
            identity,
            self.settings,
            disk,
            secret=secret,
            now_ms=self.clock.now_ms,
            needs_tokens=not is_loopback(host),
            on_client=self._take_program,
            on_superseded=self._give_up,
        )
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
        await name_cluster(quorum)
        cluster.joined(quorum.image.state.cluster_id)
        self._take_settings()
        return quorum

    def _register(self, clean_epoch: int) -> words.Register:
        """Return what this node says of itself to the controller."""
        folder_id = self.cluster.links.identity.folder_id
        broker = registration(
            self.node_id, self._incarnation_id, self.settings, self.listeners, folder_id
        )
        token = read_token(self.settings)
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

    def _take_program(self, transport: asyncio.Transport, first_bytes: bytes) -> None:
        """Serve a program on this machine that speaks seed 002, once the node serves at all."""
        if self._interchange is None:
            transport.abort()
        else:
            self._interchange.accept(transport, first_bytes)

    def _give_up(self, reason: str) -> None:
        """Stop as a node that cannot keep its promises; whoever runs it is told."""
        assert self._quorum is not None
        self._quorum.driver.give_up(reason)

    def _open_folder(self, disk: OwnedDisk, quorum: MetadataQuorum) -> LogFolder:
        return LogFolder.open(
            disk,
            lambda topic: self._topic_settings(topic).log,
            cluster_id=quorum.image.state.cluster_id,
            node_id=self.node_id,
            directory_id=TopicId(self.cluster.links.identity.folder_id),
        )

    async def _open_partitions(self, broker: Broker) -> None:
        """Lead and follow what the image says, and load the coordinators."""
        self._takes_roles = True
        broker.replicas.mark_all()
        await broker.replicas.settle()

    async def _serve(self, broker: Broker) -> None:
        self._dispatcher = Dispatcher(broker, SERVED, load_handler)
        for listener in self.listeners:
            await listener.serve(self._connector(listener.name))
        self._interchange = Interchange(
            broker, self._dispatcher, self.traffic, self.listeners[0].name
        )

    def _connector(self, listener: str) -> "_Connector":
        return _Connector(listener, self.dispatcher, self.traffic)

    # Changes while it runs

    def _on_outcome(self, outcome: Outcome) -> None:
        for event in outcome.events:
            if isinstance(event, ConfigsChanged) and event.resource_type is ResourceType.BROKER:
                self._take_settings()  # first of all: what follows goes by them
            elif isinstance(event, _MEMBERS_CHANGED):
                self.cluster.note_image()
        self.cluster.note_outcome(outcome)
        if self._broker is None:
            return
        if self._takes_roles:
            self._broker.replicas.on_outcome(outcome)
        for event in outcome.events:
            if isinstance(event, BrokerRegistered | BrokerChanged | BrokerUnregistered):
                assert self._parts is not None
                self._parts.peers.refresh()
                self._broker.replica_sessions.refresh(self._broker.image)
            elif isinstance(event, TopicDeleted):
                forget_offsets(self._broker.groups, event.name, event.topic_id)
                forget_share_states(self._broker.share_states, event.topic_id)

    def _on_restored(self, image: Image) -> None:
        self._take_settings()
        self.cluster.note_image()
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

    def _limit_traffic(self) -> None:
        """Apply the current limits to connections."""
        self.traffic.connections_max = self._live[config.MAX_CONNECTIONS]
        self.traffic.connections_per_ip_max = self._live[config.MAX_CONNECTIONS_PER_IP]
        overrides = self._live[config.MAX_CONNECTIONS_PER_IP_OVERRIDES]
        if overrides != self._overrides:  # the names in them are looked up, which may take long
            self._overrides = overrides
            self.traffic.connections_max_of = connection_limits(self._live.now)

    def _limit_fetches(self) -> None:
        """Shrink fetch responses while clients leave much unread."""
        configured = self._live[config.FETCH_MAX_BYTES]
        self.broker.fetch_bytes_max = self.traffic.fetch_bytes_max(configured)

    def _topic_settings(self, topic: TopicName) -> TopicSettings:
        assert self._quorum is not None
        image, live = self._quorum.image, self._live
        of_topic = image.configs(ResourceType.TOPIC, topic)
        configs = effective_topic_configs(of_topic, *self._dynamic_configs(image), live.at_start)
        log = LogSettings.from_configs(configs, live, jitter=self._random.random())
        return TopicSettings(log, int(configs[config.MIN_INSYNC_REPLICAS.name]))

    # Ending

    def _stop_listening(self) -> None:
        self.is_ready = False
        self._loop_watch.stop()
        for listener in self.listeners:
            listener.close()
        if self._interchange is not None:
            self._interchange.stop_accepting()

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
        connections = tuple(self.traffic.connections)
        for connection in connections:
            connection.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS_MAX):
                await self.dispatcher.drain()
                for connection in connections:
                    await connection.drained.wait()
                # The last responses reach the sockets at the end of a turn.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        for connection in tuple(self.traffic.connections):
            connection.close("the node stops")
        self.dispatcher.close()


class _Connector:
    """Creates the protocol of each new connection of a listener."""

    __slots__ = ("_dispatcher", "_listener", "_traffic")

    def __init__(self, listener: str, dispatcher: Dispatcher, traffic: Traffic) -> None:
        self._listener, self._dispatcher, self._traffic = listener, dispatcher, traffic

    def __call__(self) -> Connection:
        return Connection(self._listener, self._dispatcher, self._traffic)
