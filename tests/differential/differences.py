"""The known differences between Headrace's and Apache Kafka's responses, and their reasons.

`python -m tests.differential.differences` writes docs/differences.md from this table. The test
fails for a difference that is not listed here, and for a listed one that no longer exists.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from tests.differential.comparison import Difference

PAGE: Final = Path(__file__).parents[2] / "docs" / "differences.md"


class Place(msgspec.Struct, frozen=True):
    """Exchanges of a script, fields of their responses, and values; `*` matches anything."""

    script: str
    exchange: str
    path: str
    kafka: str = "*"
    headrace: str = "*"


class KnownDifference(msgspec.Struct, frozen=True):
    """One row of the page, and every place where the difference shows."""

    what: str
    kafka: str
    headrace: str
    reason: str
    places: tuple[Place, ...]


class FoundOtherwise(msgspec.Struct, frozen=True):
    """One row of the page for what no script covers: it depends on time, order or chance."""

    what: str
    kafka: str
    headrace: str
    reason: str


def explains(place: Place, difference: Difference) -> bool:
    """Return whether a difference was found in a listed place."""
    return (
        fnmatchcase(difference.exchange, place.exchange)
        and fnmatchcase(difference.path, place.path)
        and fnmatchcase(str(difference.kafka), place.kafka)
        and fnmatchcase(str(difference.headrace), place.headrace)
    )


def render() -> str:
    """Return the text of the page."""
    return _HEAD + _rows(KNOWN) + _OTHERWISE_HEAD + _rows(OTHERWISE)


def _rows(table: Iterable[KnownDifference | FoundOtherwise]) -> str:
    return "".join(
        f"| {each.what} | {each.kafka} | {each.headrace} | {each.reason} |\n" for each in table
    )


def _places(script: str, exchange: str, *paths: str) -> tuple[Place, ...]:
    return tuple(Place(script, exchange, path) for path in paths)


_SILENT_REFUSALS: Final = (
    *("produce_versions", "produce_acks", "produce_places", "produce_batches", "produce_codecs"),
    *("produce_recompressed", "produce_too_large", "produce_transactional"),
    *("idempotence", "idempotence_of_strangers"),
    *("create_partitions", "alter_partition_reassignments"),
    *("describe_topic_configs", "alter_topic_configs_incrementally"),
    *("transactions_of_version_1", "transactions_of_version_2", "transactions_fenced"),
    *("transactions_timed_out_of_version_1", "transactions_timed_out_of_version_2"),
    *("streams_topologies", "streams_describe", "share_heartbeat_errors", "share_describe"),
    *("share_sessions", "share_acquisition", "share_acknowledgements", "share_renewals"),
    *("share_unknown_modes", "controller_mutation_quota"),
    *("share_many_partitions", "share_sessions_of_others", "share_states_missing"),
)
"""Scripts in which Kafka returns an error without a message."""

KNOWN: Final[tuple[KnownDifference, ...]] = (
    KnownDifference(
        what="DescribeConfigs with a resource twice, for the same configs",
        kafka="two results",
        headrace="one result",
        reason="A small request would cause a large response; clients keep one result for each.",
        places=_places("describe_topic_configs", "a resource twice", "results.1"),
    ),
    KnownDifference(
        what="SaslHandshake version 0",
        kafka="in ApiVersions",
        headrace="missing",
        reason="Tokens without any header follow it; every client of this decade speaks version 1.",
        places=_places("api_versions", "what the broker speaks v*", "api_keys.17.min_version"),
    ),
    KnownDifference(
        what="UpdateRaftVoter",
        kafka="served by controllers only",
        headrace="in ApiVersions",
        reason="Every node is a broker and a controller.",
        places=(Place("api_versions", "what the broker speaks v*", "api_keys.82", kafka="None"),),
    ),
    KnownDifference(
        what="The feature headrace.version",
        kafka="missing",
        headrace="in ApiVersions",
        reason="It says what nodes of two releases may write; clients pass over features that they "
        "do not know.",
        places=tuple(
            Place("api_versions", "what the broker speaks v*", f"{which}.headrace.version", "None")
            for which in ("supported_features", "finalized_features")
        ),
    ),
    KnownDifference(
        what="An array or a client id of length -2; a client id that is not UTF-8",
        kafka="read as null; any bytes are accepted",
        headrace="the connection is closed, with a log line",
        reason="No client sends it, and its meaning would be a guess.",
        places=(
            Place("frames_that_are_none", "an array of -2 topics", ""),
            Place("header_forms", "client id of -2 bytes", ""),
            Place("header_forms", "a client id that is not UTF-8", ""),
        ),
    ),
    KnownDifference(
        what="Metadata for a topic with neither name nor id",
        kafka="UNKNOWN_SERVER_ERROR for a topic with an empty name",
        headrace="INVALID_REQUEST",
        reason="The error shows that the request is wrong.",
        places=_places("metadata_by_id", "by neither id nor name", "topics.*"),
    ),
    KnownDifference(
        what="Metadata that creates a topic",
        kafka="UNKNOWN_TOPIC_OR_PARTITION first, the topic on a retry",
        headrace="the topic",
        reason="The topic exists when the response is written: one round trip less.",
        places=_places(
            "metadata_creates_topics",
            "asked to create",
            *("topics.*.error_code", "topics.*.partitions.0", "topics.*.topic_id"),
        ),
    ),
    KnownDifference(
        what="DescribeTopicPartitions for a topic with an empty name",
        kafka="UNKNOWN_SERVER_ERROR",
        headrace="INVALID_TOPIC_EXCEPTION, as for every other bad name",
        reason="Kafka fails internally.",
        places=_places(
            "describe_topic_partitions",
            "an empty name",
            *("topics.*.error_code", "topics.*.topic_authorized_operations"),
        ),
    ),
    KnownDifference(
        what="Source of min.insync.replicas in a new cluster",
        kafka="a dynamic cluster-wide default that Kafka sets itself",
        headrace="the default",
        reason=(
            "Kafka needs it for its eligible leader replicas and does not allow removing it; "
            "here the static default is enough."
        ),
        places=(
            *(
                Place(script, "*", "topics.*.configs.min.insync.replicas.config_source", "3", "5")
                for script in (
                    *("create_topics", "create_topics_with_bad_names"),
                    *("create_topics_with_counts", "create_topics_with_assignments"),
                    "create_topics_with_configs",
                )
            ),
            *(
                Place(script, "*", f"results.0.configs.min.insync.replicas{field}")
                for script, fields in (
                    ("describe_topic_configs", (".config_source", ".synonyms.*")),
                    ("describe_other_configs", (".config_source", ".synonyms.*", "")),
                    ("alter_topic_configs_incrementally", (".config_source",)),
                )
                for field in fields
            ),
            *_places("alter_broker_configs", "replace nothing", "*.error_*"),
        ),
    ),
    KnownDifference(
        what="A value twice in a list, such as cleanup.policy=delete,delete",
        kafka="accepted",
        headrace="INVALID_CONFIG",
        reason="It is a mistake.",
        places=_places(
            "create_topics_with_configs",
            "a policy twice",
            *("topics.*.error_code", "topics.*.configs.*", "topics.*.topic_id"),
            *("topics.*.num_partitions", "topics.*.replication_factor", "topics.*.error_message"),
        ),
    ),
    KnownDifference(
        what="The default of node.id",
        kafka="none",
        headrace="1",
        reason="A node starts without a properties file.",
        places=_places(
            "describe_other_configs",
            "a broker with synonyms v*",
            "results.0.configs.node.id.synonyms.1",
        ),
    ),
    KnownDifference(
        what="AlterConfigs with a resource twice",
        kafka="no response, ever",
        headrace="INVALID_REQUEST for each, as from IncrementalAlterConfigs",
        reason="Kafka fails internally.",
        places=_places("alter_topic_configs", "a resource twice", ""),
    ),
    KnownDifference(
        what="CreatePartitions to more than 10,000 at once",
        kafka="UNKNOWN_SERVER_ERROR",
        headrace="POLICY_VIOLATION, as from CreateTopics",
        reason="Kafka fails in its own check.",
        places=_places("create_partitions", "to 100001", "results.*.error_code"),
    ),
    KnownDifference(
        what="The error message, in versions that have one",
        kafka="null for many errors of Produce, of admin APIs and of streams groups",
        headrace="always the reason",
        reason="An error says what is wrong, with which value, and what to do.",
        places=tuple(
            Place(script, "*", "*error_message", kafka="None", headrace="<message>")
            for script in _SILENT_REFUSALS
        ),
    ),
    KnownDifference(
        what="Produce with null records",
        kafka="no response, ever",
        headrace="INVALID_RECORD",
        reason="Kafka fails internally.",
        places=_places("produce_batches", "null records", ""),
    ),
    KnownDifference(
        what="Produce for a topic without partitions",
        kafka="the topic is not in the response",
        headrace="the topic is in the response, without partitions",
        reason="It has no defined meaning, and no client sends it.",
        places=_places("produce_places", "no partition", "responses.*"),
    ),
    KnownDifference(
        what="Produce with a partition twice",
        kafka="the last records are appended, the others lost, one row",
        headrace="all are appended, one row each",
        reason="Records that were acknowledged are in the log.",
        places=_places("produce_places", "a partition twice", "responses.*.partition_responses.1"),
    ),
    KnownDifference(
        what="Produce of a batch followed by half a batch",
        kafka="the half is dropped silently",
        headrace="INVALID_RECORD",
        reason="Data that a producer meant to keep is not dropped silently.",
        places=(
            *_places(
                "produce_batches",
                "a batch and half a batch v13",
                *("*.error_code", "*.base_offset", "*.log_start_offset"),
            ),
            *_places(
                "produce_batches",
                "what there is after a batch and half a batch",
                *("*.high_watermark", "*.last_stable_offset", "*.records.0"),
            ),
        ),
    ),
    KnownDifference(
        what="Produce of a batch whose base offset is not 0",
        kafka="INVALID_RECORD",
        headrace="accepted",
        reason="The broker overwrites the base offset in any case.",
        places=(
            *_places(
                "produce_batches",
                "a base offset other than 0 v13",
                *("*.error_code", "*.base_offset"),
            ),
            *_places(
                "produce_batches",
                "what there is after a base offset other than 0",
                *("*.high_watermark", "*.last_stable_offset", "*.records.0"),
            ),
        ),
    ),
    KnownDifference(
        what="Produce of compressed records that cannot be decompressed",
        kafka="UNKNOWN_SERVER_ERROR",
        headrace=(
            "INVALID_RECORD if they do not begin as their codec requires, if the topic's configs "
            "need the records decompressed, or with headrace.produce.validation=records; else "
            "accepted, and consumers report the error"
        ),
        reason=(
            "A compressed batch is validated by its header, its checksum and its possible size; "
            "the checksum shows that its records are what the producer sent."
        ),
        places=_places(
            "produce_codecs", "* that does not inflate", "*.error_code", "*.base_offset"
        ),
    ),
    KnownDifference(
        what="Produce with a codec that does not exist",
        kafka="UNKNOWN_SERVER_ERROR",
        headrace="UNSUPPORTED_COMPRESSION_TYPE",
        reason="The error shows that the request is wrong.",
        places=_places("produce_batches", "codec 5 v13", "*.error_code", "*.log_start_offset"),
    ),
    KnownDifference(
        what="A transactional batch without a producer id",
        kafka="accepted",
        headrace="INVALID_TXN_STATE",
        reason="Nothing could ever end its transaction.",
        places=_places(
            "produce_transactional",
            "a transactional batch from nobody",
            *("*.error_code", "*.base_offset"),
        ),
    ),
    KnownDifference(
        what="Fetch with a negative byte limit",
        kafka="UNKNOWN_SERVER_ERROR for the first partition",
        headrace="treated as a limit of 0",
        reason="Kafka fails internally.",
        places=(
            *_places(
                "fetch_limits",
                "-1 bytes *",
                *("*.error_code", "*.high_watermark", "*.last_stable_offset"),
                *("*.log_start_offset", "*.records.0"),
            ),
        ),
    ),
    KnownDifference(
        what="Order of partitions with errors in an incremental fetch",
        kafka="those with an error after topics that were added later",
        headrace="in the order of the session",
        reason="Clients read them by topic and partition.",
        places=(
            *_places("fetch_sessions", "an unknown topic", "responses.*"),
            *_places("fetch_sessions", "again without naming them", "responses.*"),
        ),
    ),
    KnownDifference(
        what="JoinGroup with a protocol twice, or with a subscription that cannot be read",
        kafka="no response, ever, or UNKNOWN_SERVER_ERROR",
        headrace="the member joins; the first of the two counts, and subscriptions are opaque",
        reason="Kafka fails internally.",
        places=(
            Place("classic_join_errors", "a subscription that cannot be read", ""),
            Place("classic_join_errors", "a protocol twice", ""),
        ),
    ),
    KnownDifference(
        what="A consumer group's first heartbeat with a regular expression",
        kafka="no topics: they are resolved in the background and come with a later heartbeat",
        headrace="the topics",
        reason="They are resolved before the response is due.",
        places=_places(
            "consumer_regex", "a regex", "assignment.topic_partitions.*", "member_epoch"
        ),
    ),
    KnownDifference(
        what="OffsetFetch from a consumer group with an epoch and no member id",
        kafka="UNKNOWN_SERVER_ERROR",
        headrace="UNKNOWN_MEMBER_ID",
        reason="Kafka fails internally.",
        places=_places("consumer_offsets", "fetch of nobody in an epoch v*", "*.error_code"),
    ),
    KnownDifference(
        what="A streams member that names a task twice among those it owns",
        kafka="no tasks in the response, as if it owned all of them",
        headrace="its tasks, as for any member that does not own all of them",
        reason="Otherwise the member would continue without one of its own tasks.",
        places=_places("streams_heartbeat_errors_of_members", "a task twice", "*_tasks"),
    ),
    KnownDifference(
        what=(
            "A streams topology with a negative epoch, a subtopology twice, or a copartition "
            "group that points nowhere"
        ),
        kafka="UNKNOWN_SERVER_ERROR",
        headrace="STREAMS_INVALID_TOPOLOGY",
        reason="The error shows that the request is wrong.",
        places=(
            Place("streams_topologies", "epoch -1", "error_code"),
            Place("streams_topologies", "a subtopology twice", "error_code"),
            Place("streams_topologies", "a copartition group that points nowhere", "error_code"),
        ),
    ),
    KnownDifference(
        what="DescribeShareGroupOffsets for an invalid partition, or for no partition of a topic",
        kafka="no response, ever, or UNKNOWN_SERVER_ERROR for the whole group",
        headrace="an offset of -1, as for any unknown partition; a topic without partitions",
        reason="Kafka fails internally.",
        places=(
            Place("share_offsets_described", "a partition that is none", ""),
            *(
                place
                for name in ("a negative partition v*", "no partitions v*")
                for place in _places("share_offsets_described", name, "groups.0.*")
            ),
        ),
    ),
    KnownDifference(
        what="DescribeShareGroupOffsets for a group without a name",
        kafka="UNKNOWN_SERVER_ERROR, or nothing if all topics are requested",
        headrace="INVALID_GROUP_ID",
        reason="The error shows that the request is wrong.",
        places=_places("share_offsets_described", "a group without a name*", "groups.0.error_*"),
    ),
    KnownDifference(
        what="AlterShareGroupOffsets to an offset below -1",
        kafka="accepted, and shown",
        headrace="INVALID_REQUEST",
        reason="There is no such offset to start from.",
        places=_places("share_offsets_altered", "-2", "responses.0.partitions.0.error_*"),
    ),
    KnownDifference(
        what="AlterShareGroupOffsets of a partition below 0",
        kafka="UNKNOWN_SERVER_ERROR for the whole request",
        headrace="UNKNOWN_TOPIC_OR_PARTITION for the partition",
        reason="The error shows that the request is wrong.",
        places=_places("share_offsets_altered", "a negative partition", "responses.0", "error_*"),
    ),
    KnownDifference(
        what="Group configs for dead letters, release backoff and the circuit breaker",
        kafka="missing",
        headrace="errors.deadletterqueue.* and headrace.share.*",
        reason="They belong to features that Kafka does not have, and are off by default.",
        places=tuple(
            Place(script, exchange, f"results.0.configs.{prefix}.*")
            for script, exchange in (
                ("describe_other_configs", "a group"),
                ("alter_group_and_metrics_configs", "the group"),
            )
            for prefix in ("errors.deadletterqueue", "headrace.share")
        ),
    ),
    KnownDifference(
        what="ShareFetch that opens a session with an unknown topic id",
        kafka="UNKNOWN_SERVER_ERROR for the whole request, and no session",
        headrace="UNKNOWN_TOPIC_ID for the partition",
        reason="In Kafka a topic that was just deleted fails the other topics of the session too.",
        places=_places(
            "share_many_partitions",
            "an unknown topic",
            *("error_code", "responses.0", "acquisition_lock_timeout_ms"),
        ),
    ),
    KnownDifference(
        what="Acquired ranges of adjacent batches that are delivered again",
        kafka="one range per batch that was acquired separately before",
        headrace="one range",
        reason="Adjacent records in the same state are one range; the records are the same.",
        places=_places(
            *("share_sessions_of_others", "then it has it"),
            *("responses.0.partitions.0.acquired_records.*",),
        ),
    ),
    KnownDifference(
        what="Records with a high delivery count next to records with a lower one",
        kafka="delivered together, as many as the first of them allows",
        headrace="delivered separately: a range has one delivery count while records are suspected",
        reason="A record that makes its members fail affects as few others as possible.",
        places=_places(
            *("share_redeliveries", "limit 10, fetch *"),
            *("responses.0.partitions.0.acquired_records.*", "responses.0.partitions.0.records.*"),
        ),
    ),
    KnownDifference(
        what="The last records before the in-flight limit, with a record limit",
        kafka="the rest of a batch that is already in flight counts against the limit again",
        headrace="only records that were not in flight count",
        reason="The limit is on records in flight; the rest of the batch is already counted.",
        places=_places(
            *("share_window_of_records", "fill *"),
            *("responses.0.partitions.0.acquired_records.*",),
        ),
    ),
    KnownDifference(
        what="A group whose only offsets were those of an aborted transaction",
        kafka="listed, as empty",
        headrace="not listed",
        reason="A group without members, records and offsets does not exist.",
        places=_places("transactional_offsets", "the groups", "groups.*"),
    ),
    KnownDifference(
        what="AddPartitionsToTxn from version 4 on without a transaction",
        kafka="no response, ever",
        headrace="a response without a transaction",
        reason="Kafka fails internally.",
        places=_places("add_partitions_to_transactions", "no transactions", ""),
    ),
)


OTHERWISE: Final[tuple[FoundOtherwise, ...]] = (
    FoundOtherwise(
        what="CreatePartitions of an internal topic",
        kafka="accepted; brokers that start later look for its records in other places, and "
        "committed offsets are lost",
        headrace="INVALID_PARTITIONS",
        reason="Which partition has a group, a transactional id, a share partition or the events "
        "of a tiered partition depends on their number.",
    ),
    FoundOtherwise(
        what="A max timestamp in a compressed batch's header that does not match its records",
        kafka="corrected",
        headrace="corrected if the batch is decompressed, else kept",
        reason="A batch is not decompressed without need; producers set it correctly.",
    ),
    FoundOtherwise(
        what="Produce of records whose offset deltas are not 0, 1, 2 and so on",
        kafka="kept in an uncompressed batch, rewritten in a compressed one",
        headrace="INVALID_RECORD, if the records are validated",
        reason="The broker does not rewrite records, and readers would see the wrong offsets.",
    ),
    FoundOtherwise(
        what="ListOffsets by time in a log with an unreadable batch",
        kafka="UNKNOWN_SERVER_ERROR",
        headrace="the batch is skipped, with a line in the node's log",
        reason="One bad batch must not make the partition unsearchable.",
    ),
    FoundOtherwise(
        what="The first heartbeat of a share group's member",
        kafka="an immediate response without partitions; they come one heartbeat later, after 5 s",
        headrace="a response with the partitions once their states are initialized, some ms later",
        reason="A new queue's first record need not take 5 s. "
        "`headrace.group.first.assignment.wait.ms=0` acts as Kafka does; the scripts set it.",
    ),
    FoundOtherwise(
        what="HeartbeatIntervalMs for a member without partitions while a target is due",
        kafka="the interval of the group",
        headrace="the time until the target is computed",
        reason="Members of consumer and share groups that join between two targets do not idle "
        "for 5 s. The same setting turns it off.",
    ),
    FoundOtherwise(
        what="A JoinGroup that a member repeats while the first one is pending",
        kafka="the newer request gets a response, the older one never does",
        headrace="the older request gets REBALANCE_IN_PROGRESS at once",
        reason="Every request gets a response; a client that still reads it rejoins.",
    ),
    FoundOtherwise(
        what="Order of the members in a group description",
        kafka="that of a hash table",
        headrace="the order in which they joined",
        reason="No client relies on it.",
    ),
    FoundOtherwise(
        what="The first FindCoordinator of its kind in a new cluster",
        kafka="COORDINATOR_NOT_AVAILABLE, until the internal topic exists",
        headrace="the coordinator, as soon as the topic exists",
        reason="The topic exists within milliseconds; this saves a round trip and the backoff.",
    ),
    FoundOtherwise(
        what="OffsetFetch without RequireStable, DescribeGroups and ListGroups while the last "
        "records of a coordinator cannot be committed, for want of replicas in sync",
        kafka="what was committed before",
        headrace="wait for offsets.commit.timeout.ms, then COORDINATOR_NOT_AVAILABLE, as "
        "OffsetFetch with RequireStable does in both",
        reason="Nothing is shown that may be undone, and a group has one state, not two.",
    ),
    FoundOtherwise(
        what="A group that never had members, once its last offset is deleted",
        kafka="listed as empty until the next expiration check",
        headrace="no longer listed",
        reason="A group without members, records and offsets does not exist.",
    ),
    FoundOtherwise(
        what="A Produce with batches of several transactional producers",
        kafka="INVALID_PRODUCER_ID_MAPPING for every partition of the request",
        headrace="a separate outcome for each partition",
        reason="Producers send only their own batches; a bad batch does not fail a good one.",
    ),
    FoundOtherwise(
        what="A transaction that times out in the last epoch of its producer id",
        kafka="the transactional id gets its next producer id when the abort is complete",
        headrace="the next InitProducerId gets it, and may be repeated",
        reason="The id cannot be used in between, and ids are allocated only when used.",
    ),
    FoundOtherwise(
        what="Defaults of socket.send.buffer.bytes and socket.receive.buffer.bytes",
        kafka="102400",
        headrace="-1: the kernel sizes them",
        reason="A fixed size turns off the kernel's autotuning and slows long-distance links.",
    ),
    FoundOtherwise(
        what="A disk without room for the metadata log",
        kafka="the process ends, and its connections with it",
        headrace="changes get KAFKA_STORAGE_ERROR until there is room, everything else continues",
        reason="Reads need no room, and a full disk is temporary.",
    ),
    FoundOtherwise(
        what="Patterns in `match` of client metrics",
        kafka="Java's, of any size",
        headrace="RE2's, bounded in size; values beyond 256 characters match none",
        reason="A pattern must not block the broker.",
    ),
    FoundOtherwise(
        what="More than 500 configs of one resource",
        kafka="accepted for a broker, with unknown names",
        headrace="INVALID_REQUEST",
        reason="Client input is bounded; all of Kafka's settings fit.",
    ),
    FoundOtherwise(
        what="Settings for Kerberos, Kafka's protocols between brokers, policies, quota "
        "callbacks and classes of plugins",
        kafka="protect the broker",
        headrace="refused by name, at startup and as dynamic configs, unless they are empty or "
        "the default",
        reason="Nodes encrypt with certificates of the cluster's own. The other protection does "
        "not exist here, and no user should believe that it does.",
    ),
    FoundOtherwise(
        what="A delegation token for an owner that is not of type User",
        kafka="created, and logs in as the user of that name",
        headrace="INVALID_PRINCIPAL_TYPE",
        reason="A right to make tokens for one principal must not make another.",
    ),
    FoundOtherwise(
        what="A delegation token that has expired and was not removed yet",
        kafka="lets its owner in until the next look for expired tokens",
        headrace="lets nobody in",
        reason="The end of a token is what its owner was told.",
    ),
    FoundOtherwise(
        what="Settings of TLS and SASL while a broker runs",
        kafka="can be changed as dynamic configs",
        headrace="refused; certificates and keys of tokens are read again when their files change",
        reason="Replacing a file is how certificates are renewed, and needs no request.",
    ),
    FoundOtherwise(
        what="A config of a broker that nobody knows and whose name is that of a secret, as "
        "`foo.password`",
        kafka="accepted",
        headrace="INVALID_REQUEST; other unknown names are accepted, and left out of backups",
        reason="Nothing would read it, and it would stand in the metadata log as it is.",
    ),
    FoundOtherwise(
        what="A fetch that waits while its client loses the right to read",
        kafka="gets the records that come",
        headrace="gets TOPIC_AUTHORIZATION_FAILED instead",
        reason="A fetch may wait for weeks.",
    ),
    FoundOtherwise(
        what="More than 32 requests before a client has authenticated, or a first message of TLS "
        "in several records",
        kafka="served",
        headrace="the connection is closed",
        reason="What costs strangers nothing must not cost others their turn.",
    ),
    FoundOtherwise(
        what="A setting of TLS, SASL or delegation tokens that no listener uses, or super.users "
        "without an authorizer",
        kafka="ignored",
        headrace="refused by name, at startup",
        reason="Whoever sets it believes that it protects something.",
    ),
    FoundOtherwise(
        what="A PLAINTEXT listener that other machines reach",
        kafka="served",
        headrace="refused at startup without `headrace.insecure=true`",
        reason="It is open to everybody on the network.",
    ),
    FoundOtherwise(
        what="A login with SCRAM of a user that there is not",
        kafka="refused at its first message",
        headrace="gets a challenge like any other user, and is refused at its second message",
        reason="Nobody finds out which users there are.",
    ),
    FoundOtherwise(
        what="A session that ends and is not renewed (connections.max.reauth.ms)",
        kafka="the connection is closed with its next request",
        headrace="the connection is closed when the session ends",
        reason="A fetch that waits would go on with rights that have ended.",
    ),
    FoundOtherwise(
        what="controller_mutation_rate",
        kafka="counted by the controller, for the whole cluster",
        headrace="counted by each node for the requests that it takes",
        reason="Any node takes any request. A client that uses all N nodes may change N times as "
        "much.",
    ),
    FoundOtherwise(
        what="A fetch of a batch that is larger than consumer_byte_rate allows in all windows",
        kafka="never has records",
        headrace="has them when nothing was read in the last windows, and the client waits then",
        reason="A consumer must get on.",
    ),
    FoundOtherwise(
        what="A share fetch beyond a quota",
        kafka="has no records; those acquired for it wait until their locks time out",
        headrace="has its records, and the client waits afterwards",
        reason="A record is not kept from everybody for half a minute.",
    ),
    FoundOtherwise(
        what="request_percentage",
        kafka="the time of request and network threads",
        headrace="the time that handlers and encoding take of the one loop; docs/quotas.md says "
        "what is left out",
        reason="A node has one loop, which does the work of both.",
    ),
    FoundOtherwise(
        what="AlterClientQuotas with an entity twice",
        kafka="the first change is made, and the entity has an error",
        headrace="the entity has an error, and nothing is changed",
        reason="An error means that nothing was done.",
    ),
    FoundOtherwise(
        what="Quotas for the name of a host, and limits that are infinite or NaN",
        kafka="accepted",
        headrace="INVALID_REQUEST",
        reason="What a name resolves to differs between nodes and changes; such a limit limits "
        "nothing.",
    ),
    FoundOtherwise(
        what="A heartbeat of a streams group whose client may not create its internal topics",
        kafka="the status MISSING_INTERNAL_TOPICS",
        headrace="TOPIC_AUTHORIZATION_FAILED",
        reason="The error names what is missing: a right.",
    ),
    FoundOtherwise(
        what="CreatePartitions of `__remote_log_metadata`",
        kafka="accepted; brokers then fail to start their tier, or look for its events in other "
        "places",
        headrace="INVALID_PARTITIONS",
        reason="Which partition has the events of a user's partition depends on their number.",
    ),
)


_HEAD: Final = """\
# Differences from Apache Kafka 4.3.1

`tests/differential` sends the same requests, valid and invalid, in every version, to Apache
Kafka and to Headrace and compares the responses field by field. It does not compare values that a
broker chooses: topic, cluster, producer and session ids, ports, paths, times and the wording of
messages (it does compare whether there is one). All other fields are equal, except for the
differences on this page. `python -m tests.differential.differences` writes the page from the table
that the test uses; the test fails if a listed difference no longer exists.

| what | Apache Kafka | Headrace | why |
| --- | --- | --- | --- |
"""

_OTHERWISE_HEAD: Final = """
## Other differences

No script covers these: they depend on time, on an undefined order, or on a new cluster.

| what | Apache Kafka | Headrace | why |
| --- | --- | --- | --- |
"""


if __name__ == "__main__":
    PAGE.write_text(render())
