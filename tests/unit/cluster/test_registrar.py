"""Registering nodes: one that is refused leaves nothing behind."""

import asyncio

import pytest

from headrace.cluster import words
from headrace.cluster.registrar import Admission, Registrar
from headrace.ids import BrokerId
from headrace.metadata.ddl import RegisterBroker, encode_ddl
from headrace.metadata.entries import (
    ClusterVersionBump,
    Entry,
    FinishDecommission,
    Join,
    PromoteToVoter,
    RemoveMember,
    RoutingChange,
    StartDecommission,
    TopologyChange,
)
from headrace.metadata.quorum import MetadataQuorum
from headrace.testing.disk import SimulatedDisk

LEADER, NODE = BrokerId(1), BrokerId(2)
FOLDER = b"f" * 16


def wanted(address: str) -> words.Register:
    broker = RegisterBroker(NODE, b"i" * 16, (), log_dirs=(FOLDER,))
    return words.Register(address, encode_ddl(broker), -1)


def check_is_refused(address: str, *before: Entry) -> None:
    async def whole() -> None:
        quorum = MetadataQuorum(LEADER, SimulatedDisk(seed=1))
        await quorum.start()
        try:
            for change in before:
                await quorum.propose(change)
            row = quorum.image.node(NODE)
            registrar = Registrar(quorum, Admission(lambda: 0))
            response = await registrar.register(NODE, FOLDER, wanted(address))
            assert isinstance(response, words.Failed)
            assert not response.may_retry
            assert quorum.image.broker(NODE) is None
            assert quorum.image.node(NODE) == row
        finally:
            await quorum.stop()

    asyncio.run(whole())


@pytest.mark.parametrize("address", ["", "here", "here:0", "here:65536", "here:0000019999999"])
def test_a_node_without_an_address_is_not_half_registered(address: str) -> None:
    check_is_refused(address)


def test_a_decommissioned_node_is_not_half_registered() -> None:
    check_is_refused(
        "here:9",
        TopologyChange(Join(LEADER, "there:9")),
        TopologyChange(PromoteToVoter(LEADER)),
        TopologyChange(Join(NODE, "here:9")),
        TopologyChange(StartDecommission(NODE)),
        RoutingChange(RemoveMember(0, NODE)),
        TopologyChange(FinishDecommission(NODE)),
    )


def test_software_that_is_too_old_for_the_cluster_is_refused() -> None:
    check_is_refused("here:9", ClusterVersionBump(0, 5))
