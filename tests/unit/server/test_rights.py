"""The rights of every API: there is a row for each, and who has none gets nothing."""

from random import Random
from typing import Any

import pytest

from headrace.config import STANDARD_AUTHORIZER
from headrace.errors import ErrorCode
from headrace.metadata.ddl import AddAcls, RemoveAcls
from headrace.metadata.state import Acl, AclPattern
from headrace.node.apis import SERVED
from headrace.security.acls import CLUSTER_NAME, Operation, Pattern, Permission, Resource
from headrace.server.dispatch import served_versions
from headrace.server.rights.table import RIGHTS
from headrace.wire import APIS, ApiKey
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.describe_acls_request import DescribeAclsRequest
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from headrace.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.mirror_records import ACKS_KEEP_OFFSETS
from headrace.wire.schema import Message
from tests.message_values import Filled, make_message
from tests.unit.harness import FakePeer, Harness

ALICE = "User:alice"
ADMIN = "User:admin"
OPEN_APIS = {
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.METADATA,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.SASL_HANDSHAKE,
}
"""What has a response for everybody, if perhaps an empty one; tests/broker has those of tokens."""
ELSE = {
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_REQUEST,
}
"""What a stranger may hear besides: of topics that there are not, and of what was not tried."""


def as_user(harness: Harness, principal: str) -> FakePeer:
    peer = FakePeer(harness.node.dispatcher)
    peer.principal = principal
    return peer


class Rights:
    """A node with an authorizer, and clients of it."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    def ask(self, body: Message, version: int, principal: str = ALICE) -> Any:
        peer = as_user(self.harness, principal)
        return self.harness.run(self.harness.ask_async(body, version, peer))

    def change(
        self,
        operation: Operation,
        resource: Resource,
        name: str,
        *,
        permission: Permission = Permission.ALLOW,
        pattern: Pattern = Pattern.LITERAL,
        removes: bool = False,
    ) -> None:
        where = AclPattern(int(resource), int(pattern), name)
        acl = Acl(where, ALICE, "*", int(operation), int(permission))
        ddl = RemoveAcls((acl,)) if removes else AddAcls((acl,))

        async def propose() -> None:
            await self.harness.broker.quorum.propose(ddl)

        self.harness.run(propose())


@pytest.fixture
def rights(harness: Harness) -> Rights:
    harness.create_topic("orders")
    harness.create_topic("secrets")
    return Rights(harness)


pytestmark = pytest.mark.parametrize(
    "harness",
    [{"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin;User:root"}],
    indirect=True,
)


def codes(answer: Any) -> set[int]:
    """Return all error codes of a response, at any depth."""
    found = set()
    for name in getattr(answer, "__struct_fields__", ()):
        value = getattr(answer, name)
        if name in ("error_code", "partition_error_code"):
            found.add(value)
        elif isinstance(value, list):
            for each in value:
                found |= codes(each)
        elif hasattr(value, "__struct_fields__"):
            found |= codes(value)
    return found


AUTHORIZATION = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


TELLING = AUTHORIZATION | {ErrorCode.UNKNOWN_TOPIC_ID}


def test_every_api_that_is_served_has_its_rights(harness: Harness) -> None:
    assert set(RIGHTS) == SERVED


def test_whoever_has_no_rights_hears_that_and_nothing_else(harness: Harness) -> None:
    """Every API in every version, with something in every field."""
    rights = Rights(harness)
    wrong = []
    for key in sorted(SERVED - OPEN_APIS):
        for version in served_versions(APIS[key]):
            body: Any = make_message(APIS[key].request, version, Filled(Random(version)))
            if key is ApiKey.PRODUCE:
                body.acks = 1
            if key is ApiKey.DELETE_TOPICS:
                for row in body.topics:  # by its name or by its id
                    row.name = None
            answer = rights.ask(body, version)
            found = codes(answer)
            if len(found) > 1 and getattr(answer, "error_code", None) == ErrorCode.NONE:
                found.discard(ErrorCode.NONE)  # of the whole, whose parts have errors
            if key is ApiKey.DESCRIBE_LOG_DIRS and version < 3:
                assert answer.results == []  # there is no room for an error
                continue
            if not found <= AUTHORIZATION | ELSE or not found & TELLING:
                wrong.append((key.name, version, found))
    assert wrong == []


def topic_names(answer: Any) -> list[str | None]:
    return [row.name for row in answer.topics]


def test_lists_have_what_a_client_may_describe(rights: Rights) -> None:
    assert topic_names(rights.ask(MetadataRequest(topics=None), 13)) == []
    rights.change(Operation.DESCRIBE, Resource.TOPIC, "ord", pattern=Pattern.PREFIXED)
    assert topic_names(rights.ask(MetadataRequest(topics=None), 13)) == ["orders"]
    assert topic_names(rights.ask(MetadataRequest(topics=[]), 0)) == ["orders"]
    assert topic_names(rights.ask(DescribeTopicPartitionsRequest(), 0)) == ["orders"]
    of_admin = topic_names(rights.ask(MetadataRequest(topics=None), 13, ADMIN))
    assert set(of_admin) == {"orders", "secrets"}
    assert rights.ask(ListGroupsRequest(), 5).groups == []


def metadata_codes(rights: Rights, *names: str, version: int = 13) -> dict[str | None, int]:
    rows = [MetadataRequestTopic(name=name) for name in names]
    answer = rights.ask(MetadataRequest(topics=rows), version)
    return {row.name: row.error_code for row in answer.topics}


def test_a_topic_asked_for_by_name_is_refused_whether_or_not_it_exists(rights: Rights) -> None:
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert metadata_codes(rights, "secrets", "absent") == {"secrets": denied, "absent": denied}
    assert metadata_codes(rights, "secrets", version=0) == {"secrets": denied}
    assert not rights.harness.has_topic("absent")
    rights.change(Operation.READ, Resource.TOPIC, "orders")
    assert metadata_codes(rights, "orders", "secrets") == {
        "orders": ErrorCode.NONE,
        "secrets": denied,
    }


def test_by_its_id_it_is_unknown(rights: Rights) -> None:
    row = MetadataRequestTopic(name=None, topic_id=rights.harness.topic("secrets").topic_id)
    (found,) = rights.ask(MetadataRequest(topics=[row]), 13).topics
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert found.name is None


def test_a_client_creates_a_topic_by_asking_for_it_only_with_the_right_to(rights: Rights) -> None:
    rights.change(Operation.DESCRIBE, Resource.TOPIC, "new")
    assert metadata_codes(rights, "new") == {"new": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert not rights.harness.has_topic("new")
    rights.change(Operation.CREATE, Resource.TOPIC, "new")
    metadata_codes(rights, "new")
    assert rights.harness.has_topic("new")


def test_a_deny_wins_over_every_allow(rights: Rights) -> None:
    rights.change(Operation.ALL, Resource.TOPIC, "*")
    assert metadata_codes(rights, "secrets") == {"secrets": ErrorCode.NONE}
    rights.change(Operation.DESCRIBE, Resource.TOPIC, "secrets", permission=Permission.DENY)
    assert metadata_codes(rights, "secrets") == {"secrets": ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def fetch(rights: Rights, session_id: int, epoch: int, *names: str, **more: Any) -> Any:
    topics = [
        FetchTopic(
            topic_id=rights.harness.topic(name).topic_id,
            partitions=[FetchPartition(partition=0, partition_max_bytes=1000)],
        )
        for name in names
    ]
    body = FetchRequest(
        max_wait_ms=0, max_bytes=1000, session_id=session_id, session_epoch=epoch, topics=topics
    )
    for name, value in more.items():
        setattr(body, name, value)
    return rights.ask(body, 17)


def row_codes(rights: Rights, answer: Any) -> dict[str, int]:
    names = {rights.harness.topic(name).topic_id: name for name in ("orders", "secrets")}
    return {names[row.topic_id]: row.partitions[0].error_code for row in answer.responses}


def test_partitions_of_a_session_are_checked_at_every_fetch(rights: Rights) -> None:
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rights.change(Operation.READ, Resource.TOPIC, "orders")
    first = fetch(rights, 0, 0, "orders", "secrets")
    assert row_codes(rights, first) == {"orders": ErrorCode.NONE, "secrets": denied}
    again = fetch(rights, first.session_id, 1)
    assert row_codes(rights, again) == {"secrets": denied}
    rights.change(Operation.READ, Resource.TOPIC, "secrets")
    assert row_codes(rights, fetch(rights, first.session_id, 2)).get("secrets", 0) == 0
    rights.change(Operation.READ, Resource.TOPIC, "orders", removes=True)
    assert row_codes(rights, fetch(rights, first.session_id, 3))["orders"] == denied


def test_a_session_of_somebody_else_gives_no_rights(rights: Rights) -> None:
    """Sessions are found by their number alone."""
    body = FetchRequest(
        max_wait_ms=0,
        max_bytes=1000,
        session_epoch=0,
        topics=[
            FetchTopic(
                topic_id=rights.harness.topic("secrets").topic_id,
                partitions=[FetchPartition(partition=0, partition_max_bytes=1000)],
            )
        ],
    )
    opened = rights.ask(body, 17, ADMIN)
    assert row_codes(rights, fetch(rights, opened.session_id, 1)) == {
        "secrets": ErrorCode.TOPIC_AUTHORIZATION_FAILED
    }


def test_nobody_fetches_as_a_replica_without_being_one(rights: Rights) -> None:
    """CVE-2018-1288: records of every topic, beyond the high watermark."""
    rights.change(Operation.READ, Resource.TOPIC, "*")
    answer = fetch(rights, 0, 0, "orders", replica_state=ReplicaState(replica_id=1))
    assert codes(answer) == {ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert codes(fetch(rights, 5, 6, replica_state=ReplicaState(replica_id=1))) <= AUTHORIZATION


def test_transactional_records_need_the_right_to_their_id(rights: Rights) -> None:
    """CVE-2018-17196: by what is in the batch, not by what the request says."""
    rights.change(Operation.WRITE, Resource.TOPIC, "orders")
    batch = bytearray(61)
    batch[22] = 0x10
    for transactional_id in (None, "stolen"):
        body = ProduceRequest(
            acks=1,
            transactional_id=transactional_id,
            topic_data=[
                TopicProduceData(
                    name="orders", partition_data=[PartitionProduceData(records=bytes(batch))]
                )
            ],
        )
        assert codes(rights.ask(body, 11)) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


def test_a_mirror_needs_more_than_the_right_to_write(rights: Rights) -> None:
    """Its batches keep their producers and transactions, whatever ids the client may use."""
    body = ProduceRequest(
        acks=ACKS_KEEP_OFFSETS,
        topic_data=[
            TopicProduceData(
                name="orders", partition_data=[PartitionProduceData(records=b"s" * 100)]
            )
        ],
    )
    rights.change(Operation.WRITE, Resource.TOPIC, "orders")
    assert codes(rights.ask(body, 11)) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    rights.change(Operation.ALTER, Resource.TOPIC, "orders")
    assert not codes(rights.ask(body, 11)) & AUTHORIZATION


def test_a_produce_without_a_response_closes_the_connection(rights: Rights) -> None:
    row = TopicProduceData(name="orders", partition_data=[PartitionProduceData(records=b"")])
    harness = rights.harness
    peer = as_user(harness, ALICE)
    body = ProduceRequest(acks=0, topic_data=[row])
    harness.run(harness.ask_async(body, 11, peer))
    assert peer.is_closed


def test_an_idempotent_producer_needs_a_topic_to_write_to(rights: Rights) -> None:
    body = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    assert codes(rights.ask(body, 5)) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    rights.change(Operation.WRITE, Resource.TOPIC, "ord", pattern=Pattern.PREFIXED)
    assert codes(rights.ask(body, 5)) == {ErrorCode.NONE}
    rights.change(
        Operation.WRITE,
        Resource.TOPIC,
        "o",
        pattern=Pattern.PREFIXED,
        permission=Permission.DENY,
    )
    assert codes(rights.ask(body, 5)) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def test_one_topic_that_is_denied_keeps_a_transaction_from_growing(rights: Rights) -> None:
    rights.change(Operation.WRITE, Resource.TOPIC, "orders")
    rights.change(Operation.WRITE, Resource.TRANSACTIONAL_ID, "tx")
    body = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("orders", "secrets")
        ],
    )
    rows = rights.ask(body, 3).results_by_topic_v3_and_below
    assert {row.name: row.results_by_partition[0].partition_error_code for row in rows} == {
        "orders": ErrorCode.OPERATION_NOT_ATTEMPTED,
        "secrets": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


def test_what_is_allowed_of_a_request_is_done(rights: Rights) -> None:
    rights.change(Operation.CREATE, Resource.TOPIC, "mine-", pattern=Pattern.PREFIXED)
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in ("mine-1", "yours")
    ]
    answer = rights.ask(CreateTopicsRequest(topics=topics, timeout_ms=5000), 7)
    rows = {row.name: row for row in answer.topics}
    assert rows["yours"].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert rows["mine-1"].error_code == ErrorCode.NONE
    assert rows["mine-1"].topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert rows["mine-1"].num_partitions == -1
    assert rights.harness.has_topic("mine-1")
    assert not rights.harness.has_topic("yours")


def test_configs_of_topics_groups_and_the_cluster_are_different_rights(rights: Rights) -> None:
    rights.change(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, "orders")
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, "orders"), (2, "secrets"), (4, "1"), (32, "g"))
    ]
    rows = rights.ask(DescribeConfigsRequest(resources=resources), 4).results
    assert {(row.resource_type, row.resource_name): row.error_code for row in rows} == {
        (2, "orders"): ErrorCode.NONE,
        (2, "secrets"): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        (4, "1"): ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        (32, "g"): ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }


def test_offsets_are_shown_for_what_a_client_may_describe(rights: Rights) -> None:
    rights.change(Operation.DESCRIBE, Resource.GROUP, "mine")
    rights.change(Operation.DESCRIBE, Resource.TOPIC, "orders")
    groups = [
        OffsetFetchRequestGroup(
            group_id=name,
            topics=[
                OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
                for topic in ("orders", "secrets")
            ],
        )
        for name in ("mine", "yours")
    ]
    rights.ask(FindCoordinatorRequest(coordinator_keys=["mine"]), 6, ADMIN)
    rows = {row.group_id: row for row in rights.ask(OffsetFetchRequest(groups=groups), 9).groups}
    assert rows["yours"].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert rows["yours"].topics == []
    if rows["mine"].error_code == ErrorCode.NONE:
        found = {row.name: row.partitions[0].error_code for row in rows["mine"].topics}
        assert found["secrets"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_member_needs_its_group_and_what_it_subscribes_to(rights: Rights) -> None:
    body = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", subscribed_topic_names=["orders"], rebalance_timeout_ms=1000
    )
    assert codes(rights.ask(body, 1)) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    rights.change(Operation.READ, Resource.GROUP, "g")
    assert codes(rights.ask(body, 1)) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_operations_in_responses_are_those_of_the_client(rights: Rights) -> None:
    everything = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    rights.change(Operation.READ, Resource.TOPIC, "orders")
    (row,) = rights.ask(everything, 13).topics
    assert row.topic_authorized_operations == 1 << Operation.READ | 1 << Operation.DESCRIBE
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert rights.ask(cluster, 2).cluster_authorized_operations == 0
    rights.change(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
    bits = rights.ask(cluster, 2).cluster_authorized_operations
    assert bits == 1 << Operation.ALTER | 1 << Operation.DESCRIBE
    rights.change(Operation.DELETE, Resource.GROUP, "g")
    body = DescribeGroupsRequest(groups=["g", "h"], include_authorized_operations=True)
    rows = {each.group_id: each for each in rights.ask(body, 6).groups}
    assert rows["h"].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_super_users_may_do_everything(rights: Rights) -> None:
    body = DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    body.resource_name_filter = body.principal_filter = body.host_filter = None
    rights.change(Operation.READ, Resource.TOPIC, "orders")
    assert rights.ask(body, 3).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for principal in (ADMIN, "User:root"):
        (found,) = rights.ask(body, 3, principal).resources
        assert found.resource_name == "orders"


def test_a_request_that_names_very_much_is_answered_like_a_small_one(rights: Rights) -> None:
    """Its rights are checked, and its response is completed, in several turns of the loop."""
    rights.change(Operation.DESCRIBE, Resource.TOPIC, "mine-", pattern=Pattern.PREFIXED)
    names = [f"{kind}-{number}" for number in range(1500) for kind in ("mine", "theirs")]
    rows = [MetadataRequestTopic(name=name) for name in names]
    asked = MetadataRequest(topics=rows, allow_auto_topic_creation=False)
    found = {row.name: row.error_code for row in rights.ask(asked, 12).topics}
    denied, unknown = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {name: unknown if name.startswith("mine") else denied for name in names}
    answer = rights.ask(DescribeGroupsRequest(groups=names), 5)
    assert {row.error_code for row in answer.groups} == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert [row.group_id for row in answer.groups] == names


def test_a_produce_to_very_many_topics_is_refused_in_their_rows(rights: Rights) -> None:
    data = [TopicProduceData(name=f"{number:0>240}", partition_data=[]) for number in range(600)]
    answer = rights.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), 9)
    assert [row.name for row in answer.responses] == [row.name for row in data]


def test_a_response_of_very_many_rows_shows_what_may_be_done(rights: Rights) -> None:
    rights.harness.create_topic("many", partitions=1)
    rights.change(Operation.ALL, Resource.TOPIC, "*")
    names = [*(f"missing-{number}" for number in range(1500)), "many"]
    rows = [MetadataRequestTopic(name=name) for name in names]
    body = MetadataRequest(
        topics=rows, include_topic_authorized_operations=True, allow_auto_topic_creation=False
    )
    found = {row.name: row for row in rights.ask(body, 12).topics}
    assert len(found) == len(names)
    assert found["many"].topic_authorized_operations > 0


def test_an_error_of_a_whole_request_is_told_in_very_many_rows(rights: Rights) -> None:
    topics = [CreatableTopic(name=f"t-{number}") for number in range(1500)]
    answer = rights.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
    assert {row.error_code for row in answer.topics} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert len(answer.topics) == len(topics)


def test_denied_requests_are_counted(rights: Rights) -> None:
    before = rights.harness.broker.counters.requests_denied
    metadata_codes(rights, "secrets")
    assert rights.harness.broker.counters.requests_denied == before + 1
