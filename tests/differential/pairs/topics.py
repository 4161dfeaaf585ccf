"""Topics, partitions, configs and features, and the requests that show what became of them.

Kafka's controller answers before its brokers have heard of a change. It is compared where the
controller itself says what it knows; what brokers show is asserted with Headrace alone.
"""

from typing import Final

from headrace.errors import ErrorCode
from headrace.wire import ApiKey
from headrace.wire.messages import alter_configs_request as replacing
from headrace.wire.messages import incremental_alter_configs_request as incremental
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.messages.describe_configs_response import DescribeConfigsResponse
from headrace.wire.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from headrace.wire.messages.update_features_request import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from tests.differential.conversation import Conversation
from tests.differential.pairs.pair import BEHIND, TIMES, Pair
from tests.differential.pairs.records import offset_of
from tests.differential.requests import (
    LATEST,
    TIMEOUT_MS,
    Topic,
    creatable,
    create,
    delete,
    list_offsets,
    metadata,
)

TOPIC, GROUP = 2, 32
SAFE_DOWNGRADE: Final = 2
FEATURE: Final = "eligible.leader.replicas.version"
"""A feature that no script depends on."""


def order_of_topic_names(talk: Conversation) -> None:
    """A name is taken when its topic is created, and free when that is deleted."""
    for turn in range(TIMES):
        name = talk.name(f"t{turn}")
        new = create(creatable(name))
        answers = talk.ask_at_once(
            f"turn {turn}", [new, new, delete(name), delete(name), new], hide=["configs"]
        )
        rows = [getattr(m, "topics", None) or m.responses for m in answers]
        assert [row[0].error_code for row in rows] == [
            *(0, ErrorCode.TOPIC_ALREADY_EXISTS),
            *(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        ]


def order_of_partition_counts(talk: Conversation) -> None:
    """What a topic is created with, partitions can be added to; twice the same is refused."""
    for turn in range(TIMES):
        name = talk.name(f"t{turn}")
        added = create_partitions(name, 3)
        asked = [create(creatable(name)), added, added, create_partitions(name, 4)]
        created, *answers = talk.ask_at_once(f"turn {turn}", asked, hide=["configs"])
        assert created.topics[0].error_code == 0
        codes = [answer.results[0].error_code for answer in answers]
        assert codes == [0, ErrorCode.INVALID_PARTITIONS, 0]


def order_of_create_topics(talk: Conversation) -> None:
    for turn in range(TIMES):
        name = talk.name(f"t{turn}")
        created, found, described, listed = talk.ask_at_once(
            f"turn {turn}",
            [
                create(creatable(name, partitions=2)),
                metadata(name),
                describe_topic(name),
                list_offsets(Topic(name), (1, LATEST)),
            ],
        )
        topic_id = created.topics[0].topic_id
        for answer in (found, described):
            assert answer.topics[0].error_code == 0
            assert answer.topics[0].topic_id == topic_id
            assert [row.leader_id >= 0 for row in answer.topics[0].partitions] == [True, True]
        assert listed.topics[0].partitions[0].error_code == 0
        assert offset_of(listed) == 0


def order_of_delete_topics(talk: Conversation) -> None:
    for turn in range(TIMES):
        topic = talk.topic(f"t{turn}")
        deleted, gone, listed, _, back = talk.ask_at_once(
            f"turn {turn}",
            [
                delete(topic.name),
                metadata(topic.name),
                list_offsets(topic, (0, LATEST)),
                create(creatable(topic.name)),
                metadata(topic.name),
            ],
        )
        assert deleted.responses[0].error_code == 0
        assert gone.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code = listed.topics[0].partitions[0].error_code
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert back.topics[0].error_code == 0
        assert back.topics[0].topic_id != topic.id


def order_of_create_partitions(talk: Conversation) -> None:
    for turn in range(TIMES):
        topic = talk.topic(f"t{turn}")
        added, found, described, listed = talk.ask_at_once(
            f"turn {turn}",
            [
                create_partitions(topic.name, 3),
                metadata(topic.name),
                describe_topic(topic.name),
                list_offsets(topic, (2, LATEST)),
            ],
        )
        assert added.results[0].error_code == 0
        assert len(found.topics[0].partitions) == len(described.topics[0].partitions) == 3
        assert listed.topics[0].partitions[0].error_code == 0


def order_of_alter_configs(talk: Conversation) -> None:
    for turn in range(TIMES):
        topic = talk.topic(f"t{turn}", retention_ms="111")
        group = talk.name(f"g{turn}")
        answers = talk.ask_at_once(
            f"turn {turn}",
            [
                alter(TOPIC, topic.name, "retention.ms", f"22{turn}"),
                describe(TOPIC, topic.name, "retention.ms"),
                replace(topic.name, "retention.ms", f"33{turn}"),
                describe(TOPIC, topic.name, "retention.ms"),
                alter(GROUP, group, "share.session.timeout.ms", "50000"),
                describe(GROUP, group, "share.session.timeout.ms"),
                ListConfigResourcesRequest(resource_types=[GROUP]),
            ],
        )
        assert [value_of(answers[at]) for at in (1, 3, 5)] == [f"22{turn}", f"33{turn}", "50000"]
        assert group in {row.resource_name for row in answers[6].config_resources}


def order_of_a_topics_life(talk: Conversation) -> None:
    for turn in range(TIMES):
        name = talk.name(f"t{turn}")
        answers = talk.ask_at_once(
            f"turn {turn}",
            [
                create(creatable(name)),
                alter(TOPIC, name, "retention.ms", "4242"),
                describe(TOPIC, name, "retention.ms"),
                create_partitions(name, 2),
                metadata(name),
                delete(name),
                metadata(name),
                describe(TOPIC, name, "retention.ms"),
            ],
        )
        assert value_of(answers[2]) == "4242"
        assert len(answers[4].topics[0].partitions) == 2
        codes = [answers[6].topics[0].error_code, answers[7].results[0].error_code]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


def order_of_metadata_that_creates(talk: Conversation) -> None:
    for turn in range(TIMES):
        name = talk.name(f"t{turn}")
        _, found, listed, refused = talk.ask_at_once(
            f"turn {turn}",
            [
                metadata(name, is_auto_created=True),
                metadata(name),
                list_offsets(Topic(name), (0, LATEST)),
                create(creatable(name)),
            ],
        )
        assert found.topics[0].error_code == listed.topics[0].partitions[0].error_code == 0
        assert refused.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def order_of_update_features(talk: Conversation) -> None:
    for turn in range(TIMES):
        down = FeatureUpdateKey(feature=FEATURE, max_version_level=0, upgrade_type=SAFE_DOWNGRADE)
        up = FeatureUpdateKey(feature=FEATURE, max_version_level=1)
        client = ApiVersionsRequest(client_software_name="order", client_software_version="1")
        lowered, low, raised, high = talk.ask_at_once(
            f"turn {turn}", [_update(down), client, _update(up), client]
        )
        assert lowered.error_code == raised.error_code == 0
        levels = [
            {row.name: row.max_version_level for row in answer.finalized_features}
            for answer in (low, high)
        ]
        assert [each.get(FEATURE, 0) for each in levels] == [0, 1]


def create_partitions(name: str, count: int) -> CreatePartitionsRequest:
    row = CreatePartitionsTopic(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[row], timeout_ms=TIMEOUT_MS)


def describe_topic(name: str) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])


def alter(
    kind: int, resource: str, name: str, value: str
) -> incremental.IncrementalAlterConfigsRequest:
    row = incremental.AlterableConfig(name=name, config_operation=0, value=value)
    return incremental.IncrementalAlterConfigsRequest(
        resources=[incremental.AlterConfigsResource(kind, resource, [row])]
    )


def replace(topic: str, name: str, value: str) -> replacing.AlterConfigsRequest:
    row = replacing.AlterableConfig(name=name, value=value)
    return replacing.AlterConfigsRequest(
        resources=[replacing.AlterConfigsResource(TOPIC, topic, [row])]
    )


def describe(kind: int, resource: str, name: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[DescribeConfigsResource(kind, resource, configuration_keys=[name])]
    )


def value_of(described: DescribeConfigsResponse) -> str | None:
    return described.results[0].configs[0].value


def _update(*rows: FeatureUpdateKey) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(feature_updates=list(rows), timeout_ms=TIMEOUT_MS)


PAIRS: Final = (
    Pair(order_of_topic_names, (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS)),
    Pair(order_of_partition_counts, (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS)),
    Pair(order_of_create_topics, (ApiKey.CREATE_TOPICS,), BEHIND),
    Pair(order_of_delete_topics, (ApiKey.DELETE_TOPICS, ApiKey.CREATE_TOPICS), BEHIND),
    Pair(order_of_create_partitions, (ApiKey.CREATE_PARTITIONS,), BEHIND),
    Pair(
        order_of_alter_configs,
        (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS),
        BEHIND,
    ),
    Pair(
        order_of_a_topics_life,
        (ApiKey.CREATE_TOPICS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.DELETE_TOPICS),
        BEHIND,
    ),
    Pair(order_of_metadata_that_creates, (ApiKey.METADATA,), BEHIND),
    Pair(order_of_update_features, (ApiKey.UPDATE_FEATURES,), BEHIND),
)
