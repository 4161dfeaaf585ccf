"""ElectLeader of seed 002: clean elections only."""

from typing import Any

import pytest

from headrace.cluster.protocol import ClusterErrorCode, responses
from headrace.ids import BrokerId, PartitionIndex
from headrace.metadata.ddl import ChangePartition, SetConfigs
from headrace.metadata.state import ResourceType
from tests.unit.harness import Harness
from tests.unit.server.interchange.programs import Program, ask, talk


@pytest.fixture
def replicated(harness: Harness, register: Any, place: Any) -> Harness:
    """Topics of the node and the two above it; the second of those is fenced."""
    me = harness.broker.node_id
    register(me + 1)
    register(me + 2, is_fenced=True)
    place("theirs", [me, me + 1, me + 2], isr=[me, me + 1], leader=me + 1)
    place("lost", [me + 2, me + 1, me], isr=[me + 1, me + 2], leader=-1)
    place("gone", [me + 2], isr=[me + 2], leader=-1)
    return harness


def leader(harness: Harness, topic: str) -> int:
    found: int = harness.topic(topic).partitions[0].leader
    return found


def test_the_preferred_replica_is_elected(replicated: Harness) -> None:
    me = replicated.broker.node_id
    epoch = replicated.topic("theirs").partitions[0].leader_epoch
    answer = ask(replicated, lambda program: program.elect(topic="theirs"))
    assert isinstance(answer, responses.ElectLeader)
    assert (answer.header.error_code, answer.leader, answer.epoch) == (0, str(me), epoch + 1)
    assert replicated.partition("theirs").is_leader
    again = ask(replicated, lambda program: program.elect(topic="theirs"))
    assert (again.header.error_code, again.leader, again.epoch) == (0, str(me), epoch + 1)


def test_the_replica_that_is_named_is_elected(replicated: Harness) -> None:
    me = replicated.broker.node_id
    for number in (0, 1):

        async def work(program: Program, number: int = number) -> Any:
            return await program.ask(program.elect(str(me + number), topic="theirs"))

        assert talk(replicated, work).leader == str(me + number)
        assert leader(replicated, "theirs") == me + number
    assert not replicated.partition("theirs").is_leader


@pytest.mark.parametrize("number", [None, 1])
def test_a_partition_without_leader_gets_an_eligible_one_if_nobody_in_sync_is_up(
    replicated: Harness, number: int | None
) -> None:
    me, propose = replicated.broker.node_id, replicated.broker.quorum.propose
    topic = replicated.topic("lost")
    values: dict[str, str | None] = {"min.insync.replicas": "2"}
    away = (BrokerId(me + 2),)
    replicated.run(propose(SetConfigs(ResourceType.TOPIC, "lost", values)))
    replicated.run(propose(ChangePartition(topic.topic_id, PartitionIndex(0), isr=away)))
    assert topic.partitions[0].elr == (me + 1,)
    named = None if number is None else str(me + number)
    answer = ask(replicated, lambda program: program.elect(named, topic="lost"))
    assert (answer.leader, leader(replicated, "lost")) == (str(me + 1), me + 1)
    assert (topic.partitions[0].isr, topic.partitions[0].elr) == ((me + 1,), away)


def test_a_partition_without_leader_gets_one_that_is_in_sync(replicated: Harness) -> None:
    me = replicated.broker.node_id
    answer = ask(replicated, lambda program: program.elect(topic="lost"))
    assert (answer.leader, leader(replicated, "lost")) == (str(me + 1), me + 1)


@pytest.mark.parametrize(
    ("topic", "number", "expected"),
    [
        ("nothing", None, ClusterErrorCode.UNKNOWN_TOPIC),
        ("gone", None, ClusterErrorCode.LEADER_NOT_AVAILABLE),
        ("gone", 2, ClusterErrorCode.INELIGIBLE_REPLICA),
        ("lost", 0, ClusterErrorCode.INELIGIBLE_REPLICA),
        ("gone", 1, ClusterErrorCode.NOT_REPLICA_FOR_PARTITION),
        ("gone", 9, ClusterErrorCode.NOT_REPLICA_FOR_PARTITION),
    ],
)
def test_others_are_not_elected(
    replicated: Harness, topic: str, number: int | None, expected: ClusterErrorCode
) -> None:
    wanted = None if number is None else str(replicated.broker.node_id + number)
    answer = ask(replicated, lambda program: program.elect(wanted, topic=topic))
    assert isinstance(answer, responses.Error)
    assert answer.header.error_code == expected
    assert topic == "nothing" or leader(replicated, topic) == -1


def test_a_partition_that_is_not_there_has_no_election(replicated: Harness) -> None:
    answer = ask(replicated, lambda program: program.elect(topic="lost", index=1))
    assert answer.header.error_code == ClusterErrorCode.INVALID_PARTITION
