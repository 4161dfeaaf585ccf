from headrace.errors import ErrorCode
from headrace.metadata.ddl import DeleteTopic, Expire
from headrace.metadata.descriptors import (
    DescriptorId,
    DescriptorKind,
    DescriptorLease,
    Hlc,
    topic_descriptor,
)
from headrace.metadata.entries import (
    DescriptorDrainEnd,
    DescriptorDrainStart,
    DescriptorLeaseGrant,
    DescriptorLeaseRelease,
)
from headrace.metadata.events import DrainEnded, LeaseEnded
from headrace.metadata.leases import SCHEDULE_LEASE_MS, holders
from headrace.metadata.state import Drain
from tests.unit.metadata.clusters import ORDERS, ORDERS_ID, Cluster, with_orders

DESCRIPTOR = topic_descriptor(ORDERS)
LATER_MS = 5000


def lease(node_id: int, version: int = 1, until_ms: int = LATER_MS) -> DescriptorLeaseGrant:
    return DescriptorLeaseGrant(DescriptorLease(DESCRIPTOR, version, node_id, Hlc.of_ms(until_ms)))


def drain(up_to_version: int, until_ms: int = LATER_MS) -> DescriptorDrainStart:
    return DescriptorDrainStart(DESCRIPTOR, up_to_version, Hlc.of_ms(until_ms))


def test_a_node_has_one_lease_on_a_descriptor_and_renews_it() -> None:
    cluster = Cluster()
    cluster.propose(lease(1), lease(2), lease(1, version=2, until_ms=9000))
    assert cluster.image.leases(DESCRIPTOR).keys() == {1, 2}
    assert cluster.image.lease(DESCRIPTOR, 1) == lease(1, 2, 9000).lease
    cluster.refuses_with(ErrorCode.INVALID_UPDATE_VERSION, lease(1, version=1))


def test_a_schedule_is_held_by_one_version_at_a_time() -> None:
    """Two nodes that look at the same time both see nobody: the order of the log decides."""
    schedule = DescriptorId(0, DescriptorKind.SCHEDULE, "placement")

    def hold(node_id: int, version: int, asked_ms: int) -> DescriptorLeaseGrant:
        until = Hlc.of_ms(asked_ms + SCHEDULE_LEASE_MS)
        return DescriptorLeaseGrant(DescriptorLease(schedule, version, node_id, until))

    cluster = Cluster()
    cluster.propose(hold(1, 100, 1000))
    cluster.refuses_with(ErrorCode.REASSIGNMENT_IN_PROGRESS, hold(2, 101, 1000))
    cluster.refuses_with(ErrorCode.REASSIGNMENT_IN_PROGRESS, hold(1, 101, 1000))
    cluster.propose(hold(1, 100, 6000), hold(3, 100, 11_000))
    cluster.refuses_with(ErrorCode.REASSIGNMENT_IN_PROGRESS, hold(2, 102, 25_999))
    cluster.propose(hold(2, 102, 26_000))
    cluster.refuses_with(ErrorCode.REASSIGNMENT_IN_PROGRESS, hold(1, 100, 27_000))
    cluster.propose(DescriptorLeaseRelease(2, (schedule,)), hold(1, 103, 27_000))


def test_releasing_what_is_not_held_is_no_error() -> None:
    cluster = Cluster()
    other = DescriptorId(0, DescriptorKind.INDEX, "orders")
    cluster.propose(lease(1), lease(2))
    released = cluster.propose(DescriptorLeaseRelease(1, (other, DESCRIPTOR, DESCRIPTOR)))
    assert released.events == (LeaseEnded(DESCRIPTOR, 1),)
    assert holders(cluster.image, DESCRIPTOR, 1, 0) == [2]
    cluster.propose(DescriptorLeaseRelease(2, (DESCRIPTOR,)))
    assert cluster.image.state.leases == {}


def test_a_lease_counts_until_its_expiry_whatever_the_image_keeps() -> None:
    cluster = Cluster()
    cluster.propose(lease(1), lease(2, version=2), lease(3, until_ms=100))
    assert holders(cluster.image, DESCRIPTOR, 1, 50) == [1, 3]
    assert holders(cluster.image, DESCRIPTOR, 2, 100) == [1, 2]
    assert holders(cluster.image, DESCRIPTOR, 2, LATER_MS) == []


def test_a_drain_lets_no_lease_on_old_versions_in() -> None:
    cluster = Cluster()
    cluster.propose(lease(1), drain(2))
    for version in (1, 2):
        cluster.refuses_with(ErrorCode.INVALID_UPDATE_VERSION, lease(2, version))
    cluster.propose(lease(2, version=3))
    cluster.propose(DescriptorDrainEnd(DESCRIPTOR), lease(4))
    assert cluster.propose(DescriptorDrainEnd(DESCRIPTOR)).events == ()


def test_a_drain_is_widened_or_prolonged_but_not_narrowed() -> None:
    cluster = Cluster()
    cluster.propose(drain(2), drain(2, until_ms=9000), drain(3))
    assert cluster.image.drain(DESCRIPTOR) == Drain(3, Hlc.of_ms(LATER_MS))
    cluster.refuses_with(ErrorCode.INVALID_UPDATE_VERSION, drain(2))


def test_leases_and_drains_expire_when_the_log_says_how_late_it_is() -> None:
    cluster = Cluster()
    cluster.propose(lease(1), lease(2, until_ms=LATER_MS + 1), drain(5))
    assert cluster.propose(Expire(LATER_MS - 1)).events == ()
    assert cluster.propose(Expire(LATER_MS)).events == (
        LeaseEnded(DESCRIPTOR, 1),
        DrainEnded(DESCRIPTOR),
    )
    assert cluster.image.leases(DESCRIPTOR).keys() == {2}
    cluster.propose(lease(3))


def test_a_topic_is_deleted_only_when_no_lease_on_it_is_valid() -> None:
    cluster = with_orders()
    cluster.propose(lease(1), drain(1, until_ms=9000))
    error = cluster.refuses(DeleteTopic(ORDERS_ID, LATER_MS - 1))
    assert "leased by nodes [1]" in error.message
    cluster.propose(DeleteTopic(ORDERS_ID, LATER_MS))
    assert cluster.image.leases(DESCRIPTOR) == {}
    assert cluster.image.drain(DESCRIPTOR) is None
