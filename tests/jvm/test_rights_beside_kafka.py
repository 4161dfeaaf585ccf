"""Rights beside those of Apache Kafka with StandardAuthorizer: the same requests of the same users.

Both brokers have the same users and ACLs. Compared are the errors of rights at every place of a
response, and the operations that responses say are authorized.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.config import STANDARD_AUTHORIZER
from headrace.errors import ErrorCode
from headrace.testing.broker import TestBroker
from headrace.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
)
from headrace.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.delete_acls_request import DeleteAclsRequest
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.describe_acls_request import DescribeAclsRequest
from headrace.wire.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from headrace.wire.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.messages.describe_quorum_request import DescribeQuorumRequest
from headrace.wire.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from headrace.wire.messages.describe_topic_partitions_request import TopicRequest as DescribedTopic
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from headrace.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.sync_group_request import SyncGroupRequest
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from headrace.wire.messages.update_features_request import UpdateFeaturesRequest
from headrace.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.wire.schema import Message
from tests.broker.test_secured_listeners import Wire
from tests.jvm.kafka_broker import kafka
from tools.ports import free_port

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
LITERAL, PREFIXED = 3, 4
ALL, READ, WRITE, CREATE, DESCRIBE, ALTER = 2, 3, 4, 5, 8, 7
DESCRIBE_CONFIGS, IDEMPOTENT_WRITE = 10, 12
DENY, ALLOW = 2, 3
USERS = ("none", "whole", "denied", "prefixed", "reader", "writer", "viewer", "root")
RIGHTS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
}
_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{name}="{name}-secret"' for name in USERS
)
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:root;User:ANONYMOUS",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_JAAS};",
}


def acl(user: str, operation: int, resource: int, name: str, *more: int) -> AclCreation:
    pattern, permission = (*more, LITERAL, ALLOW)[:2] if len(more) < 2 else more
    return AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=permission,
    )


EVERYWHERE = ((TOPIC, "orders"), (GROUP, "g"), (TRANSACTIONAL_ID, "tx"), (CLUSTER, "kafka-cluster"))
ACLS = [
    *(acl("whole", ALL, kind, name) for kind, name in EVERYWHERE),
    *(
        acl("denied", ALL, kind, name if kind == CLUSTER else "*", LITERAL, ALLOW)
        for kind, name in EVERYWHERE
    ),
    *(acl("denied", ALL, kind, name, LITERAL, DENY) for kind, name in EVERYWHERE),
    *(
        acl("prefixed", ALL, kind, name[:2], PREFIXED, ALLOW)
        for kind, name in EVERYWHERE
        if kind != CLUSTER
    ),
    acl("reader", READ, TOPIC, "orders"),
    acl("reader", READ, GROUP, "g"),
    acl("writer", WRITE, TOPIC, "orders"),
    acl("writer", WRITE, TRANSACTIONAL_ID, "tx"),
    acl("writer", IDEMPOTENT_WRITE, CLUSTER, "kafka-cluster"),
    *(acl("viewer", DESCRIBE, kind, name) for kind, name in EVERYWHERE),
    acl("viewer", DESCRIBE_CONFIGS, TOPIC, "orders"),
    acl("viewer", DESCRIBE_CONFIGS, CLUSTER, "kafka-cluster"),
]


class Broker(NamedTuple):
    """One of the two."""

    open: str
    """Where everybody is a super user."""
    secured: str

    def prepare(self) -> None:
        with Wire(self.open) as client:
            answer = client.ask(CreateAclsRequest(creations=ACLS), 3)
            assert {row.error_code for row in answer.results} == {0}
            topics = [
                CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in ("orders", "secrets")
            ]
            client.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
            for kind, key in ((0, "g"), (1, "tx")):
                for _ in range(300):
                    body = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
                    if client.ask(body, 6).coordinators[0].error_code == 0:
                        break

    def ask(self, user: str, body: Message, version: int) -> Any:
        with Wire(self.secured) as client:
            assert client.log_in(f"\0{user}\0{user}-secret".encode()).error_code == 0
            return client.ask(body, version)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    folder = tmp_path_factory.mktemp("rights")
    with ExitStack() as stack:
        both = (_kafka(stack, folder), _headrace(stack, folder))
        for each in both:
            each.prepare()
        yield both


def _kafka(stack: ExitStack, folder: Path) -> Broker:
    port = free_port()
    extra = {
        **SETTINGS,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT",
    }
    address = stack.enter_context(
        kafka(folder / "kafka", extra=extra, more_listeners={"SASL_PLAINTEXT": port})
    )
    return Broker(address, f"127.0.0.1:{port}")


def _headrace(stack: ExitStack, folder: Path) -> Broker:
    given = {
        **SETTINGS,
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    }
    broker = stack.enter_context(TestBroker(folder / "headrace", given))
    return Broker(*(f"127.0.0.1:{each.port}" for each in broker.node.listeners))


def names(rows: Any) -> Any:
    return [rows(name) for name in ("orders", "secrets", "absent")]


REQUESTS: dict[str, tuple[Message, int]] = {
    "produce": (
        ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=names(
                lambda name: TopicProduceData(
                    name=name, partition_data=[PartitionProduceData(records=b"")]
                )
            ),
        ),
        11,
    ),
    "fetch": (
        FetchRequest(
            max_wait_ms=0,
            max_bytes=1000,
            topics=names(
                lambda name: FetchTopic(topic=name, partitions=[FetchPartition(partition=0)])
            ),
        ),
        12,
    ),
    "fetch as a replica": (
        FetchRequest(
            max_wait_ms=0,
            replica_id=1,
            topics=[FetchTopic(topic="orders", partitions=[FetchPartition(partition=0)])],
        ),
        12,
    ),
    "list offsets": (
        ListOffsetsRequest(
            replica_id=-1,
            topics=names(
                lambda name: ListOffsetsTopic(
                    name=name, partitions=[ListOffsetsPartition(timestamp=-1)]
                )
            ),
        ),
        7,
    ),
    "metadata": (
        MetadataRequest(
            topics=names(lambda name: MetadataRequestTopic(name=name)),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        ),
        12,
    ),
    "metadata of the cluster": (
        MetadataRequest(
            topics=None,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        ),
        10,
    ),
    "describe topic partitions": (
        DescribeTopicPartitionsRequest(topics=names(lambda name: DescribedTopic(name=name))),
        0,
    ),
    "offset commit": (
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition()])
                for name in ("orders", "secrets")
            ],
        ),
        8,
    ),
    "offset fetch": (
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=names(
                        lambda name: OffsetFetchRequestTopics(name=name, partition_indexes=[0])
                    ),
                )
                for group in ("g", "h")
            ]
        ),
        8,
    ),
    "offset fetch of all topics": (
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]),
        8,
    ),
    "find group": (FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"]), 6),
    "find transaction": (FindCoordinatorRequest(key_type=1, coordinator_keys=["tx", "ty"]), 6),
    "find group of an old client": (FindCoordinatorRequest(key_type=0, key="g"), 3),
    "heartbeat": (HeartbeatRequest(group_id="g", member_id="m"), 4),
    "leave group": (
        LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]),
        5,
    ),
    "sync group": (
        SyncGroupRequest(
            group_id="g", member_id="m", protocol_type="consumer", protocol_name="range"
        ),
        5,
    ),
    "describe groups": (
        DescribeGroupsRequest(groups=["g", "h"], include_authorized_operations=True),
        5,
    ),
    "consumer group heartbeat": (
        ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=9, subscribed_topic_names=["orders"]
        ),
        1,
    ),
    "consumer group heartbeat for more": (
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=9,
            subscribed_topic_names=["orders", "secrets"],
        ),
        1,
    ),
    "consumer group describe": (ConsumerGroupDescribeRequest(group_ids=["g", "h"]), 1),
    "share group heartbeat": (
        ShareGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=9, subscribed_topic_names=["secrets"]
        ),
        1,
    ),
    "share group describe": (ShareGroupDescribeRequest(group_ids=["g", "h"]), 1),
    "create topics": (
        CreateTopicsRequest(
            topics=[
                CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in ("or-new", "new")
            ],
            timeout_ms=5000,
            validate_only=True,
        ),
        7,
    ),
    "delete topics": (
        DeleteTopicsRequest(topics=[DeleteTopicState(name="or-absent")], timeout_ms=1000),
        6,
    ),
    "delete records": (
        DeleteRecordsRequest(
            topics=names(
                lambda name: DeleteRecordsTopic(
                    name=name, partitions=[DeleteRecordsPartition(offset=0)]
                )
            ),
            timeout_ms=1000,
        ),
        2,
    ),
    "init producer id": (
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        5,
    ),
    "init transaction": (
        InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000),
        5,
    ),
    "offset for leader epoch": (
        OffsetForLeaderEpochRequest(
            replica_id=-2,
            topics=names(
                lambda name: OffsetForLeaderTopic(
                    topic=name, partitions=[OffsetForLeaderPartition()]
                )
            ),
        ),
        4,
    ),
    "add partitions to a transaction": (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=77,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("orders", "secrets")
            ],
        ),
        3,
    ),
    "add partitions to a transaction as a node": (
        AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id="tx",
                    producer_id=77,
                    topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0])],
                )
            ]
        ),
        5,
    ),
    "add offsets to a transaction": (
        AddOffsetsToTxnRequest(transactional_id="tx", producer_id=77, group_id="g"),
        3,
    ),
    "end transaction": (EndTxnRequest(transactional_id="tx", producer_id=77), 3),
    "write markers": (
        WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=77,
                    topics=[WritableTxnMarkerTopic(name="absent", partition_indexes=[0])],
                )
            ]
        ),
        1,
    ),
    "commit offsets in a transaction": (
        TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=77,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name, partitions=[TxnOffsetCommitRequestPartition()]
                )
                for name in ("orders", "secrets")
            ],
        ),
        3,
    ),
    "describe acls": (
        DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter="User:nobody",
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
        3,
    ),
    "create acls": (
        CreateAclsRequest(creations=[acl("nobody", READ, CLUSTER, "kafka-cluster")]),
        3,
    ),
    "delete acls": (DeleteAclsRequest(filters=[]), 3),
    "describe configs": (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=["retention.ms"]
                )
                for kind, name in ((2, "orders"), (2, "secrets"), (4, "1"), (32, "g"), (16, "m"))
            ]
        ),
        4,
    ),
    "alter configs": (
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
                for kind, name in ((2, "orders"), (2, "secrets"), (4, "1"), (32, "g"))
            ],
            validate_only=True,
        ),
        1,
    ),
    "describe log dirs": (DescribeLogDirsRequest(topics=[]), 4),
    "create partitions": (
        CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=name, count=2, assignments=None)
                for name in ("orders", "secrets")
            ],
            timeout_ms=1000,
            validate_only=True,
        ),
        3,
    ),
    "delete groups": (DeleteGroupsRequest(groups_names=["gone", "h"]), 2),
    "elect leaders": (
        ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic="absent", partitions=[0])], timeout_ms=1000
        ),
        2,
    ),
    "alter reassignments": (AlterPartitionReassignmentsRequest(topics=[], timeout_ms=1000), 0),
    "list reassignments": (ListPartitionReassignmentsRequest(topics=None, timeout_ms=1000), 0),
    "delete offsets": (
        OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition()])
                for name in ("orders", "secrets")
            ],
        ),
        0,
    ),
    "alter users": (
        AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="x", mechanism=1)]
        ),
        0,
    ),
    "alter quotas": (
        AlterClientQuotasRequest(
            entries=[
                EntryData([EntityData("user", name)], [OpData("producer_byte_rate", 1e9, False)])
                for name in ("ann", "bob")
            ],
            validate_only=True,
        ),
        1,
    ),
    "describe quotas": (DescribeClientQuotasRequest(), 1),
    "describe quorum": (DescribeQuorumRequest(topics=[]), 2),
    "update features": (UpdateFeaturesRequest(feature_updates=[], validate_only=True), 2),
    "describe cluster": (DescribeClusterRequest(include_cluster_authorized_operations=True), 1),
    "describe producers": (
        DescribeProducersRequest(
            topics=[
                TopicRequest(name=name, partition_indexes=[0]) for name in ("orders", "secrets")
            ]
        ),
        0,
    ),
    "unregister a broker": (UnregisterBrokerRequest(broker_id=99), 0),
    "describe transactions": (DescribeTransactionsRequest(transactional_ids=["tx", "ty"]), 0),
    "list config resources": (ListConfigResourcesRequest(), 1),
}


def seen(answer: Any, place: str = "") -> dict[str, int]:
    """Return the errors of rights in a response, and authorized operations, by their place."""
    found: dict[str, int] = {}
    key = ""
    for name in ("name", "topic", "topic_name", "group_id", "key", "resource_name", "user"):
        key = key or str(getattr(answer, name, None) or "")
    key = key or str(getattr(answer, "transactional_id", ""))
    for name in getattr(answer, "__struct_fields__", ()):
        value = getattr(answer, name)
        where = f"{place}/{key}.{name}"
        if name in ("error_code", "partition_error_code", "topic_config_error_code"):
            if value in RIGHTS:
                found[where] = value
        elif name.endswith("authorized_operations"):
            found[where] = value
        elif isinstance(value, list):
            for each in value:
                found |= seen(each, where)
    return found


@pytest.mark.parametrize("what", REQUESTS)
def test_every_user_hears_the_same_from_both(brokers: tuple[Broker, Broker], what: str) -> None:
    body, version = REQUESTS[what]
    wrong = []
    for user in USERS:
        theirs, ours = (seen(each.ask(user, body, version)) for each in brokers)
        if theirs != ours:
            wrong.append((user, theirs, ours))
    assert wrong == []
