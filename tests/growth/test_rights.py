"""Rights: what decisions and changes cost with the ACLs of very many users, and in large requests.

No rule may hold the loop for long, whatever a request names: anybody may send it.
"""

from contextlib import suppress
from types import GeneratorType, SimpleNamespace
from typing import Any

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.loop.counters import Counters
from headrace.metadata.ddl import AddAcls, RemoveAcls
from headrace.metadata.image import Image
from headrace.metadata.rights import add_acls, remove_acls
from headrace.metadata.state import Acl, AclPattern
from headrace.security.acls import Operation, Pattern, Permission, Resource
from headrace.security.authorizer import Authorizer
from headrace.server.failures import failing
from headrace.server.request import SMALL_REQUEST_BYTES, Request
from headrace.server.rights.checks import Check, amended
from headrace.server.rights.table import RIGHTS
from headrace.wire import ApiKey
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse
from headrace.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.produce_request import ProduceRequest, TopicProduceData
from headrace.wire.schema import Message
from tests.growth.slices import assert_slices_are_short
from tests.growth.steps import assert_stays_flat, steps

EVERY_TOPIC = AclPattern(int(Resource.TOPIC), int(Pattern.LITERAL), "*")


def acl(user: str) -> Acl:
    return Acl(EVERY_TOPIC, f"User:{user}", "*", int(Operation.READ), int(Permission.ALLOW))


def crowded(users: int) -> Image:
    """Return an image in which so many users have a right on every topic."""
    image = Image()
    add_acls(image, AddAcls(tuple(acl(f"user-{number}") for number in range(users))))
    image.acls.settle()
    return image


def test_a_decision_costs_what_acls_are_about_the_user() -> None:
    def decide(users: int) -> int:
        image = crowded(users)
        authorizer = Authorizer(lambda: image)
        operations = (Operation.READ, Operation.WRITE)

        def ask() -> list[bool]:
            return [
                authorizer.allows("User:user-7", "10.0.0.1", each, Resource.TOPIC, "orders")
                for each in operations
            ] + [
                authorizer.allows_some("User:user-7", "10.0.0.1", each, Resource.TOPIC)
                for each in operations
            ]

        assert ask() == [True, False] * 2
        authorizer.on_acls_changed()
        return steps(ask)

    assert_stays_flat(decide, 100)


def test_another_acl_of_a_pattern_costs_the_same_however_many_it_has() -> None:
    def add(users: int) -> int:
        image = crowded(users)
        spent = steps(lambda: add_acls(image, AddAcls((acl("newcomer"),))))
        image.acls.settle()
        assert len(image.acls_for(Resource.TOPIC, "orders")) == users + 1
        spent += steps(lambda: remove_acls(image, RemoveAcls((acl("newcomer"),))))
        image.acls.settle()
        assert image.state.acls == crowded(users).state.acls
        return spent

    assert_stays_flat(add, 100)


def test_acls_of_an_entry_are_put_into_the_image_together() -> None:
    """Once per pattern, however many of its ACLs have come and gone."""
    image = crowded(50)
    before = image.state.acls[EVERY_TOPIC]
    for number in range(50, 100):
        add_acls(image, AddAcls((acl(f"user-{number}"),)))
        remove_acls(image, RemoveAcls((acl(f"user-{number - 50}"),)))
    assert image.state.acls[EVERY_TOPIC] is before
    image.acls.settle()
    assert image.state.acls[EVERY_TOPIC] == tuple(acl(f"user-{n}") for n in range(50, 100))


MANY = 4000
NAMES = [f"name-{number}" for number in range(MANY)]
ONE_TOPIC = [
    ListOffsetsTopic(
        name="orders",
        partitions=[ListOffsetsPartition(partition_index=index) for index in range(MANY)],
    )
]
REQUESTS: list[tuple[Message, int]] = [
    (MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES]), 12),
    (MetadataRequest(topics=None), 12),
    (FindCoordinatorRequest(coordinator_keys=NAMES), 4),
    (DescribeGroupsRequest(groups=NAMES, include_authorized_operations=True), 5),
    (DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in NAMES]), 0),
    (ListOffsetsRequest(topics=[ListOffsetsTopic(name=name) for name in NAMES]), 7),
    (ListOffsetsRequest(topics=ONE_TOPIC), 7),
    (
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=2, resource_name=n) for n in NAMES]
        ),
        4,
    ),
    (ProduceRequest(topic_data=[TopicProduceData(name=name) for name in NAMES], acks=1), 9),
    (
        OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitRequestTopic(name=name) for name in NAMES]
        ),
        8,
    ),
    (
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g", topics=[OffsetFetchRequestTopics(name=name) for name in NAMES]
                ),
                *(OffsetFetchRequestGroup(group_id=name, topics=None) for name in NAMES),
            ]
        ),
        8,
    ),
    (ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=NAMES), 1),
    (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name) for name in NAMES],
        ),
        3,
    ),
]


def guarding(*resources: Resource) -> Check:
    """Return the rights of somebody who may do everything with some types of resources."""
    image = Image()
    acls = [
        Acl(AclPattern(int(each), int(Pattern.LITERAL), "*"), "User:a", "*", 2, 3)
        for each in resources
    ]
    add_acls(image, AddAcls(tuple(acls)))
    broker: Any = SimpleNamespace(image=image, counters=Counters())
    request: Any = SimpleNamespace(peer=SimpleNamespace(principal="User:a", host="10.0.0.1"))
    return Check(Authorizer(lambda: image), broker, request)


def asking(body: Any, version: int) -> Request:
    peer: Any = SimpleNamespace()
    copied = type(body)(**{name: getattr(body, name) for name in body.__struct_fields__})
    size_bytes = SMALL_REQUEST_BYTES + 1
    return Request(peer, body.API_KEY, version, 1, "c", copied, size_bytes, 0)


def judge(check: Check, request: Request) -> Any:
    """Return the outcome of the rule of a request, all of whose slices are short."""
    outcome: Any = RIGHTS[ApiKey(request.api_key)](check, request)
    return assert_slices_are_short(outcome) if isinstance(outcome, GeneratorType) else outcome


@pytest.mark.parametrize(("body", "version"), REQUESTS, ids=lambda each: type(each).__name__)
def test_no_request_holds_the_loop_while_its_rights_are_checked(body: Any, version: int) -> None:
    everything = (Resource.TOPIC, Resource.GROUP, Resource.CLUSTER, Resource.TRANSACTIONAL_ID)
    for resources in ((), everything, (Resource.GROUP, Resource.TRANSACTIONAL_ID)):
        with suppress(KafkaError):  # refused as a whole
            judge(guarding(*resources), asking(body, version))
    assert_slices_are_short(failing(asking(body, version), ErrorCode.UNKNOWN_SERVER_ERROR, "no"))


def test_nor_do_responses_that_are_completed() -> None:
    check = guarding(Resource.TOPIC, Resource.GROUP)
    rows = [MetadataResponseTopic(name=name) for name in NAMES]
    body = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    amend = judge(check, asking(body, 12))
    response = assert_slices_are_short(amended(amend, MetadataResponse(topics=rows)))
    assert len(response.topics) == MANY
    groups = [ListedGroup(group_id=name) for name in NAMES]
    amend = judge(check, asking(ListGroupsRequest(), 5))
    response = assert_slices_are_short(amended(amend, ListGroupsResponse(groups=groups)))
    assert len(response.groups) == MANY
