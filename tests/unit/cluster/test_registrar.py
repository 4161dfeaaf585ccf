"""Registering nodes: one that is refused leaves nothing behind, nor does a former life."""

import asyncio

import pytest

from headrace.cluster import words
from headrace.cluster.registrar import Admission, Registrar
from headrace.ids import BrokerId, PartitionIndex
from headrace.metadata.applier import Outcome
from headrace.metadata.ddl import (
    ChangeBroker,
    ChangePartition,
    Ddl,
    RaiseLevel,
    RegisterBroker,
    encode_ddl,
)
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
from headrace.metadata.features import HEADRACE_VERSION, LEVEL
from headrace.metadata.quorum import MetadataQuorum
from headrace.raft.settings import RaftSettings
from headrace.testing.disk import SimulatedDisk
from tests.unit.cluster.controlled import Controlled, run
from tests.unit.metadata.clusters import ORDERS_ID, assign

LEADER, NODE = BrokerId(1), BrokerId(2)
FOLDER = b"f" * 16


def wanted(address: str, level: int = LEVEL) -> words.Register:
    """Return the request of a node whose software knows levels up to this one."""
    features = {HEADRACE_VERSION: (0, level)}
    broker = RegisterBroker(NODE, b"i" * 16, (), features=features, log_dirs=(FOLDER,))
    return words.Register(address, encode_ddl(broker), -1)


def check_is_refused(
    address: str,
    *before: Entry | Ddl,
    level: int = LEVEL,
    settings: RaftSettings | None = None,
) -> None:
    async def whole() -> None:
        quorum = MetadataQuorum(LEADER, SimulatedDisk(seed=1), settings=settings)
        await quorum.start()
        try:
            for change in before:
                await quorum.propose(change)
            row = quorum.image.node(NODE)
            registrar = Registrar(quorum, Admission(lambda: 0))
            response = await registrar.register(NODE, FOLDER, wanted(address, level))
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
        RaiseLevel(1),
        TopologyChange(Join(LEADER, "there:9")),
        TopologyChange(PromoteToVoter(LEADER)),
        TopologyChange(Join(NODE, "here:9")),
        TopologyChange(StartDecommission(NODE)),
        RoutingChange(RemoveMember(0, NODE)),
        TopologyChange(FinishDecommission(NODE)),
    )


def test_a_node_more_than_the_quorum_takes_is_refused_and_does_not_wait() -> None:
    check_is_refused("here:9", settings=RaftSettings(members_max=1))


def test_software_that_is_too_old_for_the_cluster_is_refused() -> None:
    check_is_refused("here:9", ClusterVersionBump(0, 5))


def test_software_that_does_not_know_the_level_of_the_cluster_is_refused() -> None:
    check_is_refused("here:9", RaiseLevel(1), level=0)


@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_former_life_does_not_get_back_into_an_isr_while_the_next_one_registers(
    is_fenced: bool,
) -> None:
    """Its leader still hears of the former life, and proposes it whenever it can."""

    async def scenario(controlled: Controlled) -> None:
        quorum = controlled.quorum
        await controlled.add_brokers(1, 2)
        await controlled.create(assign(1, 2))
        epochs = controlled.epoch(1), controlled.epoch(2)
        if is_fenced:
            await quorum.propose(ChangeBroker(NODE, epochs[1], is_fenced=True))
        both = ChangePartition(ORDERS_ID, PartitionIndex(0), isr=(LEADER, NODE), isr_epochs=epochs)
        propose, tried = quorum.propose_as_leader, 0

        async def propose_and_join(change: Entry | Ddl) -> Outcome:
            nonlocal tried
            outcome = await propose(change)
            if NODE not in controlled.row().isr:
                tried += 1
                assert (await quorum.propose_for_outcome(both)).refusals
            return outcome

        vars(quorum)["propose_as_leader"] = propose_and_join
        registrar = Registrar(quorum, Admission(lambda: 0))
        assert isinstance(
            await registrar.register(NODE, FOLDER, wanted("here:9")), words.Registered
        )
        assert tried
        assert (controlled.row().isr, controlled.epoch(2) > epochs[1]) == ((1,), True)

    run(scenario)


def test_a_registration_waits_until_the_former_life_is_out_of_everything() -> None:
    """Somebody changes the partition each time before the plan for it arrives."""

    async def scenario(controlled: Controlled) -> None:
        quorum = controlled.quorum
        await controlled.add_brokers(1, 2)
        await controlled.create(assign(1, 2))
        propose = quorum.propose_as_leader

        async def propose_late(change: Entry | Ddl) -> Outcome:
            await controlled.change(leader=LEADER)
            return await propose(change)

        vars(quorum)["propose_as_leader"] = propose_late
        registrar, epoch = Registrar(quorum, Admission(lambda: 0)), controlled.epoch(2)
        response = await registrar.register(NODE, FOLDER, wanted("here:9"))
        assert isinstance(response, words.Failed)
        assert response.may_retry
        assert controlled.epoch(2) == epoch
        vars(quorum)["propose_as_leader"] = propose
        assert isinstance(
            await registrar.register(NODE, FOLDER, wanted("here:9")), words.Registered
        )
        assert controlled.row().isr == (1,)

    run(scenario)


def test_a_former_life_that_is_heard_from_is_not_unfenced_while_the_next_one_registers() -> None:
    async def scenario(controlled: Controlled) -> None:
        quorum = controlled.quorum
        await controlled.add_brokers(1, 2)
        await controlled.create(assign(1, 2))
        await controlled.lead()
        former = controlled.epoch(2)
        propose, seen = quorum.propose_as_leader, []

        async def propose_and_beat(change: Entry | Ddl) -> Outcome:
            outcome = await propose(change)
            if controlled.epoch(2) == former:
                controlled.beat(2)
                for _ in range(10):
                    await quorum.read()
                broker = quorum.image.broker(NODE)
                assert broker is not None
                seen.append(broker.is_fenced)
            return outcome

        vars(quorum)["propose_as_leader"] = propose_and_beat
        response = await controlled.controller.register(NODE, FOLDER, wanted("here:9"))
        assert isinstance(response, words.Registered)
        assert seen
        assert all(seen)

    run(scenario)
