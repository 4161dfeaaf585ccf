"""Topics made, enlarged and deleted."""

from headrace.wire.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.messages.create_topics_request import CreateTopicsRequest
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.differential.connection import all_versions
from tests.differential.conversation import Conversation
from tests.differential.plain import MADE_UP_ID
from tests.differential.requests import TIMEOUT_MS, creatable, create, delete, metadata
from tests.differential.scripts.cluster import INVALID_NAMES


def create_topics(talk: Conversation) -> None:
    for version in all_versions(CreateTopicsRequest):
        name = talk.name(f"v{version}")
        talk.ask(f"a topic v{version}", create(creatable(name)), version)
        talk.ask(f"the same again v{version}", create(creatable(name)), version)
        checked = create(creatable(talk.name("only checked")), validate_only=True)
        checked.topics[0].name = talk.name(f"checked-{version}")
        talk.ask(f"only checked v{version}", checked, version)
        talk.ask(f"a bad name v{version}", create(creatable("a b")), version)
    talk.ask("nothing", create())
    talk.settled(talk.name("v7"))
    talk.ask("what was only checked is not there", metadata(talk.name("checked-7")))
    talk.ask("what was made is", metadata(talk.name("v7")))
    talk.ask("checked, but it exists", create(creatable(talk.name("v7")), validate_only=True))
    talk.ask("an internal name", create(creatable("__cluster_metadata")))


def create_topics_with_bad_names(talk: Conversation) -> None:
    for name in INVALID_NAMES:
        talk.ask(f"{name[:20]!r}", create(creatable(name)))
    talk.topic("a.b_c")
    talk.ask("a name that collides", create(creatable(talk.name("a_b_c"))))
    talk.ask(
        "two names that collide", create(creatable(talk.name("p.q")), creatable(talk.name("p_q")))
    )
    twice = talk.name("twice")
    talk.ask("a name twice", create(creatable(twice), creatable(twice), creatable(talk.name("ok"))))
    talk.settled(talk.name("ok"))
    talk.ask("the one beside it", metadata(talk.name("ok")))
    talk.ask("the one asked twice", metadata(twice))


def create_topics_with_counts(talk: Conversation) -> None:
    for partitions, replicas in (
        *((0, 1), (-1, 1), (-2, 1), (1, 0), (1, -1), (1, -2), (-1, -1), (1, 2), (1, 32767)),
        *((0, 0), (3, 1), (2, -1), (100_001, 1)),
    ):
        name = talk.name(f"p{partitions}-r{replicas}")
        request = create(creatable(name, partitions, replicas), validate_only=True)
        talk.ask(f"{partitions} partitions, {replicas} replicas", request)
    talk.ask("defaults before v4", create(creatable(talk.name("old"), -1, -1)), 3)


def create_topics_with_assignments(talk: Conversation) -> None:
    def ask(
        name: str, assignments: dict[int, list[int]], partitions: int = -1, replicas: int = -1
    ) -> None:
        topic = creatable(talk.name(name.replace(" ", "-")), partitions, replicas, assignments)
        talk.ask(name, create(topic))

    ask("one partition", {0: [1]})
    ask("two partitions", {0: [1], 1: [1]})
    ask("a gap", {0: [1], 2: [1]})
    ask("not from zero", {1: [1]})
    ask("a negative partition", {-1: [1]})
    ask("no broker", {0: []})
    ask("an unknown broker", {0: [99]})
    ask("a known and an unknown broker", {0: [1, 99]})
    ask("a broker twice", {0: [1, 1]})
    ask("a negative broker", {0: [-1]})
    ask("unequal replicas", {0: [1], 1: [1, 99]})
    ask("with a count too", {0: [1]}, partitions=1)
    ask("with a factor too", {0: [1]}, replicas=1)
    ask("with both too", {0: [1]}, partitions=1, replicas=1)
    topic = creatable(talk.name("twice"), -1, -1, {0: [1]})
    topic.assignments = [*topic.assignments, *topic.assignments]
    talk.ask("a partition twice", create(topic))


def create_topics_with_configs(talk: Conversation) -> None:
    for name, configs in (
        ("good", {"retention.ms": "1000", "cleanup.policy": "compact,delete"}),
        ("unknown name", {"none.such": "1"}),
        ("null value", {"retention.ms": None}),
        ("empty value", {"retention.ms": ""}),
        ("not a number", {"retention.ms": "abc"}),
        ("too small", {"retention.ms": "-2"}),
        ("too large", {"segment.bytes": "2147483648"}),
        ("a segment below the least", {"segment.bytes": "13"}),
        ("spaces around a number", {"retention.ms": " 1000 "}),
        ("an unknown policy", {"cleanup.policy": "shred"}),
        ("no policy", {"cleanup.policy": ""}),
        ("spaces in a list", {"cleanup.policy": "compact, delete"}),
        ("an unknown codec", {"compression.type": "brotli"}),
        ("a codec in capitals", {"compression.type": "GZIP"}),
        ("not a boolean", {"preallocate": "maybe"}),
        ("a boolean in capitals", {"preallocate": "TRUE"}),
        ("a ratio above one", {"min.cleanable.dirty.ratio": "1.5"}),
        ("no replica in sync", {"min.insync.replicas": "0"}),
        ("more replicas in sync than exist", {"min.insync.replicas": "2"}),
        ("lags crossed", {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}),
        ("tiered storage", {"remote.storage.enable": "true"}),
        ("local retention above retention", {"local.retention.ms": "10", "retention.ms": "5"}),
        ("a broker's setting", {"log.retention.hours": "5"}),
        ("an old setting", {"message.format.version": "2.8"}),
        ("a good and a bad one", {"retention.ms": "5", "segment.ms": "x"}),
        ("a list of throttled replicas", {"leader.replication.throttled.replicas": "0:1,1:1"}),
        ("a bad list of throttled replicas", {"leader.replication.throttled.replicas": "x"}),
    ):
        topic = creatable(talk.name(name.replace(" ", "-")), configs=dict(configs))
        talk.ask(name, create(topic))
    for version in (4, 5):
        topic = creatable(talk.name(f"bad-v{version}"), configs={"retention.ms": "x"})
        talk.ask(f"not a number v{version}", create(topic), version)
        topic = creatable(talk.name(f"good-v{version}"), configs={"retention.ms": "9"})
        talk.ask(f"a good one v{version}", create(topic), version)
    topic = creatable(talk.name("same-twice"), configs={"retention.ms": "5"})
    topic.configs = [*topic.configs, *topic.configs]
    talk.ask("a config twice", create(topic))
    topic = creatable(talk.name("checked"), configs={"retention.ms": "5"})
    talk.ask("only checked", create(topic, validate_only=True))
    topic = creatable(talk.name("doubled"), configs={"cleanup.policy": "delete,delete"})
    talk.ask("a policy twice", create(topic))


def delete_topics(talk: Conversation) -> None:
    for version in all_versions(DeleteTopicsRequest):
        topic = talk.topic(f"v{version}")
        unknown = talk.name("unknown")
        talk.ask(f"a topic v{version}", delete(topic.name, version=version), version)
        talk.gone(topic.name)
        talk.ask(f"it is gone v{version}", metadata(topic.name))
        talk.ask(f"it again v{version}", delete(topic.name, version=version), version)
        talk.ask(f"an unknown topic v{version}", delete(unknown, version=version), version)
    talk.ask("nothing", delete())
    talk.ask("nothing v1", delete(version=1), 1)
    for name in ("", "a b", "../x", "__cluster_metadata"):
        talk.ask(f"{name!r}", delete(name))
    one, two = talk.topic("one"), talk.topic("two")
    talk.ask("a known and an unknown topic", delete(one.name, talk.name("unknown")))
    talk.ask("a topic twice", delete(two.name, two.name))
    talk.ask("what was asked for twice", metadata(two.name))
    talk.ask("a topic twice v5", delete(two.name, two.name, version=5), 5)


def delete_topics_by_id(talk: Conversation) -> None:
    one, two, three = (talk.topic(name) for name in ("one", "two", "three"))
    talk.ask("by id", delete(ids=(one.id,)))
    talk.gone(one.name)
    talk.ask("by the same id again", delete(ids=(one.id,)))
    talk.ask("by an unknown id", delete(ids=(MADE_UP_ID,)))
    talk.ask("by an id twice", delete(ids=(two.id, two.id)))
    talk.ask("by id and by name, the same", delete(two.name, ids=(two.id,)))
    talk.ask("by id and by name, two topics", delete(two.name, ids=(three.id,)))
    both = DeleteTopicState(name=two.name, topic_id=two.id)
    talk.ask("id and name in one", DeleteTopicsRequest(topics=[both], timeout_ms=TIMEOUT_MS))
    neither = DeleteTopicState(name=None)
    talk.ask("neither id nor name", DeleteTopicsRequest(topics=[neither], timeout_ms=TIMEOUT_MS))


def topics_made_again(talk: Conversation) -> None:
    old = talk.topic("again")
    talk.ask("delete it", delete(old.name))
    talk.gone(old.name)
    new = talk.topic("again")
    talk.ask("by its name", metadata(old.name))
    for name, topic in (("old", old), ("new", new)):
        row = MetadataRequestTopic(topic_id=topic.id, name=None)
        talk.ask(f"by its {name} id", MetadataRequest(topics=[row]))


def create_partitions(talk: Conversation) -> None:
    topic = talk.topic("grows")

    def ask(
        name: str,
        count: int,
        assignments: list[list[int]] | None = None,
        topics: tuple[str, ...] = (topic.name,),
        version: int = 3,
        validate_only: bool = False,
    ) -> None:
        brokers = None
        if assignments is not None:
            brokers = [CreatePartitionsAssignment(broker_ids=row) for row in assignments]
        rows = [CreatePartitionsTopic(name=n, count=count, assignments=brokers) for n in topics]
        request = CreatePartitionsRequest(
            topics=rows, timeout_ms=TIMEOUT_MS, validate_only=validate_only
        )
        talk.ask(name, request, version)

    for version in range(4):
        ask(f"to {version + 2} v{version}", version + 2, version=version)
    talk.settled(topic.name, 5)
    talk.ask("what there is now", metadata(topic.name))
    ask("to 6, only checked", 6, validate_only=True)
    talk.ask("what there still is", metadata(topic.name))
    ask("to as many", 5)
    ask("to fewer", 4)
    ask("to 0", 0)
    ask("to -1", -1)
    ask("an unknown topic", 2, topics=(talk.name("unknown"),))
    ask("an invalid name", 2, topics=("a b",))
    ask("an empty name", 2, topics=("",))
    ask("a topic twice", 7, topics=(topic.name, topic.name))
    ask("a topic twice and another", 7, topics=(topic.name, topic.name, talk.name("unknown")))
    ask("to 100001", 100_001, validate_only=True)
    ask("with an assignment", 6, [[1]])
    ask("with no assignment for it", 7, [])
    ask("with too many assignments", 8, [[1], [1]])
    ask("with an unknown broker", 9, [[99], [1]])
    ask("with no broker", 8, [[]])
    ask("with a broker twice", 8, [[1, 1]])
    ask("with more replicas", 8, [[1, 2]])
    ask("nothing", 1, topics=())


SCRIPTS = (
    create_topics,
    create_topics_with_bad_names,
    create_topics_with_counts,
    create_topics_with_assignments,
    create_topics_with_configs,
    delete_topics,
    delete_topics_by_id,
    topics_made_again,
    create_partitions,
)
