"""Headrace's own settings: bounds of memory, files and connections, and its own features."""

from typing import Final

from headrace.config.setting import Scope, choice, int32, int64

LOG_FORMAT: Final = choice(
    "headrace.log.format",
    "text",
    "Whether the node's own log lines are for people or are JSON.",
    of=("text", "json"),
)
CONNECTION_REQUESTS_MAX: Final = int32(
    "headrace.connection.requests.max",
    1000,
    "How many requests of one connection may be unanswered before no more are read from it.",
    at_least=1,
)
UNSENT_RESPONSES_MAX_BYTES: Final = int64(
    "headrace.unsent.responses.max.bytes",
    256 * 1024 * 1024,
    "The most memory for responses that clients have not read yet, over all connections. Close to "
    "it, fetches return less and connections that read nothing are closed.",
    at_least=1024 * 1024,
)
GROUP_FIRST_ASSIGNMENT_WAIT_MS: Final = int32(
    "headrace.group.first.assignment.wait.ms",
    500,
    "How long a heartbeat of a share group's member without partitions waits for its first ones. "
    "If they come later, members are told when to send the next heartbeat. With 0 heartbeats are "
    "answered at once and members wait for a heartbeat interval, as in Kafka.",
    at_least=0,
    at_most=5000,
)
LOOP_STALL_WARN_MS: Final = int32(
    "headrace.loop.stall.warn.ms",
    100,
    "A stall of the event loop, which delays every client, is logged from this length on with its "
    "cause; 0 turns the watch off.",
    at_least=0,
)
DECODE_MEMORY_FLOOR_BYTES: Final = int32(
    "headrace.decode.memory.floor.bytes",
    64 * 1024 * 1024,
    "The memory that one decoded message may take beyond four times its size.",
    at_least=1024 * 1024,
)
INFLATED_BATCH_MAX_BYTES: Final = int32(
    "headrace.inflated.batch.max.bytes",
    256 * 1024 * 1024,
    "The largest size that the records of one compressed batch may inflate to.",
    at_least=1024,
    scope=Scope.CLUSTER_WIDE,
)
INFLATING_THREADS: Final = int32(
    "headrace.inflating.threads",
    2,
    "How many batches are inflated in threads at once, to validate what is produced and to look up "
    "offsets by time. Each takes at most headrace.inflated.batch.max.bytes.",
    at_least=1,
    at_most=64,
)
PRODUCE_VALIDATION: Final = choice(
    "headrace.produce.validation",
    "batches",
    "What is checked of every compressed batch that is produced: with 'batches' its header, its "
    "checksum and how many records it could hold, with 'records' each record too, which inflates "
    "it. Records of uncompressed batches are always checked.",
    of=("batches", "records"),
)
RECORD_ERRORS_MAX: Final = int32(
    "headrace.record.errors.max",
    1000,
    "How many records of a refused batch are listed in the response to their producer.",
    at_least=1,
)
OPEN_FILES_MAX: Final = int32(
    "headrace.open.files.max",
    512,
    "How many files of its logs a node keeps open; the others are opened again on use.",
    at_least=1,
)
INDEX_MAPS_MAX: Final = int32(
    "headrace.index.maps.max", 256, "How many indexes are mapped at once.", at_least=1
)
COLD_READ_ATTEMPTS_MAX: Final = int32(
    "headrace.cold.read.attempts.max",
    3,
    "How often data is loaded into the page cache before a read waits for the disk.",
    at_least=1,
    at_most=100,
)
