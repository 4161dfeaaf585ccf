from headrace.cluster.sessions import Sessions
from headrace.ids import BrokerId, PartitionIndex
from headrace.metadata.ddl import ChangePartition
from headrace.metadata.image import Image
from headrace.metadata.state import Broker
from headrace.replication.elections import plan_fencing, plan_preferred
from headrace.replication.move_journal import plan_journal
from tests.growth.steps import assert_grows_linearly, assert_stays_flat, steps
from tests.unit.metadata.clusters import (
    ORDERS_ID,
    Cluster,
    assign,
    create_orders,
    with_orders,
)


def test_a_heartbeat_costs_the_same_however_many_brokers_there_are() -> None:
    def beat(count: int) -> int:
        sessions = Sessions(timeout_ms=9000)
        sessions.begin(((BrokerId(each), each) for each in range(count)), 0)

        def work() -> None:
            for now_ms in range(100):
                sessions.heard(BrokerId(now_ms % count), now_ms % count, now_ms)
                sessions.expired(now_ms)

        return steps(work)

    assert_stays_flat(beat, 100)


def test_planning_the_loss_of_a_broker_costs_what_it_has_however_much_others_have() -> None:
    def plan(others: int) -> int:
        cluster = with_orders(*[assign(1, 2)] * 50, *[assign(3, 4)] * others)
        return steps(lambda: list(plan_fencing(cluster.image, BrokerId(1))))

    assert_stays_flat(plan, 100)


def test_planning_the_loss_of_many_brokers_costs_what_they_have() -> None:
    def plan(count: int) -> int:
        brokers = [BrokerId(each) for each in range(1000, 1000 + count)]
        image = Image()
        for broker in brokers:
            image.put_broker(Broker(broker, 0, int(broker).to_bytes(16), (), is_fenced=True))
        cluster = Cluster(image)
        cluster.propose(create_orders(*(assign(broker, leader=-1) for broker in brokers)))
        return steps(lambda: list(plan_fencing(cluster.image, *brokers)))

    assert_grows_linearly(plan, 100)


def test_moves_and_preferred_leaders_cost_what_there_is_to_do_however_much_there_is() -> None:
    def plan(others: int) -> int:
        cluster = with_orders(*[assign(1, 2, leader=2)] * 20, *[assign(1, 2)] * others)
        for index in range(20):
            change = ChangePartition(ORDERS_ID, PartitionIndex(index), removing=(BrokerId(1),))
            cluster.propose(change)
        image = cluster.image
        assert sum(each is not None for each in plan_journal(image, image.moving(), 0)) == 20
        return steps(lambda: [*plan_journal(image, image.moving(), 0), *plan_preferred(image)])

    assert_stays_flat(plan, 100)
