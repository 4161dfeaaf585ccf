"""A change that was sent to a leader whose answer is lost: done once, whatever became of it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from headrace.client import Admin
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, TopicName
from headrace.metadata import quorum as metadata_quorum
from headrace.metadata.ddl import SetFeature, encode_ddl
from headrace.metadata.entries import CatalogDdl, encode_entry
from headrace.metadata.quorum import Forward
from headrace.raft.errors import ForwardUncertain, NotLeader
from headrace.testing.broker import TestBroker
from headrace.testing.cluster import TestCluster

Losing = Callable[[Forward, BrokerId, int, bytes, int], Awaitable[None]]


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(nodes=3) as cluster:
        yield cluster


def lose_next_answer(
    monkeypatch: pytest.MonkeyPatch, node: TestBroker, lose: Losing, topic: str
) -> None:
    """Let the answer to the next proposal that names a topic be lost."""
    quorum = node.node.broker.quorum
    forward = quorum._forward
    assert forward is not None
    is_lost = False

    async def losing(leader: BrokerId, term: int, data: bytes, timeout_ms: int) -> int:
        nonlocal is_lost
        if is_lost or topic.encode() not in data:
            return await forward(leader, term, data, timeout_ms)
        is_lost = True
        await lose(forward, leader, term, data, timeout_ms)
        raise ForwardUncertain(leader, "a test")

    monkeypatch.setattr(quorum, "_forward", losing)


def create(cluster: TestCluster, node: TestBroker, topic: str) -> ErrorCode:
    async def work() -> ErrorCode:
        async with Admin(node.bootstrap) as admin:
            try:
                await admin.create_topic(topic)
            except KafkaError as error:
                return ErrorCode(error.code)
        return ErrorCode.NONE

    return cluster.run(work())


def follower(cluster: TestCluster) -> TestBroker:
    leader = cluster.controller
    return next(node for number, node in cluster.nodes.items() if number != leader)


async def send(forward: Forward, leader: BrokerId, term: int, data: bytes, timeout_ms: int) -> None:
    await forward(leader, term, data, timeout_ms)


async def drop(forward: Forward, leader: BrokerId, term: int, data: bytes, timeout_ms: int) -> None:
    """Send nothing."""


@pytest.mark.parametrize("lose", [send, drop])
def test_a_change_is_made_once_when_its_leader_is_lost(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch, lose: Losing
) -> None:
    node = follower(cluster)
    leader = cluster.controller

    async def lose_leader(
        forward: Forward, to: BrokerId, term: int, data: bytes, timeout_ms: int
    ) -> None:
        await lose(forward, to, term, data, timeout_ms)
        await asyncio.to_thread(cluster.kill, leader)

    lose_next_answer(monkeypatch, node, lose_leader, "orders")
    assert create(cluster, node, "orders") is ErrorCode.NONE
    for _, each in cluster.running():
        cluster.wait_for(
            lambda each=each: each.node.broker.image.topic(TopicName("orders")) is not None,  # type: ignore[misc]
            "the topic",
        )


def test_a_change_is_found_in_the_log_of_the_same_leader(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = follower(cluster)
    lose_next_answer(monkeypatch, node, send, "orders")
    assert create(cluster, node, "orders") is ErrorCode.NONE


def test_what_may_still_come_is_not_made_again(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_quorum, "RESOLVE_SECONDS", 0.1)
    node = follower(cluster)
    lose_next_answer(monkeypatch, node, drop, "orders")
    assert create(cluster, node, "orders") is ErrorCode.REQUEST_TIMED_OUT
    assert node.node.broker.image.topic(TopicName("orders")) is None


def test_a_proposal_for_another_term_is_not_taken(cluster: TestCluster) -> None:
    node = follower(cluster)
    quorum = node.node.broker.quorum
    leader, term = quorum.driver.state.leader, quorum.driver.state.term
    forward = quorum._forward
    assert leader is not None
    assert forward is not None
    entry = encode_entry(CatalogDdl(encode_ddl(SetFeature("headrace.test", 1))))
    for other in (term - 1, term + 1):
        with pytest.raises(NotLeader):
            node.run(forward(leader, other, entry, 5000))
    assert "headrace.test" not in quorum.image.state.features


def test_what_a_controller_decides_does_not_reach_the_log_through_another(
    cluster: TestCluster,
) -> None:
    node = follower(cluster)
    quorum = node.node.broker.quorum
    with pytest.raises(NotLeader):
        node.run(quorum.propose_as_leader(SetFeature("headrace.test", 1)))
    assert "headrace.test" not in quorum.image.state.features
