"""The parts of a node, each constructed with the parts that it needs.

`Parts.of` is the list of them: what handlers see is the `Broker`, the rest is what a node needs to
stop again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from headrace import config
from headrace.client.security.settings import PLAINTEXT
from headrace.cluster.peers import BrokerPeers
from headrace.cluster.quorum_members import QuorumMembers
from headrace.config import LiveSettings
from headrace.coordinator.roles import CoordinatorRoles
from headrace.groups.coordinator import group_coordinator
from headrace.ids import SHARE_STATES_TOPIC, BrokerId, TopicName
from headrace.log.folder import LogFolder
from headrace.loop.clock import Clock
from headrace.loop.counters import Counters
from headrace.loop.inflating import Inflating
from headrace.loop.turns import Turns
from headrace.metadata.image import Image
from headrace.metadata.quorum import MetadataQuorum
from headrace.node.protection import Protection
from headrace.replication.fetch_sessions import FetchSessions
from headrace.replication.fetchers import Fetchers
from headrace.replication.isr_changes import IsrChanges
from headrace.replication.replica_sessions import ReplicaSessions
from headrace.replication.replicas import Replicas
from headrace.replication.throttles import Rates, Throttles
from headrace.replication.topic_settings import TopicSettings
from headrace.server.broker import Broker
from headrace.server.telemetry import Telemetry
from headrace.share.coordinator import share_state_coordinator
from headrace.share.dead_letter_sending import LetterSender
from headrace.share.end_offsets import RemoteEndOffsets
from headrace.share.led_partitions import SharePartitions
from headrace.share.persister import StatePersister
from headrace.topics.dead_letters import create_dead_letter_topic, refuse_dead_letter_topic
from headrace.topics.internal import create_internal_topic
from headrace.txn.coordinator import transaction_coordinator
from headrace.txn.marker_sending import MarkerSender
from headrace.txn.markers import MarkerWriter
from headrace.txn.producer_ids import ProducerIds
from headrace.txn.verification import Verification
from headrace.txn.verification_sending import VerificationSender

if TYPE_CHECKING:
    from headrace.node.node_tier import NodeTier


@dataclass(slots=True)
class Parts:
    """The parts of a node above its quorum and its logs."""

    broker: Broker
    peers: BrokerPeers
    persister: StatePersister
    roles: CoordinatorRoles
    isr_changes: IsrChanges
    tier: "NodeTier | None"
    on_clock_moved: tuple[Callable[[], None], ...]
    """The parts whose timers are set again after the clock was moved."""

    @classmethod
    def of(  # noqa: PLR0913  what a node has before its parts
        cls,
        node_id: BrokerId,
        live: LiveSettings,
        quorum: MetadataQuorum,
        folder: LogFolder,
        topic_settings: Callable[[TopicName], TopicSettings],
        *,
        members: QuorumMembers,
        clock: Clock,
        counters: Counters,
        choose_session_id: Callable[[], int],
        data_path: str,
        tier: "NodeTier | None" = None,
        protection: Protection | None = None,
    ) -> Self:
        """Construct every part. None of them is started."""

        def image() -> Image:
            return quorum.image

        def the_broker() -> Broker:
            return parts.broker

        turns = Turns()
        isr_changes = IsrChanges(
            image, quorum, lambda: live[config.REPLICA_LAG_TIME_MAX_MS], counters, turns
        )
        replicas = Replicas(
            node_id,
            folder,
            image,
            topic_settings,
            counters,
            around=isr_changes,
            remote=None if tier is None else tier.log,
        )
        inflating = Inflating(live[config.INFLATING_THREADS])
        groups = group_coordinator(live, image, clock)
        peers = BrokerPeers(
            live.at_start,
            image,
            listener=None if protection is None else protection.node_listener,
            security=PLAINTEXT if protection is None else protection.client,
        )
        markers = MarkerWriter(replicas, groups, clock)
        marker_sender = MarkerSender(node_id, image, markers, peers.line("markers"))
        transactions = transaction_coordinator(live, image, clock, marker_sender)
        verification_sender = VerificationSender(peers.line("verification"))
        verification = Verification(
            node_id,
            live,
            transactions,
            replicas,
            image,
            markers=markers,
            sender=verification_sender,
        )
        peers.on_close += [marker_sender.close, verification_sender.close]
        share_states = share_state_coordinator(live, image, clock)
        persister = StatePersister(
            node_id,
            share_states,
            image,
            peers.line("states"),
            create_topic=lambda: create_internal_topic(the_broker(), SHARE_STATES_TOPIC),
        )
        letters = LetterSender(
            replicas,
            image,
            clock,
            peers.line("letters"),
            inflating=inflating,
            create_topic=lambda name: create_dead_letter_topic(the_broker(), name),
        )
        share_partitions = SharePartitions(
            live,
            replicas,
            image,
            clock,
            persister,
            letters=letters,
            refuse_letters=lambda led, name: refuse_dead_letter_topic(the_broker(), led, name),
            turns=turns,
        )
        roles = CoordinatorRoles(groups, transactions, share_states)
        throttles = _throttles(live)
        fetchers = Fetchers(
            node_id,
            live,
            image,
            peers,
            clock,
            folder=folder,
            counters=counters,
            remote=replicas.remote,
            throttle=throttles.follower,
        )
        replicas.listeners += [fetchers, roles, share_partitions]
        replicas.before_deletion.append(fetchers.abandon)
        if tier is not None:
            tier.attach(replicas, fetchers)
        peers.on_close.append(fetchers.close)
        broker = Broker(
            node_id=node_id,
            settings=live,
            quorum=quorum,
            members=members,
            folder=folder,
            replicas=replicas,
            fetchers=fetchers,
            producer_ids=ProducerIds(quorum),
            fetch_sessions=FetchSessions(
                live[config.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS], choose_session_id
            ),
            replica_sessions=ReplicaSessions(
                live[config.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS], choose_session_id, turns
            ),
            throttles=throttles,
            telemetry=Telemetry(clock, image),
            inflating=inflating,
            groups=groups,
            transactions=transactions,
            markers=markers,
            verification=verification,
            share_states=share_states,
            persister=persister,
            share_partitions=share_partitions,
            end_offsets=RemoteEndOffsets(node_id, image, peers.line("offsets")),
            turns=turns,
            verify_offsets=verification.verify_offsets,
            fetch_bytes_max=live[config.FETCH_MAX_BYTES],
            data_path=data_path,
            is_rack_aware=live[config.REPLICA_SELECTOR_CLASS] is not None,
            clock=clock,
            counters=counters,
            authorizer=None if protection is None else protection.authorizer,
            delegation_tokens=None if protection is None else protection.delegation_tokens,
        )
        parts = cls(
            broker,
            peers,
            persister,
            roles,
            isr_changes,
            tier,
            (roles.rearm, share_partitions.rearm),
        )
        return parts


def _throttles(live: LiveSettings) -> Throttles:
    """Return the throttles of replication, by the clock of the loop."""
    return Throttles(
        Rates(
            leader=lambda: live[config.LEADER_REPLICATION_THROTTLED_RATE],
            follower=lambda: live[config.FOLLOWER_REPLICATION_THROTTLED_RATE],
        ),
        lambda: int(asyncio.get_running_loop().time() * 1000),
        window_count=live[config.REPLICATION_QUOTA_WINDOW_NUM],
        window_ms=live[config.REPLICATION_QUOTA_WINDOW_SIZE_SECONDS] * 1000,
    )
