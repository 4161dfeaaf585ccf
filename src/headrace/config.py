"""Every setting once: Kafka's name, type, default, bounds, whether it may change at run time.

Settings appear here with the code that reads them. A name that Kafka has means what it means
there; one that only Headrace has starts with `headrace.`.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.errors import HeadraceError

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
DAY_MS: Final = 24 * 60 * 60 * 1000


class InvalidSetting(HeadraceError):
    """A setting that does not exist, or a value that it cannot have."""


class IntSetting(msgspec.Struct, frozen=True):
    """A whole number between two bounds, both included."""

    name: str
    default: int
    minimum: int
    maximum: int
    is_dynamic: bool
    meaning: str

    def parse(self, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise InvalidSetting(f"{self.name}={text}: not a whole number") from None
        if not self.minimum <= value <= self.maximum:
            raise InvalidSetting(
                f"{self.name}={value}: must be between {self.minimum} and {self.maximum}"
            )
        return value


class ChoiceSetting(msgspec.Struct, frozen=True):
    """One of a few words."""

    name: str
    default: str
    choices: tuple[str, ...]
    is_dynamic: bool
    meaning: str

    def parse(self, text: str) -> str:
        if text not in self.choices:
            raise InvalidSetting(f"{self.name}={text}: must be one of {', '.join(self.choices)}")
        return text


Setting = IntSetting | ChoiceSetting

SOCKET_REQUEST_MAX_BYTES: Final = IntSetting(
    "socket.request.max.bytes",
    default=100 * 1024 * 1024,
    minimum=1,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="The largest request that a connection may send.",
)
DECODE_MEMORY_FLOOR_BYTES: Final = IntSetting(
    "headrace.decode.memory.floor.bytes",
    default=64 * 1024 * 1024,
    minimum=1024 * 1024,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="What the objects of one decoded message may take beyond four times its bytes.",
)
MAX_MESSAGE_BYTES: Final = IntSetting(
    "max.message.bytes",
    default=1024 * 1024 + 12,
    minimum=0,
    maximum=INT32_MAX,
    is_dynamic=True,
    meaning="The largest record batch that a topic takes, as it is sent (compressed).",
)
INFLATED_BATCH_MAX_BYTES: Final = IntSetting(
    "headrace.inflated.batch.max.bytes",
    default=256 * 1024 * 1024,
    minimum=1024,
    maximum=INT32_MAX,
    is_dynamic=True,
    meaning="The largest size that the records of one compressed batch may inflate to.",
)
RECORD_ERRORS_MAX: Final = IntSetting(
    "headrace.record.errors.max",
    default=1000,
    minimum=1,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="How many records of a refused batch are named in the answer to their producer.",
)
COMPRESSION_TYPE: Final = ChoiceSetting(
    "compression.type",
    default="producer",
    choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    is_dynamic=True,
    meaning="The codec that a topic's batches are kept in; `producer` keeps the client's.",
)
COMPRESSION_GZIP_LEVEL: Final = IntSetting(
    "compression.gzip.level", -1, -1, 9, True, "The level for compression.type=gzip."
)
COMPRESSION_LZ4_LEVEL: Final = IntSetting(
    "compression.lz4.level", 9, 1, 17, True, "The level for compression.type=lz4."
)
COMPRESSION_ZSTD_LEVEL: Final = IntSetting(
    "compression.zstd.level", 3, -131072, 22, True, "The level for compression.type=zstd."
)
MESSAGE_TIMESTAMP_TYPE: Final = ChoiceSetting(
    "message.timestamp.type",
    default="CreateTime",
    choices=("CreateTime", "LogAppendTime"),
    is_dynamic=True,
    meaning="Whether a record keeps the producer's time or gets the time of its append.",
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = IntSetting(
    "message.timestamp.before.max.ms",
    default=INT64_MAX,
    minimum=0,
    maximum=INT64_MAX,
    is_dynamic=True,
    meaning="How far a producer's timestamp may lie before the broker's clock.",
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS: Final = IntSetting(
    "message.timestamp.after.max.ms",
    default=60 * 60 * 1000,
    minimum=0,
    maximum=INT64_MAX,
    is_dynamic=True,
    meaning="How far a producer's timestamp may lie after the broker's clock.",
)
SEGMENT_BYTES: Final = IntSetting(
    "segment.bytes",
    1024 * 1024 * 1024,
    1024 * 1024,
    INT32_MAX,
    True,
    "The size at which a log starts a new file.",
)
SEGMENT_MS: Final = IntSetting(
    "segment.ms", 7 * DAY_MS, 1, INT64_MAX, True, "The age at which a log starts a new file."
)
SEGMENT_JITTER_MS: Final = IntSetting(
    "segment.jitter.ms",
    0,
    0,
    INT64_MAX,
    True,
    "How much earlier a file may end, so that not all end at once.",
)
SEGMENT_INDEX_BYTES: Final = IntSetting(
    "segment.index.bytes",
    10 * 1024 * 1024,
    4,
    INT32_MAX,
    True,
    "The size of an index at which a log starts a new file.",
)
INDEX_INTERVAL_BYTES: Final = IntSetting(
    "index.interval.bytes",
    4096,
    0,
    INT32_MAX,
    True,
    "How many bytes of log lie between two entries of its index.",
)
FLUSH_MESSAGES: Final = IntSetting(
    "flush.messages",
    INT64_MAX,
    1,
    INT64_MAX,
    True,
    "After how many records a log is synced to disk.",
)
FLUSH_MS: Final = IntSetting(
    "flush.ms", INT64_MAX, 0, INT64_MAX, True, "After how long a log is synced to disk."
)
RETENTION_MS: Final = IntSetting(
    "retention.ms", 7 * DAY_MS, -1, INT64_MAX, True, "How long records are kept; -1 for ever."
)
RETENTION_BYTES: Final = IntSetting(
    "retention.bytes", -1, -1, INT64_MAX, True, "How many bytes of a log are kept; -1 for all."
)
FILE_DELETE_DELAY_MS: Final = IntSetting(
    "file.delete.delay.ms",
    60_000,
    0,
    INT64_MAX,
    True,
    "How long a deleted file stays on disk under another name.",
)
MIN_COMPACTION_LAG_MS: Final = IntSetting(
    "min.compaction.lag.ms",
    0,
    0,
    INT64_MAX,
    True,
    "How long a record stays as it is before compaction may drop it.",
)
MAX_COMPACTION_LAG_MS: Final = IntSetting(
    "max.compaction.lag.ms",
    INT64_MAX,
    1,
    INT64_MAX,
    True,
    "After how long a record must have been seen by compaction.",
)
DELETE_RETENTION_MS: Final = IntSetting(
    "delete.retention.ms", DAY_MS, 0, INT64_MAX, True, "How long compaction keeps a tombstone."
)
PRODUCER_ID_EXPIRATION_MS: Final = IntSetting(
    "producer.id.expiration.ms", DAY_MS, 1, INT32_MAX, True, "How long an idle producer is known."
)
OPEN_FILES_MAX: Final = IntSetting(
    "headrace.open.files.max",
    default=512,
    minimum=1,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="How many files of its logs a node keeps open; the others are opened again on use.",
)
INDEX_MAPS_MAX: Final = IntSetting(
    "headrace.index.maps.max", 256, 1, INT32_MAX, False, "How many indexes are mapped at once."
)
COLD_READ_ATTEMPTS_MAX: Final = IntSetting(
    "headrace.cold.read.attempts.max",
    default=3,
    minimum=1,
    maximum=100,
    is_dynamic=False,
    meaning="How often data is brought into the page cache before a read waits for the disk.",
)

RAFT_ELECTION_TIMEOUT_MS: Final = IntSetting(
    "headrace.raft.election.timeout.ms",
    default=1000,
    minimum=10,
    maximum=600_000,
    is_dynamic=False,
    meaning="How long the quorum is without word of its leader before it elects another one.",
)
RAFT_HEARTBEAT_MS: Final = IntSetting(
    "headrace.raft.heartbeat.ms", 100, 1, 60_000, False, "How often a leader says that it leads."
)
RAFT_CLOCK_DRIFT_MS_MAX: Final = IntSetting(
    "headrace.raft.clock.drift.ms.max",
    default=200,
    minimum=0,
    maximum=600_000,
    is_dynamic=False,
    meaning="How far two clocks may drift apart within an election timeout; shortens leases.",
)
RAFT_LEASE_READS: Final = ChoiceSetting(
    "headrace.raft.lease.reads",
    default="off",
    choices=("off", "on"),
    is_dynamic=False,
    meaning="Whether a leader answers reads from its lease, trusting the quorum's clocks.",
)
RAFT_APPEND_BYTES_MAX: Final = IntSetting(
    "headrace.raft.append.bytes.max",
    default=1024 * 1024,
    minimum=1,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="How many bytes of entries one message to a follower holds, beyond the first entry.",
)
RAFT_ENTRY_BYTES_MAX: Final = IntSetting(
    "headrace.raft.entry.bytes.max",
    default=4 * 1024 * 1024,
    minimum=1024,
    maximum=256 * 1024 * 1024,
    is_dynamic=False,
    meaning="The largest proposal that the metadata log takes.",
)
RAFT_IN_FLIGHT_APPENDS_MAX: Final = IntSetting(
    "headrace.raft.in.flight.appends.max",
    default=64,
    minimum=1,
    maximum=10_000,
    is_dynamic=False,
    meaning="How many messages with entries a follower may have unanswered.",
)
RAFT_IN_FLIGHT_BYTES_MAX: Final = IntSetting(
    "headrace.raft.in.flight.bytes.max",
    default=16 * 1024 * 1024,
    minimum=1,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="How many bytes of entries may be on their way to a follower before more are sent.",
)
RAFT_UNCOMMITTED_ENTRIES_MAX: Final = IntSetting(
    "headrace.raft.uncommitted.entries.max",
    default=100_000,
    minimum=1,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="How many proposals may wait for the quorum before more are refused.",
)
RAFT_UNCOMMITTED_BYTES_MAX: Final = IntSetting(
    "headrace.raft.uncommitted.bytes.max",
    default=64 * 1024 * 1024,
    minimum=1,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="How many bytes of proposals may wait for the quorum before more are refused.",
)
RAFT_PENDING_READS_MAX: Final = IntSetting(
    "headrace.raft.pending.reads.max",
    default=10_000,
    minimum=1,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="How many reads may wait for the quorum before more are refused.",
)
RAFT_SNAPSHOT_CHUNK_BYTES: Final = IntSetting(
    "headrace.raft.snapshot.chunk.bytes",
    default=1024 * 1024,
    minimum=1,
    maximum=64 * 1024 * 1024,
    is_dynamic=False,
    meaning="How much of a snapshot one message to a follower holds.",
)
RAFT_SNAPSHOT_BYTES_MAX: Final = IntSetting(
    "headrace.raft.snapshot.bytes.max",
    default=1024 * 1024 * 1024,
    minimum=1024,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="The largest snapshot that a node takes from its leader.",
)
RAFT_SNAPSHOT_TRIGGER_BYTES: Final = IntSetting(
    "headrace.raft.snapshot.trigger.bytes",
    default=64 * 1024 * 1024,
    minimum=1024,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="How many bytes of entries are applied before a snapshot takes their place.",
)
RAFT_KEPT_ENTRIES: Final = IntSetting(
    "headrace.raft.kept.entries",
    default=1000,
    minimum=0,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="How many entries stay behind a snapshot, for followers that lag a little.",
)
RAFT_PROMOTION_LAG_ENTRIES_MAX: Final = IntSetting(
    "headrace.raft.promotion.lag.entries.max",
    default=1000,
    minimum=0,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="How many committed entries a learner may lack when it becomes a voter.",
)
RAFT_MEMBERS_MAX: Final = IntSetting(
    "headrace.raft.members.max", 128, 1, 10_000, False, "How many members a quorum may have."
)
RAFT_SEGMENT_BYTES: Final = IntSetting(
    "headrace.raft.segment.bytes",
    default=16 * 1024 * 1024,
    minimum=1024,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="The size at which the metadata log starts a new file.",
)
RAFT_PROPOSAL_TIMEOUT_MS: Final = IntSetting(
    "headrace.raft.proposal.timeout.ms",
    default=30_000,
    minimum=1,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="How long a proposal is waited for before its caller is told that nobody knows.",
)
RAFT_INBOX_MESSAGES_MAX: Final = IntSetting(
    "headrace.raft.inbox.messages.max",
    default=10_000,
    minimum=1,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="How many messages of other nodes may wait; more are dropped and sent again.",
)
METADATA_OUTCOMES_MAX: Final = IntSetting(
    "headrace.metadata.outcomes.max",
    default=4096,
    minimum=1,
    maximum=INT32_MAX,
    is_dynamic=False,
    meaning="Of how many metadata entries it is remembered what they did, for their proposers.",
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE: Final = IntSetting(
    "log.cleaner.dedupe.buffer.size",
    default=128 * 1024 * 1024,
    minimum=1024,
    maximum=INT64_MAX,
    is_dynamic=True,
    meaning="The memory for the keys that one pass of compaction knows.",
)

SETTINGS: Final[Mapping[str, Setting]] = {
    setting.name: setting for setting in list(globals().values()) if isinstance(setting, Setting)
}


def setting(name: str) -> Setting:
    """Look a setting up by its name; InvalidSetting if there is none."""
    try:
        return SETTINGS[name]
    except KeyError:
        raise InvalidSetting(f"{name}: there is no such setting") from None
