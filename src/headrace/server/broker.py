"""A handler's view of its node."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headrace.cluster.quorum_members import QuorumMembers
from headrace.config import LiveSettings
from headrace.groups.coordinator import Groups
from headrace.ids import BrokerId
from headrace.log.folder import LogFolder
from headrace.loop.clock import Clock
from headrace.loop.counters import Counters
from headrace.loop.inflating import Inflating
from headrace.loop.tasks import Tasks
from headrace.loop.threads import FewThreads
from headrace.loop.turns import Turns
from headrace.metadata.image import Image
from headrace.metadata.quorum import MetadataQuorum
from headrace.replication.fetch_sessions import FetchSessions
from headrace.replication.fetchers import Fetchers
from headrace.replication.replica_sessions import ReplicaSessions
from headrace.replication.replicas import Replicas
from headrace.replication.throttles import Throttles
from headrace.security.authorizer import Authorizer
from headrace.security.delegation_tokens import DelegationTokens
from headrace.server.audit import Audit
from headrace.server.telemetry import Telemetry
from headrace.share.coordinator import ShareStateCoordinator
from headrace.share.end_offsets import RemoteEndOffsets
from headrace.share.led_partitions import SharePartitions
from headrace.share.ports import Persister
from headrace.txn.coordinator import Transactions
from headrace.txn.markers import MarkerWriter
from headrace.txn.offset_verification import OffsetVerifier, nobody_coordinates
from headrace.txn.producer_ids import ProducerIds
from headrace.txn.verification import Verification
from headrace.wire import Api
from headrace.wire.codec import Part

COLD_READS_MAX: Final = 4
"""How many threads read for fetches concurrently."""
MATCHING_THREADS: Final = 1
"""How many threads are busy with regular expressions of requests."""


@dataclass(slots=True)
class Broker:
    """The parts of a running node, put together by `node`.

    Handlers read the image, propose changes to the quorum, and reach partitions through the
    replicas; they keep no state of their own.
    """

    node_id: BrokerId
    settings: LiveSettings
    quorum: MetadataQuorum
    members: QuorumMembers
    """The members of the metadata log, and changes of them."""
    folder: LogFolder
    replicas: Replicas
    fetchers: Fetchers
    """What this node copies from other leaders."""
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    replica_sessions: ReplicaSessions
    throttles: Throttles
    """Throttles of replication between nodes."""
    telemetry: Telemetry
    inflating: Inflating
    groups: Groups
    transactions: Transactions
    markers: MarkerWriter
    verification: Verification
    share_states: ShareStateCoordinator
    persister: Persister
    share_partitions: SharePartitions
    end_offsets: RemoteEndOffsets
    turns: Turns
    """Work that can become due in large numbers at once."""
    fetch_bytes_max: int
    """The most bytes of one fetch response."""
    data_path: str
    """The log directory, as the operator configured it."""
    is_rack_aware: bool = False
    """Whether consumers are sent to replicas in their rack (KIP-392)."""
    authorizer: Authorizer | None = None
    """Decides who may do what; without one everybody may do everything."""
    delegation_tokens: DelegationTokens | None = None
    """The delegation tokens, where there is a secret for them."""
    audit: Audit | None = None
    """Where it is said who changed what, if it is."""
    clock: Clock = field(default_factory=Clock)
    counters: Counters = field(default_factory=Counters)
    hear: Callable[[BrokerId], None] = lambda node: None
    """Takes note that a node of the node-to-node protocol is alive, if this is the controller."""
    verify_offsets: OffsetVerifier = nobody_coordinates
    """The verification of transactional offset commits."""
    served_apis: tuple[Api, ...] = ()
    """The APIs that clients may call, from the dispatcher."""
    version_responses: dict[int, tuple[object, list[Part]]] = field(default_factory=dict)
    """Responses of ApiVersions by version, encoded, with what of the node's state is in them."""
    cold_reads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(COLD_READS_MAX))
    """Limits the threads that read for fetches: other work needs threads too."""
    matching: FewThreads = field(default_factory=lambda: FewThreads(MATCHING_THREADS))
    """Where regular expressions are compiled and matched that may take long."""
    tasks: Tasks = field(default_factory=Tasks)
    """Parts of large requests that tell in another way when they are done."""
    cold_fetches: set[asyncio.Task[None]] = field(default_factory=set)
    """Fetches that wait for the disk."""
    topic_creations: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """Topics that are being created for groups, whose members do not wait for them."""

    @property
    def image(self) -> Image:
        return self.quorum.image
