import pytest
from msgspec.structs import replace

from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.metadata.ddl import ChangeBroker, RegisterBroker, UnregisterBroker
from headrace.metadata.events import BrokerRegistered
from headrace.metadata.image import Image
from headrace.metadata.state import Broker, Endpoint
from tests.unit.metadata.clusters import Cluster, assign, create_orders

ENDPOINTS = (Endpoint("PLAINTEXT", "localhost", 9092, 0),)
FIRST_LIFE, SECOND_LIFE = b"1" * 16, b"2" * 16
REGISTER = RegisterBroker(1, FIRST_LIFE, ENDPOINTS, "r1", {"share.version": (0, 1)}, node_name="n1")


def registered() -> Cluster:
    cluster = Cluster(Image())
    cluster.propose(REGISTER)
    return cluster


def broker(cluster: Cluster) -> Broker:
    found = cluster.image.broker(BrokerId(1))
    assert found is not None
    return found


def test_a_broker_is_found_by_id_and_by_name() -> None:
    cluster = registered()
    assert cluster.image.broker_by_name("n1") is broker(cluster)
    assert list(cluster.image.brokers()) == [broker(cluster)]
    assert (broker(cluster).endpoints, broker(cluster).rack) == (ENDPOINTS, "r1")
    assert broker(cluster).is_fenced


def test_registering_again_in_the_same_life_keeps_epoch_and_fencing() -> None:
    cluster = registered()
    cluster.propose(ChangeBroker(1, 0, is_fenced=False))
    assert cluster.propose(REGISTER).events == ()
    cluster.propose(replace(REGISTER, rack="r2"))
    assert (broker(cluster).broker_epoch, broker(cluster).is_fenced) == (0, False)
    assert broker(cluster).rack == "r2"


def test_another_life_begins_an_epoch_once_the_former_is_fenced() -> None:
    cluster = registered()
    reborn = replace(REGISTER, incarnation_id=SECOND_LIFE)
    cluster.propose(ChangeBroker(1, 0, is_fenced=False))
    cluster.refuses_with(ErrorCode.DUPLICATE_BROKER_REGISTRATION, reborn)
    cluster.propose(ChangeBroker(1, 0, is_fenced=True))
    assert cluster.propose(reborn).events == (BrokerRegistered(BrokerId(1), 1),)
    cluster.refuses_with(ErrorCode.STALE_BROKER_EPOCH, ChangeBroker(1, 0, is_fenced=False))


def test_a_name_belongs_to_one_broker() -> None:
    cluster = registered()
    thief = replace(REGISTER, broker_id=2)
    cluster.refuses_with(ErrorCode.DUPLICATE_BROKER_REGISTRATION, thief)
    cluster.propose(replace(REGISTER, node_name="other"))
    assert cluster.image.broker_by_name("n1") is None
    cluster.propose(thief)


def test_a_broker_shuts_down_in_order() -> None:
    cluster = registered()
    cluster.propose(ChangeBroker(1, 0, is_shutting_down=True, log_dirs=(b"d" * 16,)))
    assert broker(cluster).is_shutting_down
    assert broker(cluster).log_dirs == (b"d" * 16,)
    assert cluster.propose(ChangeBroker(1, 0, is_shutting_down=True)).events == ()


def test_a_broker_with_replicas_is_not_forgotten() -> None:
    cluster = registered()
    cluster.propose(create_orders(assign(1)))
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, UnregisterBroker(1))


def test_a_forgotten_broker_registers_under_a_new_epoch() -> None:
    cluster = registered()
    cluster.propose(UnregisterBroker(1))
    assert cluster.image.broker_by_name("n1") is None
    cluster.propose(REGISTER)
    assert broker(cluster).broker_epoch == 1


@pytest.mark.parametrize("ddl", [UnregisterBroker(9), ChangeBroker(9, 0)])
def test_a_broker_that_is_not_there_cannot_change(ddl: UnregisterBroker | ChangeBroker) -> None:
    Cluster(Image()).refuses_with(ErrorCode.BROKER_ID_NOT_REGISTERED, ddl)
