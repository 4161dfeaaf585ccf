"""Where Headrace answers differently from Apache Kafka, on purpose or not yet, and why.

`python -m tests.differential.differences` writes docs/differences.md from this table. The test
fails for a difference that is not listed here, and for one listed here that is none any more.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from tests.differential.comparison import Difference

PAGE: Final = Path(__file__).parents[2] / "docs" / "differences.md"


class Place(msgspec.Struct, frozen=True):
    """Exchanges of a script, fields of their answers, and values; `*` stands for anything."""

    script: str
    exchange: str
    path: str
    kafka: str = "*"
    headrace: str = "*"


class KnownDifference(msgspec.Struct, frozen=True):
    """One row of the page, and everywhere that it shows."""

    what: str
    kafka: str
    headrace: str
    reason: str
    places: tuple[Place, ...]


class FoundOtherwise(msgspec.Struct, frozen=True):
    """One row of the page for what no script plays: it depends on time, on order, on chance."""

    what: str
    kafka: str
    headrace: str
    reason: str


def explains(place: Place, difference: Difference) -> bool:
    """Whether a difference was found in a place that the table lists."""
    return (
        fnmatchcase(difference.exchange, place.exchange)
        and fnmatchcase(difference.path, place.path)
        and fnmatchcase(str(difference.kafka), place.kafka)
        and fnmatchcase(str(difference.headrace), place.headrace)
    )


def render() -> str:
    """Give the page."""
    return _HEAD + _rows(KNOWN) + _OTHERWISE_HEAD + _rows(OTHERWISE)


def _rows(table: Iterable[KnownDifference | FoundOtherwise]) -> str:
    return "".join(
        f"| {each.what} | {each.kafka} | {each.headrace} | {each.reason} |\n" for each in table
    )


def _places(script: str, exchange: str, *paths: str) -> tuple[Place, ...]:
    return tuple(Place(script, exchange, path) for path in paths)


# Keys of APIs that other parts of Headrace will serve.
_SECURITY_APIS: Final = (17, 29, 30, 31, 36, 38, 39, 40, 41, 48, 49, 50, 51)
_VOTER_APIS: Final = (80, 81)

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
    *("share_many_partitions", "share_sessions_of_others", "share_states_missing"),
)
"""Scripts in which Kafka refuses something without a word."""

KNOWN: Final[tuple[KnownDifference, ...]] = (
    KnownDifference(
        what="DescribeConfigs with a resource twice, for the same configs",
        kafka="two results",
        headrace="one result",
        reason="A small request would make a large response; clients have one result for each.",
        places=_places("describe_topic_configs", "a resource twice", "results.1"),
    ),
    KnownDifference(
        what="APIs of security and voters",
        kafka="in ApiVersions",
        headrace="not there",
        reason="They come with the parts of Headrace that they belong to.",
        places=tuple(
            Place("api_versions", "what the broker speaks v*", f"api_keys.{key}", headrace="None")
            for key in (*_SECURITY_APIS, *_VOTER_APIS)
        ),
    ),
    KnownDifference(
        what="An array or a client id of length -2; a client id that is not UTF-8",
        kafka="taken for null; any bytes",
        headrace="the connection is closed, with a log line",
        reason="No client sends it, and what it means is a guess.",
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
        reason="The client's mistake is named as one.",
        places=_places("metadata_by_id", "by neither id nor name", "topics.*"),
    ),
    KnownDifference(
        what="Metadata that creates a topic",
        kafka="UNKNOWN_TOPIC_OR_PARTITION first, the topic when asked again",
        headrace="the topic",
        reason="It is there when the answer is written: one round trip less.",
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
        reason="Kafka trips over it.",
        places=_places(
            "describe_topic_partitions",
            "an empty name",
            *("topics.*.error_code", "topics.*.topic_authorized_operations"),
        ),
    ),
    KnownDifference(
        what="Listeners of the voters in DescribeQuorum",
        kafka="CONTROLLER",
        headrace="those of the brokers",
        reason="There are no controllers apart from brokers.",
        places=_places(
            "describe_quorum",
            "the metadata quorum v2",
            *("nodes.0.listeners.CONTROLLER", "nodes.0.listeners.PLAINTEXT"),
        ),
    ),
    KnownDifference(
        what="Source of min.insync.replicas in a new cluster",
        kafka="a dynamic default of the cluster, which Kafka sets itself",
        headrace="the default",
        reason=(
            "Kafka needs it for its eligible leader replicas, and lets nobody take it away; "
            "here the default is enough."
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
        what="A word twice in a list, such as cleanup.policy=delete,delete",
        kafka="taken",
        headrace="INVALID_CONFIG",
        reason="It is a mistake of whoever wrote it.",
        places=_places(
            "create_topics_with_configs",
            "a policy twice",
            *("topics.*.error_code", "topics.*.configs.*", "topics.*.topic_id"),
            *("topics.*.num_partitions", "topics.*.replication_factor", "topics.*.error_message"),
        ),
    ),
    KnownDifference(
        what="A default of node.id",
        kafka="there is none",
        headrace="1",
        reason="A node starts without a file of settings.",
        places=_places(
            "describe_other_configs",
            "a broker with synonyms v*",
            "results.0.configs.node.id.synonyms.1",
        ),
    ),
    KnownDifference(
        what="AlterConfigs with a resource twice",
        kafka="no answer, ever",
        headrace="INVALID_REQUEST for each, as IncrementalAlterConfigs answers",
        reason="Kafka trips over it.",
        places=_places("alter_topic_configs", "a resource twice", ""),
    ),
    KnownDifference(
        what="CreatePartitions to more than 10,000 at once",
        kafka="UNKNOWN_SERVER_ERROR",
        headrace="POLICY_VIOLATION, as CreateTopics answers",
        reason="Kafka trips over its own check.",
        places=_places("create_partitions", "to 100001", "results.*.error_code"),
    ),
    KnownDifference(
        what="The message of a refusal, where a version has one",
        kafka="null for many errors of Produce, of admin APIs and of streams groups",
        headrace="always says why",
        reason="An error names the thing, the value and the way out.",
        places=tuple(
            Place(script, "*", "*error_message", kafka="None", headrace="<message>")
            for script in _SILENT_REFUSALS
        ),
    ),
    KnownDifference(
        what="Produce with null records",
        kafka="no answer, ever",
        headrace="INVALID_RECORD",
        reason="Kafka trips over it.",
        places=_places("produce_batches", "null records", ""),
    ),
    KnownDifference(
        what="Produce for a topic without partitions",
        kafka="the topic is not in the answer",
        headrace="the topic is there, with no partitions",
        reason="Nobody can tell what it would mean, and no client sends it.",
        places=_places("produce_places", "no partition", "responses.*"),
    ),
    KnownDifference(
        what="Produce with a partition twice",
        kafka="the last records are appended, the others forgotten, one row",
        headrace="all are appended, a row each",
        reason="What was acknowledged is in the log.",
        places=_places("produce_places", "a partition twice", "responses.*.partition_responses.1"),
    ),
    KnownDifference(
        what="Produce of a batch with half a batch behind it",
        kafka="the half is dropped without a word",
        headrace="INVALID_RECORD",
        reason="Bytes are not thrown away that somebody meant to be kept.",
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
        headrace="taken",
        reason="The broker writes the offset over it in any case.",
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
        what="Produce of compressed records that do not inflate",
        kafka="UNKNOWN_SERVER_ERROR",
        headrace=(
            "INVALID_RECORD if they do not begin as their codec does, if the topic has to look "
            "inside, or with headrace.produce.validation=records; else taken, and a consumer "
            "refuses them"
        ),
        reason=(
            "A compressed batch is taken by its header, its checksum and what it could hold; the "
            "checksum says that its records are what the producer sent."
        ),
        places=_places(
            "produce_codecs", "* that does not inflate", "*.error_code", "*.base_offset"
        ),
    ),
    KnownDifference(
        what="Produce with a codec that does not exist",
        kafka="UNKNOWN_SERVER_ERROR",
        headrace="UNSUPPORTED_COMPRESSION_TYPE",
        reason="The client's mistake is named as one.",
        places=_places("produce_batches", "codec 5 v13", "*.error_code", "*.log_start_offset"),
    ),
    KnownDifference(
        what="A transactional batch without a producer id",
        kafka="taken",
        headrace="INVALID_TXN_STATE",
        reason="Nothing could ever end its transaction.",
        places=_places(
            "produce_transactional",
            "a transactional batch from nobody",
            *("*.error_code", "*.base_offset"),
        ),
    ),
    KnownDifference(
        what="Fetch with a negative limit of bytes",
        kafka="UNKNOWN_SERVER_ERROR for the first partition",
        headrace="as a limit of 0",
        reason="Kafka trips over it.",
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
        kafka="those with an error behind topics that came later",
        headrace="in the order of the session",
        reason="Clients read them by topic and partition.",
        places=(
            *_places("fetch_sessions", "an unknown topic", "responses.*"),
            *_places("fetch_sessions", "again without naming them", "responses.*"),
        ),
    ),
    KnownDifference(
        what="JoinGroup with a protocol twice, or with a subscription that cannot be read",
        kafka="no answer, ever, or UNKNOWN_SERVER_ERROR",
        headrace="the member joins; the first of the two holds, and what it says is its own matter",
        reason="Kafka trips over it.",
        places=(
            Place("classic_join_errors", "a subscription that cannot be read", ""),
            Place("classic_join_errors", "a protocol twice", ""),
        ),
    ),
    KnownDifference(
        what="A consumer group's first heartbeat with a regular expression",
        kafka="no topics: they are looked for meanwhile, and come with a later heartbeat",
        headrace="the topics",
        reason="They are found in the time that an answer takes.",
        places=_places(
            "consumer_regex", "a regex", "assignment.topic_partitions.*", "member_epoch"
        ),
    ),
    KnownDifference(
        what="OffsetFetch from a consumer group with an epoch and no member id",
        kafka="UNKNOWN_SERVER_ERROR",
        headrace="UNKNOWN_MEMBER_ID",
        reason="Kafka trips over it.",
        places=_places("consumer_offsets", "fetch of nobody in an epoch v*", "*.error_code"),
    ),
    KnownDifference(
        what="A streams member that names a task twice among those it owns",
        kafka="no tasks in the answer, as if it owned all of them",
        headrace="its tasks, as to anybody who does not own all of them",
        reason="The member would go on without a task that is its own.",
        places=_places("streams_heartbeat_errors_of_members", "a task twice", "*_tasks"),
    ),
    KnownDifference(
        what=(
            "A topology of streams with a negative epoch, a subtopology twice, or a copartition "
            "group that points nowhere"
        ),
        kafka="UNKNOWN_SERVER_ERROR",
        headrace="STREAMS_INVALID_TOPOLOGY",
        reason="The client's mistake is named as one.",
        places=(
            Place("streams_topologies", "epoch -1", "error_code"),
            Place("streams_topologies", "a subtopology twice", "error_code"),
            Place("streams_topologies", "a copartition group that points nowhere", "error_code"),
        ),
    ),
    KnownDifference(
        what="DescribeShareGroupOffsets for a partition that is none, or for none of a topic",
        kafka="no answer, ever, or UNKNOWN_SERVER_ERROR for the whole group",
        headrace="an offset of -1, as for whatever nothing is known of; a topic without partitions",
        reason="Kafka trips over it.",
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
        kafka="UNKNOWN_SERVER_ERROR, or nothing if all topics are asked for",
        headrace="INVALID_GROUP_ID",
        reason="The client's mistake is named as one.",
        places=_places("share_offsets_described", "a group without a name*", "groups.0.error_*"),
    ),
    KnownDifference(
        what="AlterShareGroupOffsets to an offset below -1",
        kafka="taken, and shown",
        headrace="INVALID_REQUEST",
        reason="There is no such offset: nobody could begin there.",
        places=_places("share_offsets_altered", "-2", "responses.0.partitions.0.error_*"),
    ),
    KnownDifference(
        what="AlterShareGroupOffsets of a partition below 0",
        kafka="UNKNOWN_SERVER_ERROR for the whole request",
        headrace="UNKNOWN_TOPIC_OR_PARTITION for the partition",
        reason="The client's mistake is named as one.",
        places=_places("share_offsets_altered", "a negative partition", "responses.0", "error_*"),
    ),
    KnownDifference(
        what="Configs of groups for dead letters, resting after a release and the circuit breaker",
        kafka="not there",
        headrace="errors.deadletterqueue.* and headrace.share.*",
        reason="They are what Headrace can do beyond Kafka, and off unless somebody sets them.",
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
        what="ShareFetch that begins a session with a topic id that nobody knows",
        kafka="UNKNOWN_SERVER_ERROR for the whole request, and no session",
        headrace="UNKNOWN_TOPIC_ID for the partition",
        reason="A topic that was just deleted takes the others of the session with it in Kafka.",
        places=_places(
            "share_many_partitions",
            "an unknown topic",
            *("error_code", "responses.0", "acquisition_lock_timeout_ms"),
        ),
    ),
    KnownDifference(
        what="Acquired ranges of batches that follow each other, when they come again",
        kafka="a range for each batch that was acquired by itself before",
        headrace="one range",
        reason="Neighbours in the same state are kept as one; ranges name the same records.",
        places=_places(
            *("share_sessions_of_others", "then it has it"),
            *("responses.0.partitions.0.acquired_records.*",),
        ),
    ),
    KnownDifference(
        what="Records that were delivered often, beside some that were delivered less often",
        kafka="come together, as many as the first of them lets",
        headrace="come apart: a range has one delivery count while records are suspected",
        reason="A record that fails its members takes as few others along as can be.",
        places=_places(
            *("share_redeliveries", "limit 10, fetch *"),
            *("responses.0.partitions.0.acquired_records.*", "responses.0.partitions.0.records.*"),
        ),
    ),
    KnownDifference(
        what="The last records before the bound of those in flight, with a limit of records",
        kafka="rests of a batch that is in flight already are counted against the bound again",
        headrace="only records that are new in flight are",
        reason="The bound is one of records in flight; those rests are in it.",
        places=_places(
            *("share_window_of_records", "fill *"),
            *("responses.0.partitions.0.acquired_records.*",),
        ),
    ),
    KnownDifference(
        what="A group whose only offsets were those of an aborted transaction",
        kafka="listed, as empty",
        headrace="not there",
        reason="A group without members, records and offsets is none.",
        places=_places("transactional_offsets", "the groups", "groups.*"),
    ),
    KnownDifference(
        what="AddPartitionsToTxn from version 4 on without a transaction",
        kafka="no answer, ever",
        headrace="an answer without a transaction",
        reason="Kafka trips over it.",
        places=_places("add_partitions_to_transactions", "no transactions", ""),
    ),
)


OTHERWISE: Final[tuple[FoundOtherwise, ...]] = (
    FoundOtherwise(
        what="A largest timestamp in a compressed batch's header that is not the records'",
        kafka="corrected",
        headrace="corrected if the batch is inflated, else kept",
        reason="A compressed batch is not inflated without need; producers state it correctly.",
    ),
    FoundOtherwise(
        what="Produce of records whose offset deltas do not count 0, 1, 2",
        kafka="kept in an uncompressed batch, rewritten in a compressed one",
        headrace="INVALID_RECORD, where records are looked at",
        reason="The broker does not rewrite records, and readers would see the wrong offsets.",
    ),
    FoundOtherwise(
        what="ListOffsets by time in a log with a batch that nobody can read",
        kafka="UNKNOWN_SERVER_ERROR",
        headrace="the batch is passed over, with a line in the node's log",
        reason="One batch must not make the partition unfindable.",
    ),
    FoundOtherwise(
        what="The first heartbeat of a share group's member",
        kafka="answered at once, without partitions; they come a heartbeat later, after 5 s",
        headrace="answered with the partitions once their states have begun, some ms later",
        reason="A new queue's first record need not take 5 s. "
        "`headrace.group.first.assignment.wait.ms=0` has it as in Kafka, and so do the scripts.",
    ),
    FoundOtherwise(
        what="HeartbeatIntervalMs for a member without partitions while a target is due",
        kafka="the interval of the group",
        headrace="the time until the target is computed",
        reason="Members of consumer and share groups that join between two targets are not idle "
        "for 5 s. The same setting turns it off.",
    ),
    FoundOtherwise(
        what="A JoinGroup that a member repeats while the first still waits",
        kafka="the newer one is answered, the older one never",
        headrace="the older one is answered REBALANCE_IN_PROGRESS at once",
        reason="Every request has an answer; a client that still reads it joins again.",
    ),
    FoundOtherwise(
        what="Order of the members of a group in descriptions",
        kafka="that of a hash table",
        headrace="the order in which they joined",
        reason="Something has to be first; no client relies on it.",
    ),
    FoundOtherwise(
        what="The first FindCoordinator of its kind in a new cluster",
        kafka="COORDINATOR_NOT_AVAILABLE, until the internal topic is there",
        headrace="the coordinator, as soon as the topic is there",
        reason="It is there within milliseconds: one round trip and the client's pause less.",
    ),
    FoundOtherwise(
        what="A group that never had members, once its last offset is deleted",
        kafka="listed as empty until it is next looked for what has expired",
        headrace="not there any more",
        reason="A group without members, records and offsets is none.",
    ),
    FoundOtherwise(
        what="A Produce with batches of several transactional producers",
        kafka="INVALID_PRODUCER_ID_MAPPING for every partition of the request",
        headrace="each partition is answered for itself",
        reason="Producers send their own batches only; a good one is not lost to a bad one.",
    ),
    FoundOtherwise(
        what="A transaction that runs out of time in the last epoch of its producer id",
        kafka="the transactional id has its next producer id once the abort is complete",
        headrace="the next one who begins gets it, and may repeat that",
        reason="Nobody may use the id in between, and an id is taken only if it is used.",
    ),
    FoundOtherwise(
        what="Defaults of socket.send.buffer.bytes and socket.receive.buffer.bytes",
        kafka="102400",
        headrace="-1: the kernel sizes them as it goes",
        reason="A fixed size turns the kernel's own tuning off, and slows long ways down.",
    ),
    FoundOtherwise(
        what="A disk without room for the metadata log",
        kafka="the process ends, and connections with it",
        headrace="changes are answered KAFKA_STORAGE_ERROR until there is room, all else goes on",
        reason="What clients read needs no room, and a full disk passes.",
    ),
    FoundOtherwise(
        what="Patterns in `match` of client metrics",
        kafka="Java's, of any size",
        headrace="RE2's, bounded in size; values beyond 256 characters match none",
        reason="A pattern must not keep the broker from its work.",
    ),
    FoundOtherwise(
        what="More than 500 configs of one resource",
        kafka="taken for a broker, under names that nobody knows",
        headrace="INVALID_REQUEST",
        reason="What a client may send has a bound; all of Kafka's settings fit.",
    ),
    FoundOtherwise(
        what="Settings of encryption, authentication, authorization, policies and quota callbacks",
        kafka="protect the broker",
        headrace="refused by name, at the start and as dynamic configs, unless they are empty or "
        "the default; listeners are PLAINTEXT",
        reason="There is no such protection yet, and nobody is to believe that there is.",
    ),
)


_HEAD: Final = """\
# Differences from Apache Kafka 4.3.1

`tests/differential` sends the same requests, right and wrong ones, in every version, to Apache
Kafka and to Headrace and compares the answers field by field. What a broker chooses itself is not
compared: topic, cluster, producer and session ids, ports, paths, times and the wording of messages
(whether there is one is). What is compared is equal but for what this page lists. The page is
written by `python -m tests.differential.differences` from the table that the test uses; a listed
difference that is none any more fails the test.

| what | Apache Kafka | Headrace | why |
| --- | --- | --- | --- |
"""

_OTHERWISE_HEAD: Final = """
## Found otherwise

No script plays these: they depend on time, on an order that is nobody's, or on a new cluster.

| what | Apache Kafka | Headrace | why |
| --- | --- | --- | --- |
"""


if __name__ == "__main__":
    PAGE.write_text(render())
