"""Seed 002 on a cluster: every node takes proposals, leaders take records."""

from typing import Any

from headrace.cluster.protocol import Acks, ClusterErrorCode, commands
from headrace.ids import TopicName
from headrace.testing.cluster import TestCluster
from tests.unit.server.interchange.programs import Program, batch, talk


def create(name: str, *replicas: str) -> commands.CreateTopic:
    config = commands.TopicConfig(TopicName(name), 1, len(replicas))
    return commands.CreateTopic(config, (replicas,))


def test_every_node_takes_proposals_and_its_own_partitions_records() -> None:
    with TestCluster(nodes=3) as cluster:
        names = {number: f"of-{number}" for number in cluster.nodes}

        for number, node in cluster.nodes.items():

            async def work(program: Program, number: int = number) -> Any:
                made = await program.ask(program.propose(create(names[number], str(number))))
                put = await program.ask(program.append(batch(), Acks.ALL, topic=names[number]))
                told = await program.ask(program.metadata(names[number]))
                return made.header.error_code, put.header.error_code, told

            made, put, told = talk(node, work)
            assert (made, put) == (0, 0)
            assert told.topics[0].partitions[0].leader_id == str(number)
            assert told.controller_id == str(cluster.controller)
            assert {each.node_id for each in told.brokers} == {"1", "2", "3"}
        last = cluster.nodes[3]

        async def elsewhere(program: Program) -> list[int]:
            asked: list[Any] = [
                program.append(batch(), topic="of-1"),
                program.fetch(topic="of-1"),
                program.propose(create("of-1", "3")),
            ]
            return [(await program.ask(each)).header.error_code for each in asked]

        assert talk(last, elsewhere) == [
            ClusterErrorCode.NOT_LEADER_FOR_PARTITION,
            ClusterErrorCode.NOT_LEADER_FOR_PARTITION,
            ClusterErrorCode.TOPIC_ALREADY_EXISTS,
        ]


def test_a_node_elects_another_leader() -> None:
    with TestCluster(nodes=3) as cluster:

        async def work(program: Program) -> Any:
            await program.ask(program.propose(create("orders", "1", "2")))
            return [await program.ask(program.elect(leader)) for leader in ("2", "3", None)]

        second, stranger, preferred = talk(cluster.nodes[3], work)
        assert (second.leader, preferred.leader) == ("2", "1")
        assert stranger.header.error_code == ClusterErrorCode.NOT_REPLICA_FOR_PARTITION
        assert preferred.epoch == second.epoch + 1
