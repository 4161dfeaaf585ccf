"""confluent-kafka (librdkafka): changes in quick succession, and nothing that is shown is stale.

librdkafka sends what it is told to without waiting for answers, all on one connection, and keeps
the order of most requests; Metadata, which is behind describe_topics, and what needs a coordinator
overtake others before they are sent. A broker of Apache Kafka's hears of changes after the client
does, so that these tests are for Headrace alone.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
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
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.conftest import DEADLINE_SECONDS, TopicMaker

ROUNDS: Final = 20

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("HEADRACE_TESTS_BOOTSTRAP")),
    reason="another cluster may show what was before a change that it has confirmed",
)


def test_changes_take_effect_in_the_order_in_which_they_were_sent(
    admin: AdminClient, new_name: str
) -> None:
    admin.list_topics(timeout=DEADLINE_SECONDS)  # where the controller is: else some have to wait
    for number in range(ROUNDS):
        topic = f"{new_name}-{number}"
        resource = ConfigResource(ResourceType.TOPIC, topic)
        sent = [
            only(admin.create_topics([NewTopic(topic, 1, 1)])),
            only(admin.describe_configs([resource])),
            set_retention(admin, topic, "4242"),
            only(admin.describe_configs([resource])),
            only(admin.create_partitions([NewPartitions(topic, 3)])),
            only(admin.create_partitions([NewPartitions(topic, 3)])),
            only(admin.delete_topics([topic])),
            only(admin.describe_configs([resource])),
            only(admin.create_topics([NewTopic(topic, 1, 1)])),
            only(admin.describe_configs([resource])),
        ]
        answers = [outcome(future) for future in sent]
        values = [answers[at]["retention.ms"].value for at in (1, 3, 9)]
        assert values == ["604800000", "4242", "604800000"]
        assert [answers[at] for at in (0, 2, 4, 5, 6, 7, 8)] == [
            *(None, None, None, KafkaError.INVALID_PARTITIONS),
            *(None, KafkaError.UNKNOWN_TOPIC_OR_PART, None),
        ]


def test_what_was_confirmed_is_what_is_shown(
    bootstrap: str, admin: AdminClient, new_name: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(ROUNDS):
        topic = f"{new_name}-{number}"
        partition = TopicPartition(topic, 0)
        described = described_by(admin, topic)

        assert outcome(only(admin.create_topics([NewTopic(topic, 1, 1)]))) is None
        assert len(described().partitions) == 1
        assert topic in admin.list_topics(timeout=DEADLINE_SECONDS).topics

        assert outcome(set_retention(admin, topic, "4242")) is None
        resource = ConfigResource(ResourceType.TOPIC, topic)
        configs = outcome(only(admin.describe_configs([resource])))
        assert configs["retention.ms"].value == "4242"

        assert outcome(only(admin.create_partitions([NewPartitions(topic, 3)]))) is None
        assert len(described().partitions) == 3

        producer.produce(topic, b"a", partition=0)
        assert producer.flush(DEADLINE_SECONDS) == 0
        deleted = outcome(only(admin.delete_records([TopicPartition(topic, 0, 1)])))
        assert deleted.low_watermark == 1
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
            assert outcome(only(admin.list_offsets({partition: spec}))).offset == 1

        assert outcome(only(admin.delete_topics([topic]))) is None
        assert described() == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert topic not in admin.list_topics(timeout=DEADLINE_SECONDS).topics


def test_deleted_records_are_gone_for_what_is_asked_behind_the_deletion(
    bootstrap: str, admin: AdminClient, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": bootstrap})
    partition = TopicPartition(topic, 0)
    for number in range(1, ROUNDS + 1):
        producer.produce(topic, b"a", partition=0)
        assert producer.flush(DEADLINE_SECONDS) == 0
        deleted = only(admin.delete_records([TopicPartition(topic, 0, number)]))
        listed = only(admin.list_offsets({partition: OffsetSpec.earliest()}))
        assert outcome(deleted).low_watermark == number
        assert outcome(listed).offset == number


def test_offsets_of_groups_that_were_confirmed_are_what_is_shown(
    admin: AdminClient, new_topic: TopicMaker
) -> None:
    # Each step waits for the one before: librdkafka itself changes the order of these.
    topic = new_topic()
    for number in range(ROUNDS):
        group = f"{topic}-{number}"
        rows = [TopicPartition(topic, 0, number)]
        committed = [ConsumerGroupTopicPartitions(group, rows)]
        whole = [ConsumerGroupTopicPartitions(group)]
        outcome(only(admin.alter_consumer_group_offsets(committed)))
        listed = outcome(only(admin.list_consumer_group_offsets(whole)))
        assert [row.offset for row in listed.topic_partitions] == [number]
        groups = admin.list_consumer_groups().result(DEADLINE_SECONDS).valid
        assert group in {each.group_id for each in groups}

        assert outcome(only(admin.delete_consumer_groups([group]))) is None
        assert outcome(only(admin.list_consumer_group_offsets(whole))).topic_partitions == []
        groups = admin.list_consumer_groups().result(DEADLINE_SECONDS).valid
        assert group not in {each.group_id for each in groups}


def only(futures: Mapping[Any, Future[Any]]) -> Future[Any]:
    (future,) = futures.values()
    return future


def outcome(future: Future[Any]) -> Any:
    """Return the result, or the error's code."""
    try:
        return future.result(DEADLINE_SECONDS)
    except KafkaException as error:
        return error.args[0].code()


def set_retention(admin: AdminClient, topic: str, value: str) -> Future[Any]:
    entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    return only(admin.incremental_alter_configs([resource]))


def described_by(admin: AdminClient, topic: str) -> Callable[[], Any]:
    return lambda: outcome(only(admin.describe_topics(TopicCollection([topic]))))
