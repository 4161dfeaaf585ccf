"""confluent-kafka (librdkafka): administration of a broker."""

from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.conftest import DEADLINE_SECONDS, START_MS, TopicMaker, eventually


def create(admin: AdminClient, *topics: NewTopic, is_trial: bool = False) -> dict[str, int | None]:
    """Create the topics; give each one's error code, None for one that was created."""
    futures = admin.create_topics(list(topics), validate_only=is_trial)
    return {name: error_of(future) for name, future in futures.items()}


def error_of(future: Future[Any]) -> int | None:
    try:
        future.result(DEADLINE_SECONDS)
    except KafkaException as error:
        code: int = error.args[0].code()
        return code
    return None


def configs(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(
        DEADLINE_SECONDS
    )
    return found


def config_value(admin: AdminClient, topic: str, name: str) -> str | None:
    value: str | None = configs(admin, topic)[name].value
    return value


def partition_ids(admin: AdminClient, topic: str) -> list[int]:
    return sorted(admin.list_topics(topic, DEADLINE_SECONDS).topics[topic].partitions)


def alter(admin: AdminClient, topic: str, name: str, value: str, how: AlterConfigOpType) -> None:
    entry = ConfigEntry(name, value, incremental_operation=how)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_SECONDS)


def fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(count):
        producer.produce(topic, b"%d" % n, partition=0, timestamp=START_MS + n)
    assert producer.flush(DEADLINE_SECONDS) == 0


def test_a_new_topic_is_described_as_it_was_asked_for(admin: AdminClient, new_name: str) -> None:
    wanted = NewTopic(new_name, 4, 1, config={"retention.ms": "12345"})
    assert create(admin, wanted) == {new_name: None}

    described = admin.describe_topics(TopicCollection([new_name]))[new_name].result(
        DEADLINE_SECONDS
    )
    assert described.name == new_name
    assert not described.is_internal
    assert [partition.id for partition in described.partitions] == [0, 1, 2, 3]
    for partition in described.partitions:
        assert [node.id for node in partition.replicas] == [partition.leader.id]
        assert [node.id for node in partition.isr] == [partition.leader.id]
    assert configs(admin, new_name)["retention.ms"].value == "12345"


def test_topics_that_cannot_be_are_refused_and_the_others_are_made(
    admin: AdminClient, new_topic: TopicMaker, new_name: str
) -> None:
    taken = new_topic()
    bad_config = NewTopic(f"{new_name}-c", 1, 1, config={"no.such.config": "1"})
    bad_value = NewTopic(f"{new_name}-v", 1, 1, config={"retention.ms": "soon"})
    assert create(
        admin,
        NewTopic(new_name, 1, 1),
        NewTopic(taken, 1, 1),
        NewTopic("not/allowed", 1, 1),
        NewTopic(f"{new_name}-r", 1, 3),
        bad_config,
        bad_value,
    ) == {
        new_name: None,
        taken: KafkaError.TOPIC_ALREADY_EXISTS,
        "not/allowed": KafkaError.TOPIC_EXCEPTION,
        f"{new_name}-r": KafkaError.INVALID_REPLICATION_FACTOR,
        f"{new_name}-c": KafkaError.INVALID_CONFIG,
        f"{new_name}-v": KafkaError.INVALID_CONFIG,
    }
    assert new_name in admin.list_topics(timeout=DEADLINE_SECONDS).topics


def test_a_trial_creates_nothing(admin: AdminClient, new_name: str) -> None:
    assert create(admin, NewTopic(new_name, 1, 1), is_trial=True) == {new_name: None}
    assert new_name not in admin.list_topics(timeout=DEADLINE_SECONDS).topics


def test_the_cluster_has_one_node_which_is_where_the_client_connects(
    admin: AdminClient, bootstrap: str
) -> None:
    cluster = admin.describe_cluster().result(DEADLINE_SECONDS)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [bootstrap]
    assert cluster.controller.id == cluster.nodes[0].id
    assert cluster.cluster_id


def test_configs_are_described_with_default_source_and_flags(
    admin: AdminClient, new_topic: TopicMaker
) -> None:
    found = configs(admin, new_topic(retention_ms="60000"))
    own, default = found["retention.ms"], found["segment.bytes"]
    assert (own.value, own.source, own.is_default) == (
        "60000",
        ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
        False,
    )
    assert (default.value, default.source, default.is_default) == (
        "1073741824",
        ConfigSource.DEFAULT_CONFIG.value,
        True,
    )
    assert not own.is_read_only
    assert not own.is_sensitive
    assert {"cleanup.policy", "max.message.bytes", "min.insync.replicas"} <= found.keys()


def test_configs_are_set_appended_to_subtracted_from_and_deleted(
    admin: AdminClient, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    alter(admin, topic, "retention.ms", "777", AlterConfigOpType.SET)
    alter(admin, topic, "cleanup.policy", "compact", AlterConfigOpType.APPEND)
    eventually(partial(config_value, admin, topic, "cleanup.policy"), "delete,compact")
    assert config_value(admin, topic, "retention.ms") == "777"

    alter(admin, topic, "cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    alter(admin, topic, "retention.ms", "", AlterConfigOpType.DELETE)
    eventually(partial(config_value, admin, topic, "retention.ms"), "604800000")
    assert config_value(admin, topic, "cleanup.policy") == "compact"


def test_an_impossible_config_is_refused_and_nothing_changes(
    admin: AdminClient, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    for name, value in [("max.message.bytes", "-1"), ("cleanup.policy", "burn"), ("nope", "1")]:
        with pytest.raises(KafkaException) as refused:
            alter(admin, topic, name, value, AlterConfigOpType.SET)
        assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
        assert name in refused.value.args[0].str()
    assert config_value(admin, topic, "max.message.bytes") == "1048588"


def test_a_config_takes_effect_without_a_restart(
    bootstrap: str, admin: AdminClient, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    alter(admin, topic, "max.message.bytes", "1000", AlterConfigOpType.SET)
    eventually(partial(config_value, admin, topic, "max.message.bytes"), "1000")
    errors: list[int | None] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    for size in (2000, 500):
        producer.produce(
            topic, b"x" * size, on_delivery=lambda e, _: errors.append(e.code() if e else None)
        )
        assert producer.flush(DEADLINE_SECONDS) == 0
    assert errors == [KafkaError.MSG_SIZE_TOO_LARGE, None]


def test_a_brokers_configs_can_be_described_and_changed(admin: AdminClient) -> None:
    node = admin.describe_cluster().result(DEADLINE_SECONDS).nodes[0].id
    resource = ConfigResource(ResourceType.BROKER, str(node))
    found = admin.describe_configs([resource])[resource].result(DEADLINE_SECONDS)
    assert found["node.id"].value == str(node)
    assert found["node.id"].is_read_only

    def set_to(value: str | None) -> None:
        how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry("log.retention.ms", value, incremental_operation=how)
        change = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[entry])
        admin.incremental_alter_configs([change])[change].result(DEADLINE_SECONDS)

    def value_and_source() -> tuple[str | None, int]:
        described = admin.describe_configs([resource])[resource].result(DEADLINE_SECONDS)
        entry = described["log.retention.ms"]
        return entry.value, entry.source

    set_to("86400000")
    eventually(value_and_source, ("86400000", ConfigSource.DYNAMIC_BROKER_CONFIG.value))
    set_to(None)
    eventually(value_and_source, (None, ConfigSource.DEFAULT_CONFIG.value))


def test_partitions_are_added_and_never_taken_away(
    bootstrap: str, admin: AdminClient, new_topic: TopicMaker
) -> None:
    topic = new_topic(partitions=2)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(DEADLINE_SECONDS)
    eventually(partial(partition_ids, admin, topic), [0, 1, 2, 3, 4])
    futures = admin.create_partitions([NewPartitions(topic, 3)])
    assert error_of(futures[topic]) == KafkaError.INVALID_PARTITIONS

    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"in a new one", partition=4)
    assert producer.flush(DEADLINE_SECONDS) == 0
    newest = TopicPartition(topic, 4)
    found = admin.list_offsets({newest: OffsetSpec.latest()})[newest].result(DEADLINE_SECONDS)
    assert found.offset == 1


def test_records_are_deleted_up_to_an_offset(
    bootstrap: str, admin: AdminClient, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 10)
    deleted = admin.delete_records([TopicPartition(topic, 0, 4)])
    assert [future.result(DEADLINE_SECONDS).low_watermark for future in deleted.values()] == [4]
    beyond = admin.delete_records([TopicPartition(topic, 0, 11)])
    assert [error_of(future) for future in beyond.values()] == [KafkaError.OFFSET_OUT_OF_RANGE]

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_SECONDS)
    assert (low, high) == (4, 10)
    consumer.close()


def test_offsets_are_listed_by_kind_and_by_time(
    bootstrap: str, admin: AdminClient, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 10)

    def listed(spec: OffsetSpec) -> tuple[int, int]:
        partition = TopicPartition(topic, 0)
        found = admin.list_offsets({partition: spec})[partition].result(DEADLINE_SECONDS)
        return found.offset, found.timestamp

    assert listed(OffsetSpec.earliest()) == (0, -1)
    assert listed(OffsetSpec.latest()) == (10, -1)
    assert listed(OffsetSpec.max_timestamp()) == (9, START_MS + 9)
    assert listed(OffsetSpec.for_timestamp(START_MS + 3)) == (3, START_MS + 3)
    assert listed(OffsetSpec.for_timestamp(START_MS + 10)) == (-1, -1)


def test_a_deleted_topic_is_gone_and_an_unknown_one_is_named(
    admin: AdminClient, new_topic: TopicMaker, new_name: str
) -> None:
    topic = new_topic()
    futures = admin.delete_topics([topic, new_name])
    assert error_of(futures[topic]) is None
    assert error_of(futures[new_name]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    eventually(lambda: topic in admin.list_topics(timeout=DEADLINE_SECONDS).topics, False)
    described = admin.describe_topics(TopicCollection([topic]))[topic]
    assert error_of(described) == KafkaError.UNKNOWN_TOPIC_OR_PART
