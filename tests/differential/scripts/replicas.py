"""Where replicas lie and who leads: log directories, elections, reassignments."""

from headrace.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.wire.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from headrace.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse
from headrace.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from headrace.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.differential.conversation import Conversation
from tests.differential.requests import TIMEOUT_MS, Topic, batch


def describe_log_dirs(talk: Conversation) -> None:
    topic = talk.topic("plain", partitions=2)
    talk.append(topic, batch(b"a", b"b"))

    def request(topic: str, *partitions: int) -> DescribeLogDirsRequest:
        row = DescribableLogDirTopic(topic=topic, partitions=list(partitions))
        return DescribeLogDirsRequest(topics=[row])

    talk.ask_all_versions("two partitions", request(topic.name, 0, 1))
    talk.ask_all_versions("everything", DescribeLogDirsRequest(topics=None))
    talk.ask_all_versions("nothing", DescribeLogDirsRequest(topics=[]))
    talk.ask("one partition", request(topic.name, 0))
    talk.ask("a partition twice", request(topic.name, 0, 0))
    talk.ask("no partition", request(topic.name))
    talk.ask("an unknown partition", request(topic.name, 9))
    talk.ask("an unknown topic", request(talk.name("unknown"), 0))
    talk.ask("an invalid name", request("a b", 0))


def alter_replica_log_dirs(talk: Conversation) -> None:
    topic = talk.topic("plain")
    found = talk.quietly(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    own = found.results[0].log_dir

    def request(path: str, topic: Topic, *partitions: int) -> AlterReplicaLogDirsRequest:
        row = AlterReplicaLogDirTopic(name=topic.name, partitions=list(partitions))
        return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[row])])

    talk.ask_all_versions("to where it is", request(own, topic, 0))
    talk.ask_all_versions(
        "to a directory that is not the broker's", request("/none/such", topic, 0)
    )
    talk.ask("to a relative path", request("such", topic, 0))
    talk.ask("to no path", request("", topic, 0))
    talk.ask("an unknown partition", request(own, topic, 9))
    talk.ask("partition -1", request(own, topic, -1))
    unknown = Topic(talk.name("unknown"))
    talk.ask("an unknown topic", request(own, unknown, 0))
    talk.ask("an unknown topic to an unknown directory", request("/none/such", unknown, 0))
    talk.ask("no partition", request(own, topic))
    talk.ask("nothing", AlterReplicaLogDirsRequest())


def elect_leaders(talk: Conversation) -> None:
    topic = talk.topic("plain", partitions=2)

    def ask(name: str, topic: str, *partitions: int, kind: int = 0, version: int = 2) -> None:
        rows = [TopicPartitions(topic=topic, partitions=list(partitions))]
        request = ElectLeadersRequest(
            election_type=kind, topic_partitions=rows, timeout_ms=TIMEOUT_MS
        )
        talk.ask(name, request, version)

    for version in range(3):
        ask(f"who leads already v{version}", topic.name, 0, version=version)
        everything = ElectLeadersRequest(topic_partitions=None, timeout_ms=TIMEOUT_MS)
        talk.ask(f"everything v{version}", everything, version)
    ask("an unclean election", topic.name, 0, kind=1)
    ask("an unknown kind of election", topic.name, 0, kind=9)
    ask("two partitions", topic.name, 0, 1)
    ask("a partition twice", topic.name, 0, 0)
    ask("an unknown partition", topic.name, 9)
    ask("a known and an unknown partition", topic.name, 0, 9)
    ask("an unknown topic", talk.name("unknown"), 0)
    ask("an invalid name", "a b", 0)
    ask("no partition", topic.name)
    talk.ask("nothing", ElectLeadersRequest(topic_partitions=[], timeout_ms=TIMEOUT_MS))


def alter_partition_reassignments(talk: Conversation) -> None:
    topic = talk.topic("plain", partitions=2)

    def ask(
        name: str,
        replicas: list[int] | None,
        topic: Topic = topic,
        partition: int = 0,
        version: int = 1,
        may_grow: bool = True,
    ) -> None:
        row = ReassignablePartition(partition_index=partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic.name, partitions=[row])]
        )
        if not may_grow:
            request.allow_replication_factor_change = False
        talk.ask(name, request, version)

    for version in (0, 1):
        ask(f"to where it is v{version}", [1], version=version)
        ask(f"cancel nothing v{version}", None, version=version)
    ask("to an unknown broker", [99])
    ask("to a known and an unknown broker", [1, 99])
    ask("to a broker twice", [1, 1])
    ask("to no broker", [])
    ask("to a negative broker", [-1])
    ask("to more replicas than before, which is not allowed", [1, 99], may_grow=False)
    ask("to as many replicas, where more are not allowed", [1], may_grow=False)
    ask("an unknown partition", [1], partition=9)
    ask("partition -1", [1], partition=-1)
    ask("an unknown topic", [1], topic=Topic(talk.name("unknown")))
    ask("an invalid name", [1], topic=Topic("a b"))
    ask("cancel in an unknown topic", None, topic=Topic(talk.name("unknown")))
    talk.ask("nothing", AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS))
    row = ReassignableTopic(name=topic.name, partitions=[])
    empty = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[row])
    talk.ask("no partition", empty)


def list_partition_reassignments(talk: Conversation) -> None:
    topic = talk.topic("plain")

    def request(name: str, *partitions: int) -> ListPartitionReassignmentsRequest:
        row = ListPartitionReassignmentsTopics(name=name, partition_indexes=list(partitions))
        return ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[row])

    talk.ask("all", ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None))
    talk.ask("none", ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[]))
    talk.ask("a topic", request(topic.name, 0))
    talk.ask("an unknown partition", request(topic.name, 9))
    talk.ask("no partition", request(topic.name))
    talk.ask("an unknown topic", request(talk.name("unknown"), 0))
    talk.ask("an invalid name", request("a b", 0))


SCRIPTS = (
    describe_log_dirs,
    alter_replica_log_dirs,
    elect_leaders,
    alter_partition_reassignments,
    list_partition_reassignments,
)
