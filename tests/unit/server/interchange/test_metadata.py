"""FetchMetadata of seed 002: topics, partitions and brokers by their decimal names."""

from typing import Any

import pytest

from headrace.cluster.protocol import responses
from tests.unit.harness import Harness
from tests.unit.server.interchange.programs import Program, ask, talk


def test_topics_partitions_and_brokers_are_those_of_the_image(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1, rack="b")
    register(me + 2, is_fenced=True)
    place("orders", [me, me + 2], isr=[me], leader=me)
    place("nobodys", [me], isr=[me], leader=-1)
    answer = ask(harness, lambda program: program.metadata())
    assert isinstance(answer, responses.Metadata)
    assert answer.header.is_success
    assert answer.cluster_id == harness.broker.image.state.cluster_id
    assert answer.controller_id == str(me)
    here = harness.node.listeners[0]
    assert [(each.node_id, each.host, each.port, each.rack) for each in answer.brokers] == [
        (str(me), here.host, here.port, None),
        (str(me + 1), f"host{me + 1}", 9000 + me + 1, "b"),
    ]
    orders, nobodys = answer.topics
    epoch = harness.topic("orders").partitions[0].leader_epoch
    assert (orders.name, orders.is_internal) == ("orders", False)
    assert orders.partitions == (
        responses.PartitionMetadata(
            0, str(me), epoch, (str(me), str(me + 2)), (str(me),), (str(me + 2),)
        ),
    )
    assert nobodys.partitions[0].leader_id is None


def test_only_topics_that_are_asked_for_and_exist_are_in_the_response(harness: Harness) -> None:
    for name in ("orders", "bills", "table"):
        harness.create_topic(name)

    async def work(program: Program) -> list[list[str]]:
        asked = [program.metadata("bills", "nothing", "bills", "orders"), program.metadata("no")]
        return [[topic.name for topic in (await program.ask(each)).topics] for each in asked]

    assert talk(harness, work) == [["bills", "orders"], []]


@pytest.mark.slow
def test_very_many_partitions_are_in_one_response_in_order(harness: Harness) -> None:
    harness.create_topic("wide", partitions=3000)

    async def work(program: Program) -> list[Any]:
        program.send(program.metadata("wide"), program.metadata("none"))
        return [await program.receive(), await program.receive()]

    wide, none = talk(harness, work)
    assert [each.partition_index for each in wide.topics[0].partitions] == [*range(3000)]
    assert none.topics == ()


def test_very_many_names_are_looked_up(harness: Harness) -> None:
    harness.create_topic("orders")
    names = [f"n{number}" for number in range(50_000)]
    answer = ask(harness, lambda program: program.metadata(*names, "orders"))
    assert [topic.name for topic in answer.topics] == ["orders"]
