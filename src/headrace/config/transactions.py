"""Transactions and their internal topic."""

from typing import Final

from headrace.config.setting import DAY_MS, Scope, boolean, int16, int32

TRANSACTION_MAX_TIMEOUT_MS: Final = int32(
    "transaction.max.timeout.ms",
    15 * 60 * 1000,
    "The longest transaction timeout that a producer may request.",
    at_least=1,
)
TRANSACTIONAL_ID_EXPIRATION_MS: Final = int32(
    "transactional.id.expiration.ms",
    7 * DAY_MS,
    "How long an unused transactional id is kept.",
    at_least=1,
)
TRANSACTION_ABORT_TIMED_OUT_INTERVAL_MS: Final = int32(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    10_000,
    "How often transactions past their timeout are looked for.",
    at_least=1,
)
TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS: Final = int32(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    60 * 60 * 1000,
    "How often expired transactional ids are looked for.",
    at_least=1,
)
TRANSACTION_PARTITION_VERIFICATION_ENABLE: Final = boolean(
    "transaction.partition.verification.enable",
    True,
    "Whether a partition verifies that it is part of a transaction before it accepts records.",
    scope=Scope.CLUSTER_WIDE,
)
ADD_PARTITIONS_RETRY_BACKOFF_MS: Final = int32(
    "add.partitions.to.txn.retry.backoff.ms",
    20,
    "How long a partition waits before it asks again whether it may join a transaction, while the "
    "producer's former one is being completed.",
    at_least=1,
)
ADD_PARTITIONS_RETRY_MAX_MS: Final = int32(
    "add.partitions.to.txn.retry.backoff.max.ms",
    100,
    "For how long a partition asks again before the producer is told to retry.",
    at_least=0,
)
TRANSACTION_STATE_LOG_MIN_ISR: Final = int32(
    "transaction.state.log.min.isr",
    2,
    "The min.insync.replicas of the __transaction_state topic.",
    at_least=1,
)
TRANSACTION_STATE_LOG_NUM_PARTITIONS: Final = int32(
    "transaction.state.log.num.partitions",
    50,
    "The partition count of the __transaction_state topic.",
    at_least=1,
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR: Final = int16(
    "transaction.state.log.replication.factor",
    3,
    "The replica count of the __transaction_state topic.",
    at_least=1,
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES: Final = int32(
    "transaction.state.log.segment.bytes",
    100 * 1024 * 1024,
    "The segment size of the __transaction_state topic.",
    at_least=1,
)
