"""Rights that change while somebody uses them: in sessions, and while a fetch waits."""

import asyncio
from typing import Any

import pytest

from headrace.config import STANDARD_AUTHORIZER
from headrace.errors import ErrorCode
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.ddl import AddAcls, Assignment, CreateTopic, Ddl, RemoveAcls
from headrace.metadata.state import Acl, AclPattern
from headrace.records.builder import BatchBuilder
from headrace.security.acls import CLUSTER_NAME, Operation, Pattern, Permission, Resource
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.unit.followers import Follower, create_replicated, register_broker
from tests.unit.harness import FakePeer, Harness
from tests.unit.share.share_client import ACCEPT, Member, append_now, initialize, rows

ALICE = "User:alice"
OWN = BrokerId(1)
FOREVER_MS = 2**31 - 1
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED

pytestmark = pytest.mark.parametrize(
    "harness",
    [{"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}],
    indirect=True,
)


def acl(resource: Resource, name: str, operation: Operation) -> Acl:
    where = AclPattern(int(resource), int(Pattern.LITERAL), name)
    return Acl(where, ALICE, "*", int(operation), int(Permission.ALLOW))


READ, ACTION = Operation.READ, Operation.CLUSTER_ACTION


async def allow(harness: Harness, resource: Resource, name: str, op: Operation = READ) -> None:
    await harness.broker.quorum.propose(AddAcls((acl(resource, name, op),)))


async def disallow(harness: Harness, resource: Resource, name: str, op: Operation = READ) -> None:
    await harness.broker.quorum.propose(RemoveAcls((acl(resource, name, op),)))


def alice(harness: Harness) -> FakePeer:
    peer = FakePeer(harness.node.dispatcher)
    peer.principal = ALICE
    return peer


def topic_id_of(name: str) -> bytes:
    """Return the id that the harness gives to a topic, before there is one."""
    return name.encode().ljust(16, b".")[:16]


def wanting(*names: str, **more: Any) -> FetchRequest:
    topics = [
        FetchTopic(
            topic_id=topic_id_of(name),
            partitions=[FetchPartition(partition=0, partition_max_bytes=1000)],
        )
        for name in names
    ]
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1000, "topics": topics, **more}
    return FetchRequest(**fields)


def append(harness: Harness, topic: str) -> None:
    builder = BatchBuilder()
    builder.append(0, None, b"secret")
    partition = harness.partition(topic)
    partition.append(memoryview(builder.build()), 0, needs_replicas=False)


def told(answer: Any) -> list[tuple[int, bytes]]:
    return [
        (row.error_code, bytes(row.records or b""))
        for topic in answer.responses
        for row in topic.partitions
    ]


async def settle() -> None:
    """Let everything that is due be done."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("names", [("later",), ("orders", "later")])
def test_a_session_that_named_a_topic_before_it_was_there_may_not_read_it(
    harness: Harness, names: tuple[str, ...]
) -> None:
    """An id that is unknown here may be that of a topic that another node made just now."""
    harness.create_topic("orders")
    harness.run(allow(harness, Resource.TOPIC, "orders"))
    peer = alice(harness)
    first = harness.run(harness.ask_async(wanting(*names, session_epoch=0), 17, peer))
    assert ErrorCode.UNKNOWN_TOPIC_ID in [code for code, _ in told(first)]
    harness.create_topic("later")

    async def use() -> Any:
        append(harness, "later")
        more = {"session_id": first.session_id, "session_epoch": 1}
        return await harness.ask_async(wanting(**more), 17, peer)

    assert told(harness.run(use())) == [(DENIED, b"")]


def test_a_fetch_that_waited_has_no_records_that_may_no_longer_be_read(harness: Harness) -> None:
    harness.create_topic("orders")
    harness.run(allow(harness, Resource.TOPIC, "orders"))

    async def wait() -> Any:
        request = wanting("orders", max_wait_ms=FOREVER_MS)
        waiting = asyncio.ensure_future(harness.ask_async(request, 17, alice(harness)))
        await settle()
        await disallow(harness, Resource.TOPIC, "orders")
        append(harness, "orders")
        return await waiting

    assert told(harness.run(wait())) == [(DENIED, b"")]


def test_nor_those_that_it_had_read_before(harness: Harness) -> None:
    """What was read but is not enough is read again, together with the rest."""
    for name in ("orders", "secrets"):
        harness.create_topic(name)
        harness.run(allow(harness, Resource.TOPIC, name))

    async def wait() -> Any:
        append(harness, "secrets")
        request = wanting("secrets", "orders", max_wait_ms=FOREVER_MS, min_bytes=100)
        waiting = asyncio.ensure_future(harness.ask_async(request, 17, alice(harness)))
        await settle()
        await disallow(harness, Resource.TOPIC, "secrets")
        append(harness, "orders")
        return await waiting

    answer = harness.run(wait())
    by_id = {row.topic_id: row.partitions[0] for row in answer.responses}
    secrets, orders = by_id[topic_id_of("secrets")], by_id[topic_id_of("orders")]
    assert (secrets.error_code, bytes(secrets.records)) == (DENIED, b"")
    assert (orders.error_code, b"secret" in bytes(orders.records)) == (ErrorCode.NONE, True)


def test_rights_that_somebody_else_lost_leave_a_fetch_waiting(harness: Harness) -> None:
    harness.create_topic("orders")
    harness.create_topic("others")
    for name in ("orders", "others"):
        harness.run(allow(harness, Resource.TOPIC, name))

    async def wait() -> Any:
        request = wanting("orders", max_wait_ms=FOREVER_MS)
        waiting = asyncio.ensure_future(harness.ask_async(request, 17, alice(harness)))
        await settle()
        await disallow(harness, Resource.TOPIC, "others")
        await settle()
        assert not waiting.done()
        append(harness, "orders")
        return await waiting

    ((code, records),) = told(harness.run(wait()))
    assert (code, b"secret" in records) == (ErrorCode.NONE, True)


def test_who_is_a_replica_no_more_gets_nothing_by_a_fetch_that_waited(harness: Harness) -> None:
    epoch = register_broker(harness, BrokerId(7))
    topic_id = create_replicated(harness, "orders", (1, BrokerId(7)))
    follower = Follower(harness, 7, epoch, topic_id)
    follower.peer.principal = ALICE
    harness.run(allow(harness, Resource.CLUSTER, CLUSTER_NAME, ACTION))

    async def wait() -> Any:
        waiting = await follower.wait({0: 0}, max_wait_ms=FOREVER_MS)
        await disallow(harness, Resource.CLUSTER, CLUSTER_NAME, ACTION)
        append(harness, "orders")
        return await waiting

    answer = harness.run(wait())
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert all(not records for _, records in told(answer))


@pytest.fixture
def member(harness: Harness) -> Member:
    topic_id = harness.create_topic("orders")
    initialize(harness, topic_id, 0, start_offset=0)
    harness.run(allow(harness, Resource.TOPIC, "orders"))
    harness.run(allow(harness, Resource.GROUP, "group"))
    made = Member(harness, topic_id)
    made.peer.principal = ALICE
    return made


@pytest.mark.parametrize(
    ("resource", "name"), [(Resource.TOPIC, "orders"), (Resource.GROUP, "group")]
)
def test_a_share_fetch_that_waited_acquires_nothing_that_may_no_longer_be_read(
    harness: Harness, member: Member, resource: Resource, name: str
) -> None:
    async def wait() -> Any:
        waiting = asyncio.ensure_future(member.fetch_async(0, max_wait_ms=FOREVER_MS))
        await settle()
        await disallow(harness, resource, name)
        append_now(harness, b"secret")
        return await waiting

    answer = harness.run(wait())
    if resource is Resource.GROUP:
        assert (answer.error_code, answer.responses) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
    else:
        (row,) = rows(answer).values()
        assert (row.error, row.acquired) == (DENIED.name, [])


def test_a_share_session_that_named_a_topic_before_it_was_there_may_not_read_it(
    harness: Harness, member: Member
) -> None:
    member.topic_id = topic_id_of("later")
    (row,) = member.fetch(0).values()
    assert row.error == ErrorCode.UNKNOWN_TOPIC_ID.name
    topic_id = harness.create_topic("later")
    initialize(harness, topic_id, 0, start_offset=0)
    (row,) = member.fetch().values()
    assert row.error == DENIED.name


def test_a_share_session_goes_on_and_ends_whatever_may_be_acknowledged(
    harness: Harness, member: Member
) -> None:
    async def read() -> Any:
        append_now(harness, b"a")
        return await member.fetch_async(0, max_wait_ms=FOREVER_MS)

    assert rows(harness.run(read()))[0].acquired == [(0, 0, 1)]
    harness.run(disallow(harness, Resource.TOPIC, "orders"))
    assert member.acknowledge(0, (0, 0, ACCEPT)) == DENIED.name
    assert member.epoch == 2
    assert member.fetch()[0].error == DENIED.name  # the session expects this epoch
    assert member.acknowledge(0, (0, 0, ACCEPT), epoch=-1) == DENIED.name
    assert member.fetch_error(epoch=3) == ErrorCode.SHARE_SESSION_NOT_FOUND.name


def lag(harness: Harness, change: Ddl) -> None:
    """Have the node hear of a change only when it catches up."""
    quorum = harness.broker.quorum

    async def catch_up() -> None:
        await quorum.propose(change)

    vars(quorum)["catch_up"] = catch_up


def delete(harness: Harness, **named: Any) -> list[int]:
    asked = DeleteTopicsRequest(topics=[DeleteTopicState(**named)], timeout_ms=60_000)
    answer = harness.run(harness.ask_async(asked, 6, alice(harness)))
    return [row.error_code for row in answer.responses]


def test_a_topic_that_the_node_did_not_know_yet_is_not_deleted_without_the_right(
    harness: Harness,
) -> None:
    """An id that nobody has needs no right, and the node catches up before it deletes."""
    topic_id = TopicId(topic_id_of("later"))
    lag(harness, CreateTopic(TopicName("later"), topic_id, (Assignment((OWN,), (OWN,), OWN),)))
    assert delete(harness, topic_id=topic_id) == [DENIED]
    assert harness.broker.image.topic(TopicName("later")) is not None


def test_a_right_that_the_node_did_not_know_is_gone_is_of_no_use(harness: Harness) -> None:
    harness.create_topic("orders")
    harness.run(allow(harness, Resource.TOPIC, "orders", Operation.DELETE))
    lag(harness, RemoveAcls((acl(Resource.TOPIC, "orders", Operation.DELETE),)))
    assert delete(harness, name="orders") == [DENIED]
    assert harness.broker.image.topic(TopicName("orders")) is not None


def test_a_right_that_the_node_did_not_know_yet_is_one(harness: Harness) -> None:
    harness.create_topic("orders")
    lag(harness, AddAcls((acl(Resource.TOPIC, "orders", Operation.DELETE),)))
    assert delete(harness, name="orders") == [ErrorCode.NONE]
