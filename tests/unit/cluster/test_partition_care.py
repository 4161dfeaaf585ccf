"""The controller looks after partitions: moves, unclean and preferred leaders, more replicas."""

from headrace.cluster.partition_care import CareSettings
from headrace.config import load_settings
from headrace.ids import BrokerId, TopicName
from headrace.metadata.ddl import AddPartitions, ChangeBroker, SetFeature
from headrace.metadata.entries import (
    Join,
    PromoteToVoter,
    StartDecommission,
    TopologyChange,
)
from headrace.metadata.state import NO_LEADER, ResourceType
from headrace.replication.raising import Wanted
from tests.unit.cluster.controlled import Controlled, run, until
from tests.unit.metadata.clusters import ORDERS, ORDERS_ID, assign

UNCLEAN = "unclean.leader.election.enable"
MIN_ISR = "min.insync.replicas"
ONE, TWO, THREE = map(BrokerId, (1, 2, 3))


def test_a_move_ends_when_its_replicas_are_in_sync() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2, 3)
        await controlled.create(assign(1, 2))
        await controlled.lead()
        await controlled.change(replicas=(THREE, ONE, TWO), adding=(THREE,), removing=(ONE, TWO))
        await controlled.change(isr=(ONE, TWO, THREE))
        await until(lambda: not controlled.row().removing)
        row = controlled.row()
        assert (row.replicas, row.isr, row.leader) == ((3,), (3,), 3)

    run(scenario)


def test_a_move_that_a_former_controller_left_is_ended_by_the_next() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2)
        await controlled.create(assign(1))
        await controlled.change(replicas=(TWO, ONE), adding=(TWO,), removing=(ONE,))
        await controlled.change(isr=(ONE, TWO))
        assert controlled.row().adding == (2,)
        await controlled.lead()
        await until(lambda: controlled.row().replicas == (2,))
        assert list(controlled.quorum.image.moving()) == []

    run(scenario)


def test_a_partition_without_a_leader_gets_an_unclean_one_as_soon_as_that_is_allowed() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2)
        await controlled.add_brokers(3, is_fenced=True)
        await controlled.create(assign(3, 2, isr=(3,), leader=NO_LEADER))
        await controlled.lead()
        await controlled.configure({UNCLEAN: "false"}, ORDERS)
        await controlled.configure({UNCLEAN: "true"})
        assert controlled.row().leader == NO_LEADER
        await controlled.configure({UNCLEAN: None}, ORDERS)
        await until(lambda: controlled.row().leader == 2)
        assert controlled.row().isr == (2,)

    run(scenario)


def test_where_it_is_allowed_a_new_controller_elects_unclean_leaders() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2)
        await controlled.add_brokers(3, is_fenced=True)
        await controlled.create(assign(3, 2, isr=(3,), leader=NO_LEADER))
        await controlled.lead()
        await until(lambda: controlled.row().leader == 2)

    run(scenario, CareSettings(allows_unclean=True))


def test_new_partitions_that_were_planned_before_their_leader_was_fenced_get_another() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2)
        await controlled.add_brokers(3, is_fenced=True)
        await controlled.lead()
        await controlled.create(assign(3, 2), assign(2, 3))
        await until(lambda: controlled.row().leader == 2)
        await until(lambda: controlled.row(1).isr == (2,))
        await controlled.quorum.propose(AddPartitions(ORDERS_ID, 2, (assign(3, 2),)))
        await until(lambda: controlled.row(2).leader == 2)
        assert controlled.row(2).isr == (2,)

    run(scenario)


def test_partitions_that_come_while_their_leader_is_being_fenced_get_another() -> None:
    """The fencing was planned without them, and the log has them before it."""

    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2, 3)
        await controlled.lead()
        await controlled.quorum.propose(SetFeature("a.feature", 1))  # the controller is idle then
        controlled.controller.gone(THREE)
        await controlled.create(assign(3, 2))
        assert controlled.row().leader == 3
        await until(lambda: controlled.row().leader == 2)
        assert controlled.row().isr == (2,)

    run(scenario)


def test_a_move_goes_on_after_the_log_could_not_take_its_next_step() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2, 3)
        await controlled.create(assign(1, 2))
        await controlled.lead()
        await controlled.quorum.propose(SetFeature("a.feature", 1))  # the controller is idle then
        controlled.fail(times=5)
        await controlled.change(replicas=(THREE, ONE, TWO), adding=(THREE,), removing=(ONE, TWO))
        await controlled.change(isr=(ONE, TWO, THREE))
        await until(lambda: controlled.row().replicas == (3,))

    run(scenario)


def test_an_unclean_leader_is_elected_after_the_log_could_not_take_it() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2)
        await controlled.add_brokers(3, is_fenced=True)
        await controlled.create(assign(3, 2, isr=(3,), leader=NO_LEADER))
        await controlled.lead()
        await controlled.quorum.propose(SetFeature("a.feature", 1))
        controlled.fail()
        await controlled.configure({UNCLEAN: "true"})
        await until(lambda: controlled.row().leader == 2)

    run(scenario)


def test_leaders_are_handed_over_after_the_log_could_not_take_it() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2)
        for node in (1, 2):
            await controlled.quorum.propose(TopologyChange(Join(node, f"127.0.0.1:{node}")))
            await controlled.quorum.propose(TopologyChange(PromoteToVoter(node)))
        await controlled.create(assign(2, 1))
        await controlled.lead()
        await controlled.quorum.propose(SetFeature("a.feature", 1))
        controlled.fail()
        await controlled.quorum.propose(TopologyChange(StartDecommission(2)))
        await until(lambda: controlled.row().leader == 1)

    run(scenario)


def test_internal_topics_get_more_replicas_after_the_log_could_not_take_it() -> None:
    wanted = {ORDERS: Wanted(2)}

    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1)
        await controlled.create(assign(1))
        await controlled.lead()
        await controlled.quorum.propose(SetFeature("a.feature", 1))
        controlled.fail()
        await controlled.add_brokers(2)
        await until(lambda: len(controlled.row().replicas) == 2)

    run(scenario, CareSettings(internal_topics=wanted))


def test_preferred_replicas_lead_again_after_a_while() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2)
        await controlled.create(assign(2, 1, leader=1))
        await controlled.lead()
        await until(lambda: controlled.row().leader == 2)
        await controlled.change(leader=1)
        await until(lambda: controlled.row().leader == 2)

    run(scenario, CareSettings(rebalance_seconds=0.01))


def test_leaders_stay_where_they_are_unless_rebalancing_is_wanted() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2)
        await controlled.create(assign(2, 1, leader=1), assign(1, 2))
        await controlled.lead()
        await controlled.change(replicas=(TWO, ONE), adding=(TWO,))
        await until(lambda: not controlled.row().adding)
        assert controlled.row().leader == 1

    care = CareSettings(rebalances_leaders=False, rebalance_seconds=0.0001, unclean_seconds=0.0001)
    run(scenario, care)


def test_internal_topics_get_more_replicas_as_brokers_come_and_then_their_min_isr() -> None:
    name = TopicName("__transaction_state")

    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1)
        await controlled.create(assign(1), name=name, min_insync_replicas="1")
        await controlled.lead()
        await controlled.add_brokers(2)
        await until(lambda: controlled.row(name=name).replicas == (1, 2))
        await controlled.add_brokers(3, is_fenced=True)
        await controlled.quorum.propose(ChangeBroker(3, controlled.epoch(3), is_fenced=False))
        await until(lambda: controlled.row(name=name).replicas == (1, 2, 3))
        configs = controlled.quorum.image.configs
        await controlled.change(isr=(ONE, THREE))
        await until(lambda: configs(ResourceType.TOPIC, name) == {"min.insync.replicas": "2"})
        assert controlled.row(name=name).leader_epoch == 0

    run(scenario, CareSettings(internal_topics={name: Wanted(3, 2)}))


def test_the_settings_of_a_node_decide() -> None:
    care = CareSettings.of(
        load_settings(
            overrides={
                UNCLEAN: "true",
                "unclean.leader.election.interval.ms": "2000",
                "auto.leader.rebalance.enable": "false",
                "leader.imbalance.check.interval.seconds": "7",
                "offsets.topic.replication.factor": "2",
                "transaction.state.log.replication.factor": "5",
                "transaction.state.log.min.isr": "3",
            }
        )
    )
    assert (care.allows_unclean, care.unclean_seconds) == (True, 2)
    assert (care.rebalances_leaders, care.rebalance_seconds) == (False, 7)
    assert care.internal_topics[TopicName("__consumer_offsets")] == Wanted(2)
    assert care.internal_topics[TopicName("__transaction_state")] == Wanted(5, 3)


def test_a_controller_gives_the_cluster_its_min_isr_where_there_is_none() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2)
        await controlled.create(assign(1, 2))
        await controlled.lead()
        image = controlled.quorum.image
        await until(lambda: image.configs(ResourceType.BROKER, "").get(MIN_ISR) == "2")
        await controlled.change(isr=(ONE,))
        assert controlled.row().elr == (2,)

    run(scenario, CareSettings(min_insync_replicas=2))


def test_a_min_isr_that_the_cluster_has_stays() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2)
        await controlled.configure({MIN_ISR: "3"})
        await controlled.create(assign(1, 2))
        await controlled.lead()
        await controlled.change(isr=(ONE,))
        assert controlled.quorum.image.configs(ResourceType.BROKER, "")[MIN_ISR] == "3"

    run(scenario, CareSettings(min_insync_replicas=2))
