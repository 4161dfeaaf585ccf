"""What a cluster says of itself: Metadata, DescribeCluster, DescribeTopicPartitions, its quorum."""

from typing import Any

from headrace.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from headrace.wire.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from headrace.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from headrace.wire.messages.update_features_request import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from tests.differential.conversation import Conversation
from tests.differential.plain import MADE_UP_ID
from tests.differential.requests import metadata

INVALID_NAMES = ("", ".", "..", "../x", "a b", "a/b", "ä", "x" * 250, "a\x00b", "a:b", "a,b")


def metadata_of_topics(talk: Conversation) -> None:
    topic = talk.topic("one")
    talk.topic("two", partitions=3)
    talk.ask_all_versions("one topic", MetadataRequest(topics=[_named(topic.name)]))
    talk.ask_all_versions("all topics", MetadataRequest(topics=None), range(1, 14))
    talk.ask("all topics v0", MetadataRequest(topics=[]), 0)
    talk.ask_all_versions("no topics", MetadataRequest(topics=[]), range(1, 14))
    talk.ask_all_versions("an unknown topic", metadata(talk.name("unknown")), range(4, 14))
    talk.ask("two topics, one of them twice", metadata(topic.name, talk.name("two"), topic.name))
    talk.ask("one topic and an unknown one", metadata(talk.name("nobody"), topic.name))
    for version in (9, 12):
        request = metadata(topic.name)
        request.include_topic_authorized_operations = True
        talk.ask(f"authorised operations of a topic v{version}", request, version)
    for version in (8, 9, 10):
        request = metadata()
        request.include_cluster_authorized_operations = True
        talk.ask(f"authorised operations of the cluster v{version}", request, version)
    request = metadata(topic.name, talk.name("unknown"))
    request.include_topic_authorized_operations = True
    talk.ask("authorised operations of an unknown topic", request)


def metadata_by_id(talk: Conversation) -> None:
    topic = talk.topic("one")
    by_id = MetadataRequestTopic(topic_id=topic.id, name=None)
    unknown = MetadataRequestTopic(topic_id=MADE_UP_ID, name=None)
    for version in (10, 11, 12, 13):
        talk.ask(f"by id v{version}", MetadataRequest(topics=[by_id]), version)
        talk.ask(f"by unknown id v{version}", MetadataRequest(topics=[unknown]), version)
    talk.ask("by ids", MetadataRequest(topics=[by_id, unknown]))
    both = MetadataRequestTopic(topic_id=topic.id, name=topic.name)
    talk.ask("by id and name", MetadataRequest(topics=[both]), 12)
    neither = MetadataRequestTopic(name=None)
    talk.ask("by neither id nor name", MetadataRequest(topics=[neither]), 12)
    talk.ask("by id and by name", MetadataRequest(topics=[by_id, _named(topic.name)]), 12)


def metadata_of_invalid_names(talk: Conversation) -> None:
    for name in INVALID_NAMES:
        talk.ask(f"{name[:20]!r} not to be created", metadata(name))
        talk.ask(f"{name[:20]!r} to be created", metadata(name, is_auto_created=True))
    talk.ask("an invalid name v1", metadata("a b", is_auto_created=True), 1)
    talk.ask("249 characters", metadata("y" * 249))


def metadata_creates_topics(talk: Conversation) -> None:
    name = talk.name("new")
    talk.ask("not asked to create", metadata(name))
    talk.ask("still not there", metadata(name))
    talk.ask("asked to create", metadata(name, is_auto_created=True))
    talk.settled(name)
    talk.ask("created when asked", metadata(name))
    first, second = talk.name("a.b"), talk.name("a_b")
    talk.topic("a.b")
    talk.ask("a name that collides with another's metrics", metadata(second, is_auto_created=True))
    talk.ask("the other", metadata(first))


def describe_cluster(talk: Conversation) -> None:
    talk.ask_all_versions("plain", DescribeClusterRequest())
    talk.ask_all_versions(
        "with authorised operations",
        DescribeClusterRequest(include_cluster_authorized_operations=True),
    )
    talk.ask("with fenced brokers", DescribeClusterRequest(include_fenced_brokers=True), 2)
    talk.ask("controllers", DescribeClusterRequest(endpoint_type=2), 1)
    talk.ask("an unknown kind of endpoint", DescribeClusterRequest(endpoint_type=3), 1)
    talk.ask("endpoints of kind 0", DescribeClusterRequest(endpoint_type=0), 2)


def describe_topic_partitions(talk: Conversation) -> None:
    talk.topic("a", partitions=3)
    talk.topic("b", partitions=2)
    one, two = talk.name("a"), talk.name("b")

    def ask(name: str, *names: str, limit: int = 2000, cursor: Cursor | None = None) -> None:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=topic) for topic in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        talk.ask(name, request)

    ask("one topic", one)
    ask("two topics, in the wrong order", two, one)
    ask("the same topic twice", one, one)
    ask("an unknown topic", talk.name("unknown"))
    ask("a known and an unknown topic", talk.name("unknown"), one)
    ask("an invalid name", "a b")
    ask("an empty name", "")
    ask("a limit of 2", one, two, limit=2)
    ask("a limit of 3, which ends at a topic", one, two, limit=3)
    ask("a limit of 4", one, two, limit=4)
    ask("a limit of 0", one, limit=0)
    ask("a limit of -1", one, limit=-1)
    ask("from a cursor", one, two, limit=2, cursor=Cursor(topic_name=one, partition_index=1))
    ask("from a cursor at the second", one, two, cursor=Cursor(topic_name=two, partition_index=0))
    ask(
        "from a cursor beyond the partitions",
        *(one, two),
        cursor=Cursor(topic_name=one, partition_index=9),
    )
    ask("from a cursor at -1", one, cursor=Cursor(topic_name=one, partition_index=-1))
    ask(
        "from a cursor at an unknown topic",
        *(one, two),
        cursor=Cursor(topic_name=talk.name("aa"), partition_index=0),
    )
    ask(
        "from a cursor behind all topics",
        *(one, two),
        cursor=Cursor(topic_name=talk.name("z"), partition_index=0),
    )


def describe_quorum(talk: Conversation) -> None:
    def request(topic: str, *partitions: int) -> DescribeQuorumRequest:
        rows = [PartitionData(partition_index=partition) for partition in partitions]
        return DescribeQuorumRequest(topics=[TopicData(topic_name=topic, partitions=rows)])

    # The metadata log has no lasting name among clients but this one.
    talk.ask_all_versions("the metadata quorum", request("__cluster_metadata", 0))
    talk.ask("another partition", request("__cluster_metadata", 1))
    talk.ask("two partitions", request("__cluster_metadata", 0, 1))
    talk.ask("another topic", request(talk.name("a"), 0))
    talk.ask("nothing", DescribeQuorumRequest(topics=[]))


def update_features(talk: Conversation) -> None:
    def ask(name: str, *updates: FeatureUpdateKey, version: int = 2) -> None:
        request = UpdateFeaturesRequest(feature_updates=list(updates), timeout_ms=5000)
        if version > 0:
            request.validate_only = True
        talk.ask(name, request, version)

    ask("nothing")
    ask("an unknown feature", FeatureUpdateKey(feature="none.such", max_version_level=1))
    ask(
        "an unknown feature v1",
        FeatureUpdateKey(feature="none.such", max_version_level=1),
        version=1,
    )
    ask(
        "a level that does not exist",
        FeatureUpdateKey(feature="group.version", max_version_level=99),
    )
    ask("a negative level", FeatureUpdateKey(feature="group.version", max_version_level=-1))
    ask("level 0 as an upgrade", FeatureUpdateKey(feature="group.version", max_version_level=0))
    ask(
        "an unknown kind of upgrade",
        FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=9),
    )
    ask("an empty name", FeatureUpdateKey(feature="", max_version_level=1))
    ask(
        "a good and a bad one",
        FeatureUpdateKey(feature="group.version", max_version_level=1),
        FeatureUpdateKey(feature="none.such", max_version_level=1),
    )
    ask("the level that holds", FeatureUpdateKey(feature="group.version", max_version_level=1))


def raft_voters(talk: Conversation) -> None:
    """A quorum of one: what cannot be added to it, or removed from it."""
    nowhere = [Listener(name="CONTROLLER", host="127.0.0.1", port=1)]
    folder = b"another-folder.."

    def add(name: str, node: int, folder: bytes = folder, **fields: Any) -> None:
        request = AddRaftVoterRequest(
            cluster_id=None, timeout_ms=500, voter_id=node, voter_directory_id=folder
        )
        request.listeners = nowhere
        for field, value in fields.items():
            setattr(request, field, value)
        talk.ask(name, request)

    def remove(name: str, node: int, folder: bytes = folder, **fields: Any) -> None:
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node, voter_directory_id=folder)
        for field, value in fields.items():
            setattr(request, field, value)
        talk.ask(name, request)

    add("the voter, from another directory", 1)
    add("a node that is not there", 99)
    add("a node without an id", -1)
    add("a node without a directory", 99, bytes(16))
    add("to another cluster", 99, cluster_id="another")
    add("a node without a controller's listener", 99, listeners=[Listener(name="A", host="a")])
    remove("the voter, of another directory", 1)
    remove("no voter", 99)
    remove("none by its id", -1)
    remove("none by its directory", 99, bytes(16))
    remove("from another cluster", 99, cluster_id="another")


def unregister_broker(talk: Conversation) -> None:
    talk.ask("an unknown broker", UnregisterBrokerRequest(broker_id=99))
    talk.ask("broker -1", UnregisterBrokerRequest(broker_id=-1))


def _named(name: str) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=name)


SCRIPTS = (
    metadata_of_topics,
    metadata_by_id,
    metadata_of_invalid_names,
    metadata_creates_topics,
    describe_cluster,
    describe_topic_partitions,
    describe_quorum,
    raft_voters,
    update_features,
    unregister_broker,
)
