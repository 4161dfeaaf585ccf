"""Settings of the tier: whether a node has one, where it is, and what it may use of the machine.

Kafka's names have Kafka's types, defaults and bounds; its thread counts limit tasks here. Configs
of topics (remote.storage.enable, local.retention.ms and so on) are in `topic`, checks of settings
against each other in `tier_checks`.
"""

from typing import Final

from headrace.config.setting import (
    DAY_MS,
    INT64_MAX,
    InvalidSetting,
    Scope,
    boolean,
    double,
    int16,
    int32,
    int64,
    internal,
    optional,
    secret,
    string,
)

TOPIC_BASED: Final = (
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
)
"""The metadata manager that is Kafka's default, and what ours is compatible with."""
RLMM_PREFIX: Final = "rlmm.config."
STORE_SCHEMES: Final = ("file", "s3", "gs", "az", "memory")


def not_empty(text: str) -> str:
    """Any text but an empty one."""
    if not text:
        raise ValueError("must not be empty")
    return text


def store_url(text: str) -> str:
    """SCHEME://PLACE or nothing."""
    scheme, separator, place = text.partition("://")
    if text and (not separator or scheme not in STORE_SCHEMES):
        raise ValueError(f"must be SCHEME://PLACE with one of {', '.join(STORE_SCHEMES)}")
    if text and not place and scheme != "memory":
        raise ValueError(f"must name a place after {scheme}://")
    if "@" in place.partition("/")[0]:  # not a ValueError, whose message has the text
        raise InvalidSetting(
            "headrace.tier.store: must not contain credentials, they have settings of their own"
        )
    return text


REMOTE_LOG_STORAGE_SYSTEM_ENABLE: Final = boolean(
    "remote.log.storage.system.enable",
    False,
    "Whether this node has a tier: object storage for the old segments of topics with "
    "remote.storage.enable.",
)
REMOTE_FETCH_MAX_WAIT_MS: Final = int32(
    "remote.fetch.max.wait.ms",
    500,
    "How long a fetch waits for the tier before it is answered without records.",
    at_least=1,
    scope=Scope.CLUSTER_WIDE,
)
REMOTE_LIST_OFFSETS_REQUEST_TIMEOUT_MS: Final = int64(
    "remote.list.offsets.request.timeout.ms",
    30_000,
    "How long ListOffsets waits for the tier.",
    at_least=1,
    scope=Scope.CLUSTER_WIDE,
)
REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES: Final = int64(
    "remote.log.index.file.cache.total.size.bytes",
    1024 * 1024 * 1024,
    "How much of the local disk is used for indexes of segments in the tier.",
    at_least=1,
    scope=Scope.CLUSTER_WIDE,
)
REMOTE_LOG_INDEX_FILE_CACHE_TTL_MS: Final = internal(
    int64(
        "remote.log.index.file.cache.ttl.ms",
        15 * 60 * 1000,
        "After how long without a read such an index is dropped; -1 for never.",
        at_least=-1,
    )
)
REMOTE_LOG_MANAGER_COPIER_THREAD_POOL_SIZE: Final = int32(
    "remote.log.manager.copier.thread.pool.size",
    10,
    "How many segments are copied to the tier at a time.",
    at_least=1,
    scope=Scope.CLUSTER_WIDE,
)
REMOTE_LOG_MANAGER_EXPIRATION_THREAD_POOL_SIZE: Final = int32(
    "remote.log.manager.expiration.thread.pool.size",
    10,
    "For how many partitions segments are deleted from the tier at a time.",
    at_least=1,
    scope=Scope.CLUSTER_WIDE,
)
REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND: Final = int64(
    "remote.log.manager.copy.max.bytes.per.second",
    INT64_MAX,
    "How many bytes per second this node copies to the tier.",
    at_least=1,
    scope=Scope.CLUSTER_WIDE,
)
REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_NUM: Final = int32(
    "remote.log.manager.copy.quota.window.num",
    11,
    "How many windows the rate of copying is measured over.",
    at_least=1,
)
REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_SIZE_SECONDS: Final = int32(
    "remote.log.manager.copy.quota.window.size.seconds",
    1,
    "The length of a window that the rate of copying is measured over.",
    at_least=1,
)
REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND: Final = int64(
    "remote.log.manager.fetch.max.bytes.per.second",
    INT64_MAX,
    "How many bytes per second this node fetches from the tier.",
    at_least=1,
    scope=Scope.CLUSTER_WIDE,
)
REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_NUM: Final = int32(
    "remote.log.manager.fetch.quota.window.num",
    11,
    "How many windows the rate of fetching is measured over.",
    at_least=1,
)
REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_SIZE_SECONDS: Final = int32(
    "remote.log.manager.fetch.quota.window.size.seconds",
    1,
    "The length of a window that the rate of fetching is measured over.",
    at_least=1,
)
REMOTE_LOG_MANAGER_TASK_INTERVAL_MS: Final = int64(
    "remote.log.manager.task.interval.ms",
    30_000,
    "How often partitions are looked through for segments to copy and to delete.",
    at_least=1,
)
REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MS: Final = internal(
    int64(
        "remote.log.manager.task.retry.backoff.ms",
        500,
        "How long the tier waits after a first error; each further one doubles it.",
        at_least=1,
    )
)
REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MAX_MS: Final = internal(
    int64(
        "remote.log.manager.task.retry.backoff.max.ms",
        30_000,
        "The longest wait after an error.",
        at_least=1,
    )
)
REMOTE_LOG_MANAGER_TASK_RETRY_JITTER: Final = internal(
    double(
        "remote.log.manager.task.retry.jitter",
        0.2,
        "The fraction by which the wait after an error varies.",
        at_least=0,
        at_most=0.5,
    )
)
REMOTE_LOG_METADATA_CUSTOM_METADATA_MAX_BYTES: Final = int32(
    "remote.log.metadata.custom.metadata.max.bytes",
    128,
    "The most bytes of its own that the store may add to the description of a segment.",
    at_least=0,
)
REMOTE_LOG_METADATA_MANAGER_CLASS_NAME: Final = string(
    "remote.log.metadata.manager.class.name",
    TOPIC_BASED,
    "Kafka's class that keeps the descriptions of segments; only the default is known here.",
    read=not_empty,
    allowed="a text that is not empty",
)
REMOTE_LOG_METADATA_MANAGER_CLASS_PATH: Final = optional(
    string("remote.log.metadata.manager.class.path", "", "Where that class is; must be empty.")
)
REMOTE_LOG_METADATA_MANAGER_IMPL_PREFIX: Final = string(
    "remote.log.metadata.manager.impl.prefix",
    RLMM_PREFIX,
    "How settings of that class begin; must be the default.",
    read=not_empty,
    allowed="a text that is not empty",
)
REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME: Final = optional(
    string(
        "remote.log.metadata.manager.listener.name",
        "",
        "The listener over which this node reads and writes __remote_log_metadata; by default "
        "its first one.",
        read=not_empty,
        allowed="a text that is not empty",
    )
)
REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME: Final = optional(
    string(
        "remote.log.storage.manager.class.name",
        "",
        "Kafka's class that reaches the store; not to be set, see headrace.tier.store.",
        read=not_empty,
        allowed="a text that is not empty",
    )
)
REMOTE_LOG_STORAGE_MANAGER_CLASS_PATH: Final = optional(
    string("remote.log.storage.manager.class.path", "", "Where that class is; must be empty.")
)
REMOTE_LOG_READER_THREADS: Final = int32(
    "remote.log.reader.threads",
    10,
    "How many reads from the tier run at a time.",
    at_least=1,
    scope=Scope.CLUSTER_WIDE,
)
REMOTE_LOG_READER_MAX_PENDING_TASKS: Final = int32(
    "remote.log.reader.max.pending.tasks",
    100,
    "How many more reads from the tier may wait for their turn.",
    at_least=1,
)

# Those of Kafka's metadata manager, behind the prefix

RLMM_TOPIC_NUM_PARTITIONS: Final = int32(
    f"{RLMM_PREFIX}remote.log.metadata.topic.num.partitions",
    50,
    "The number of partitions of __remote_log_metadata when it is created.",
    at_least=1,
)
RLMM_TOPIC_REPLICATION_FACTOR: Final = int16(
    f"{RLMM_PREFIX}remote.log.metadata.topic.replication.factor",
    3,
    "The replication factor of __remote_log_metadata when it is created.",
    at_least=1,
)
RLMM_TOPIC_RETENTION_MS: Final = int64(
    f"{RLMM_PREFIX}remote.log.metadata.topic.retention.ms",
    -1,
    "How long __remote_log_metadata keeps its records; -1 for no limit.",
    at_least=-1,
)
RLMM_TOPIC_MIN_ISR: Final = int16(
    f"{RLMM_PREFIX}remote.log.metadata.topic.min.isr",
    2,
    "The min.insync.replicas of __remote_log_metadata when it is created.",
    at_least=1,
)
RLMM_CONSUME_WAIT_MS: Final = int64(
    f"{RLMM_PREFIX}remote.log.metadata.consume.wait.ms",
    120_000,
    "How long a change of the metadata waits until this node has read it back.",
    at_least=0,
)
RLMM_INITIALIZATION_RETRY_MAX_TIMEOUT_MS: Final = int64(
    f"{RLMM_PREFIX}remote.log.metadata.initialization.retry.max.timeout.ms",
    120_000,
    "After how long without success the start of the metadata manager is reported as failing.",
    at_least=0,
)
RLMM_INITIALIZATION_RETRY_INTERVAL_MS: Final = int64(
    f"{RLMM_PREFIX}remote.log.metadata.initialization.retry.interval.ms",
    100,
    "How long the metadata manager waits before it tries again to start.",
    at_least=0,
)

# Headrace's own

TIER_STORE: Final = string(
    "headrace.tier.store",
    "",
    "Where the tier keeps segments: file:///FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, "
    "az://CONTAINER/PREFIX, or memory:// for tests.",
    read=store_url,
    allowed="SCHEME://PLACE or nothing",
)
TIER_STORE_ENDPOINT: Final = string(
    "headrace.tier.store.endpoint",
    "",
    "The address of the store, if it is not the provider's own.",
)
TIER_STORE_REGION: Final = string(
    "headrace.tier.store.region", "", "The region of the store, if the environment has none."
)
TIER_STORE_ACCESS_KEY_ID: Final = secret(
    "headrace.tier.store.access.key.id",
    "The id of the store's access key (for Azure, the name of the account); by default from the "
    "provider's environment variables.",
)
TIER_STORE_SECRET_ACCESS_KEY: Final = secret(
    "headrace.tier.store.secret.access.key",
    "The store's secret access key (for Google, the path of a service account's file).",
)
TIER_STORE_SESSION_TOKEN: Final = secret(
    "headrace.tier.store.session.token", "The session token of temporary credentials."
)
TIER_STORE_ALLOW_HTTP: Final = boolean(
    "headrace.tier.store.allow.http",
    False,
    "Whether the store may be reached without encryption.",
)
TIER_STORE_TIMEOUT_MS: Final = int32(
    "headrace.tier.store.timeout.ms",
    30_000,
    "How long one request to the store may take.",
    at_least=1,
)
TIER_STORE_ATTEMPTS_MAX: Final = int32(
    "headrace.tier.store.attempts.max",
    5,
    "How often a request to the store is sent before it fails.",
    at_least=1,
    at_most=100,
)
TIER_COPY_PART_BYTES: Final = int32(
    "headrace.tier.copy.part.bytes",
    4 * 1024 * 1024,
    "How many bytes of a segment are read at a time while it is copied.",
    at_least=64 * 1024,
    at_most=256 * 1024 * 1024,
)
TIER_CHUNK_BYTES: Final = int32(
    "headrace.tier.chunk.bytes",
    4 * 1024 * 1024,
    "How many bytes are fetched from the store at a time.",
    at_least=64 * 1024,
    at_most=256 * 1024 * 1024,
)
TIER_CHUNK_CACHE_BYTES: Final = int64(
    "headrace.tier.chunk.cache.bytes",
    256 * 1024 * 1024,
    "How much memory keeps what was fetched from the store.",
    at_least=0,
)
TIER_READ_AHEAD_MAX_BYTES: Final = int64(
    "headrace.tier.read.ahead.max.bytes",
    64 * 1024 * 1024,
    "How far ahead of a sequential reader the tier is read; 0 for not at all.",
    at_least=0,
)
TIER_FILL_BUDGET_BYTES: Final = int64(
    "headrace.tier.fill.budget.bytes",
    256 * 1024 * 1024,
    "How many bytes may be on their way from the store at a time.",
    at_least=1024 * 1024,
)
TIER_DROP_UNCOPIED: Final = boolean(
    "headrace.tier.drop.uncopied",
    False,
    "Whether local retention may delete segments that were not copied to the tier yet. Without "
    "it the disk fills up while the store is away, and then producers are refused.",
    scope=Scope.CLUSTER_WIDE,
)
TIER_ORPHAN_GRACE_MS: Final = int64(
    "headrace.tier.orphan.grace.ms",
    DAY_MS,
    "How old an object that belongs to no segment must be before it is deleted.",
    at_least=0,
)
TIER_ORPHAN_INTERVAL_MS: Final = int64(
    "headrace.tier.orphan.interval.ms",
    DAY_MS,
    "How often leaders list what the store has of their partitions, to delete objects that belong "
    "to no segment.",
    at_least=1000,
)
TIER_SNAPSHOT_INTERVAL_MS: Final = int64(
    "headrace.tier.snapshot.interval.ms",
    60_000,
    "How often the descriptions of segments are saved locally, so that a start need not read "
    "all of __remote_log_metadata.",
    at_least=1000,
)
