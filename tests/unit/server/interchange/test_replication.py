"""ReplicaState and Heartbeat of seed 002: who is heard, and what it is told."""

from typing import Any

import pytest

from headrace.cluster.protocol import Acks, ClusterErrorCode, responses
from tests.unit.harness import Harness
from tests.unit.server.interchange.programs import Program, ask, batch, talk


@pytest.fixture
def replicated(harness: Harness, register: Any, place: Any) -> Harness:
    """A node that leads `orders`; node + 1 is in sync, node + 2 is not, node + 3 is no replica."""
    me = harness.broker.node_id
    for number in (1, 2, 3):
        register(me + number)
    place("orders", [me, me + 1, me + 2], isr=[me, me + 1], leader=me)
    place("theirs", [me + 1, me], isr=[me + 1, me], leader=me + 1)
    return harness


def test_a_replica_is_told_whether_it_is_in_sync(replicated: Harness) -> None:
    me = replicated.broker.node_id
    told = {
        number: ask(replicated, lambda program: program.replica_state(0), source=str(me + number))
        for number in (1, 2)
    }
    assert all(isinstance(each, responses.ReplicaStateAck) for each in told.values())
    assert {number: each.in_sync for number, each in told.items()} == {1: True, 2: False}


@pytest.mark.parametrize("stranger", ["3", "17", "rivven-1", "", "+1", "x" * 256])
def test_a_stranger_is_no_replica(replicated: Harness, stranger: str) -> None:
    me = replicated.broker.node_id
    source = str(me + 3) if stranger == "3" else stranger or " "
    answer = ask(replicated, lambda program: program.replica_state(0), source=source)
    assert isinstance(answer, responses.Error)
    assert answer.header.error_code == ClusterErrorCode.NOT_REPLICA_FOR_PARTITION


def test_reports_that_cannot_be_are_refused(replicated: Harness) -> None:
    me = replicated.broker.node_id

    async def work(program: Program) -> list[int]:
        asked = [
            program.replica_state(0, topic="nothing"),
            program.replica_state(0, topic="theirs"),
            program.replica_state(1),
            program.replica_state(0, high_watermark=1),
        ]
        return [(await program.ask(each)).header.error_code for each in asked]

    assert talk(replicated, work, source=str(me + 1)) == [
        ClusterErrorCode.UNKNOWN_TOPIC,
        ClusterErrorCode.NOT_LEADER_FOR_PARTITION,
        ClusterErrorCode.OFFSET_OUT_OF_RANGE,
        ClusterErrorCode.INVALID_REQUEST,
    ]


def test_a_report_moves_no_high_watermark(replicated: Harness) -> None:
    me = replicated.broker.node_id

    async def work(program: Program) -> Any:
        await program.ask(program.append(batch(), Acks.LEADER))
        program.source = str(me + 1)
        return await program.ask(program.replica_state(1))

    assert talk(replicated, work).in_sync
    assert replicated.partition("orders").log.high_watermark == 0


def test_a_leader_s_heartbeat_is_acknowledged(replicated: Harness) -> None:
    me = replicated.broker.node_id
    epoch = replicated.topic("theirs").partitions[0].leader_epoch

    async def work(program: Program) -> list[Any]:
        return [
            await program.ask(program.heartbeat()),
            await program.ask(program.heartbeat(("theirs", 0), epoch=epoch)),
            await program.ask(program.heartbeat(("orders", 0), epoch=2**64 - 1)),
        ]

    answers = talk(replicated, work, source=str(me + 1))
    assert all(isinstance(each, responses.Heartbeat) for each in answers)
    assert all(each.header.is_success for each in answers)


def test_heartbeats_of_strangers_and_former_leaders_are_refused(replicated: Harness) -> None:
    me = replicated.broker.node_id
    epoch = replicated.topic("theirs").partitions[0].leader_epoch
    cases = [
        ("rivven-9", [], 0, ClusterErrorCode.UNKNOWN_MEMBER_ID),
        (str(me + 1), [("nothing", 0)], 0, ClusterErrorCode.UNKNOWN_TOPIC),
        (str(me + 1), [("theirs", 1)], 0, ClusterErrorCode.INVALID_PARTITION),
        (str(me + 1), [("theirs", 0)], epoch - 1, ClusterErrorCode.NOT_LEADER_FOR_PARTITION),
        (str(me + 2), [("theirs", 0)], epoch, ClusterErrorCode.NOT_LEADER_FOR_PARTITION),
    ]
    for source, led, claimed, expected in cases:

        async def work(program: Program, led: Any = led, claimed: int = claimed) -> Any:
            return await program.ask(program.heartbeat(*led, epoch=claimed))

        answer = talk(replicated, work, source=source)
        assert answer.header.error_code == expected, source


def test_a_heartbeat_of_very_many_partitions_is_acknowledged(replicated: Harness) -> None:
    led = [("theirs", 0)] * 20_000
    answer = ask(
        replicated,
        lambda program: program.heartbeat(*led, epoch=2**64 - 1),
        source=str(replicated.broker.node_id + 1),
    )
    assert answer.header.is_success
