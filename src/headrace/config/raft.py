"""The metadata log: timeouts of its quorum, and a bound for everything in it that could grow."""

from typing import Final

from headrace.config.setting import choice, int32

RAFT_ELECTION_TIMEOUT_MS: Final = int32(
    "headrace.raft.election.timeout.ms",
    1000,
    "How long the quorum does not hear from its leader before it elects another one.",
    at_least=10,
    at_most=600_000,
)
RAFT_HEARTBEAT_MS: Final = int32(
    "headrace.raft.heartbeat.ms",
    100,
    "How often a leader sends heartbeats.",
    at_least=1,
    at_most=60_000,
)
RAFT_CLOCK_DRIFT_MS_MAX: Final = int32(
    "headrace.raft.clock.drift.ms.max",
    200,
    "How far two clocks may drift apart within an election timeout; shortens leases.",
    at_least=0,
    at_most=600_000,
)
RAFT_LEASE_READS: Final = choice(
    "headrace.raft.lease.reads",
    "off",
    "Whether a leader answers reads from its lease, and a follower grants it one, trusting clocks.",
    of=("off", "on"),
)
RAFT_APPEND_BYTES_MAX: Final = int32(
    "headrace.raft.append.bytes.max",
    1024 * 1024,
    "How many bytes of entries one message to a follower holds, beyond the first entry.",
    at_least=1,
)
RAFT_ENTRY_BYTES_MAX: Final = int32(
    "headrace.raft.entry.bytes.max",
    4 * 1024 * 1024,
    "The largest proposal that the metadata log takes.",
    at_least=2 * 1024 * 1024,  # many changes of one request, or of the controller, are one
    at_most=256 * 1024 * 1024,
)
RAFT_IN_FLIGHT_APPENDS_MAX: Final = int32(
    "headrace.raft.in.flight.appends.max",
    64,
    "How many messages with entries to a follower may await a response.",
    at_least=1,
    at_most=10_000,
)
RAFT_IN_FLIGHT_BYTES_MAX: Final = int32(
    "headrace.raft.in.flight.bytes.max",
    16 * 1024 * 1024,
    "How many bytes of entries to a follower may await a response before sending pauses.",
    at_least=1,
)
RAFT_UNCOMMITTED_ENTRIES_MAX: Final = int32(
    "headrace.raft.uncommitted.entries.max",
    100_000,
    "How many proposals may wait for the quorum before more are refused.",
    at_least=1,
)
RAFT_UNCOMMITTED_BYTES_MAX: Final = int32(
    "headrace.raft.uncommitted.bytes.max",
    64 * 1024 * 1024,
    "How many bytes of proposals may wait for the quorum before more are refused.",
    at_least=1,
)
RAFT_PENDING_READS_MAX: Final = int32(
    "headrace.raft.pending.reads.max",
    10_000,
    "How many reads may wait for the quorum before more are refused.",
    at_least=1,
)
RAFT_SNAPSHOT_CHUNK_BYTES: Final = int32(
    "headrace.raft.snapshot.chunk.bytes",
    1024 * 1024,
    "How many bytes of a snapshot one message to a follower holds.",
    at_least=1,
    at_most=64 * 1024 * 1024,
)
RAFT_SNAPSHOT_BYTES_MAX: Final = int32(
    "headrace.raft.snapshot.bytes.max",
    1024 * 1024 * 1024,
    "The largest snapshot that a node accepts from its leader.",
    at_least=1024,
)
RAFT_SNAPSHOT_TRIGGER_BYTES: Final = int32(
    "headrace.raft.snapshot.trigger.bytes",
    64 * 1024 * 1024,
    "How many bytes of entries are applied before a snapshot replaces them.",
    at_least=1024,
)
RAFT_KEPT_ENTRIES: Final = int32(
    "headrace.raft.kept.entries",
    1000,
    "How many entries stay behind a snapshot, for followers that lag a little.",
    at_least=0,
)
RAFT_PROMOTION_LAG_ENTRIES_MAX: Final = int32(
    "headrace.raft.promotion.lag.entries.max",
    1000,
    "How many committed entries a learner may lack when it becomes a voter.",
    at_least=0,
)
RAFT_MEMBERS_MAX: Final = int32(
    "headrace.raft.members.max",
    128,
    "How many members a quorum may have.",
    at_least=1,
    at_most=10_000,
)
RAFT_SEGMENT_BYTES: Final = int32(
    "headrace.raft.segment.bytes",
    16 * 1024 * 1024,
    "The size at which the metadata log starts a new file.",
    at_least=1024,
)
RAFT_PROPOSAL_TIMEOUT_MS: Final = int32(
    "headrace.raft.proposal.timeout.ms",
    30_000,
    "How long to wait for a proposal before its caller gets an unknown outcome.",
    at_least=1000,  # a node that starts makes proposals, too
)
RAFT_INBOX_MESSAGES_MAX: Final = int32(
    "headrace.raft.inbox.messages.max",
    10_000,
    "How many messages of other nodes may be queued; more are dropped and sent again.",
    at_least=1000,  # with fewer the same ones might be dropped again and again
)
RAFT_FULL_DISK_RETRY_MS_MAX: Final = int32(
    "headrace.raft.full.disk.retry.ms.max",
    5000,
    "The longest time between two retries of a metadata log whose disk is full.",
    at_least=1,
)
METADATA_OUTCOMES_MAX: Final = int32(
    "headrace.metadata.outcomes.max",
    4096,
    "How many outcomes of metadata entries are remembered for their proposers.",
    at_least=2000,  # so many may be applied before a proposer has its turn
)
