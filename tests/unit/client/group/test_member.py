"""What a KIP-848 member sends to its coordinator, and what responses mean to it."""

import pytest

from headrace.client.group.member import ConsumerMember, Standing, TopicIdPartition
from headrace.client.group.subscription import Subscription
from headrace.client.share.member import Next
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId
from headrace.wire.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

ORDERS = TopicId(bytes(range(16)))
BILLS = TopicId(bytes(range(1, 17)))


def accepted(
    epoch: int, assignment: dict[TopicId, list[int]] | None = None
) -> ConsumerGroupHeartbeatResponse:
    rows = None
    if assignment is not None:
        rows = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch, heartbeat_interval_ms=5000, assignment=rows
    )


def refused(code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


def partitions(topic_id: TopicId, *indexes: int) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic_id, index) for index in indexes)


def new_member(instance_id: str | None = None) -> ConsumerMember:
    return ConsumerMember(
        "group",
        "member-1",
        instance_id=instance_id,
        rack="rack-1",
        rebalance_timeout_ms=300_000,
        assignor="range",
    )


def joined(*indexes: int, instance_id: str | None = None) -> ConsumerMember:
    """Return a member that has what it was assigned, and said so."""
    member = new_member(instance_id)
    member.subscribe(Subscription(("orders",)))
    member.take(member.heartbeat(), accepted(1, {ORDERS: list(indexes)}))
    member.own(partitions(ORDERS, *indexes))
    member.take(member.heartbeat(), accepted(1))
    return member


def test_joining_says_everything_and_a_heartbeat_only_who_we_are() -> None:
    member = new_member()
    member.subscribe(Subscription(("orders",)))
    join = member.heartbeat()
    assert (join.member_epoch, join.member_id, join.rack_id) == (0, "member-1", "rack-1")
    assert (join.rebalance_timeout_ms, join.server_assignor) == (300_000, "range")
    assert (join.subscribed_topic_names, join.subscribed_topic_regex) == (["orders"], None)
    assert join.topic_partitions == []
    assert member.take(join, accepted(3, {})) is Next.AFTER_INTERVAL
    beat = member.heartbeat()
    assert (beat.member_epoch, beat.rack_id, beat.rebalance_timeout_ms) == (3, None, -1)
    assert beat.subscribed_topic_names is None
    assert beat.topic_partitions is None
    assert beat.server_assignor is None


def test_what_is_assigned_is_unsettled_until_we_have_it_and_due_until_we_said_so() -> None:
    member = new_member()
    member.subscribe(Subscription(("orders",)))
    assert member.take(member.heartbeat(), accepted(1, {ORDERS: [0, 1]})) is Next.AFTER_INTERVAL
    assert member.is_unsettled
    assert not member.is_due
    member.own(partitions(ORDERS, 0, 1))
    assert not member.is_unsettled
    assert member.is_due
    beat = member.heartbeat()
    assert beat.topic_partitions is not None
    assert [(row.topic_id, row.partitions) for row in beat.topic_partitions] == [(ORDERS, [0, 1])]
    assert member.take(beat, accepted(2)) is Next.AFTER_INTERVAL
    assert (member.epoch, member.is_due) == (2, False)


def test_what_changes_while_a_heartbeat_is_on_its_way_is_said_at_once_after_it() -> None:
    member = joined(0)
    beat = member.heartbeat()
    member.own(())
    assert member.take(beat, accepted(2)) is Next.AT_ONCE
    assert member.heartbeat().topic_partitions == []


def test_a_response_without_assignment_leaves_it_as_it_was() -> None:
    member = joined(0, 1)
    member.take(member.heartbeat(), accepted(2))
    assert member.target == partitions(ORDERS, 0, 1)


def test_a_heartbeat_that_was_not_answered_is_followed_by_one_that_says_everything() -> None:
    member = joined(0)
    member.heartbeat()
    member.miss()
    beat = member.heartbeat()
    assert (beat.member_epoch, beat.subscribed_topic_names) == (1, ["orders"])
    assert beat.topic_partitions is not None
    assert beat.topic_partitions[0].partitions == [0]
    assert beat.rebalance_timeout_ms == 300_000


def test_a_pattern_is_the_coordinators_to_match_and_is_taken_back_with_an_empty_one() -> None:
    member = new_member()
    member.subscribe(Subscription(pattern="orders-.*"))
    join = member.heartbeat()
    assert (join.subscribed_topic_names, join.subscribed_topic_regex) == ([], "orders-.*")
    member.take(join, accepted(1, {}))
    member.subscribe(Subscription(("bills",)))
    beat = member.heartbeat()
    assert (beat.subscribed_topic_names, beat.subscribed_topic_regex) == (["bills"], "")


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_who_is_put_out_gives_up_what_it_has_before_it_joins_again(code: ErrorCode) -> None:
    member = joined(0)
    assert member.take(member.heartbeat(), refused(code)) is Next.AT_ONCE
    assert (member.standing, member.is_unsettled) == (Standing.LOST, True)
    assert member.owned == partitions(ORDERS, 0)
    member.give_up()
    assert (member.standing, member.owned) == (Standing.JOINING, frozenset())
    join = member.heartbeat()
    assert (join.member_epoch, join.member_id) == (0, "member-1")
    assert join.subscribed_topic_names == ["orders"]


def test_who_is_put_out_with_nothing_to_give_up_joins_again_but_not_in_a_circle() -> None:
    member = joined()
    fenced = refused(ErrorCode.FENCED_MEMBER_EPOCH)
    assert member.take(member.heartbeat(), fenced) is Next.AT_ONCE
    assert member.standing is Standing.JOINING
    assert member.take(member.heartbeat(), fenced) is Next.AFTER_PAUSE


def test_who_steps_out_stays_out_until_it_gave_up() -> None:
    member = joined()
    sent = member.heartbeat()
    member.step_out()
    assert member.standing is Standing.LOST
    member.take(sent, accepted(2, {ORDERS: [3]}))
    assert (member.standing, member.target) == (Standing.LOST, None)
    member.give_up()
    assert member.is_due


def test_a_response_from_before_we_lost_our_place_means_nothing() -> None:
    member = joined(0)
    old = member.heartbeat()
    member.lose()
    member.give_up()
    assert member.take(old, accepted(7, {ORDERS: [5]})) is Next.AT_ONCE
    assert (member.epoch, member.target) == (0, None)


@pytest.mark.parametrize(
    ("code", "following"),
    [
        (ErrorCode.NOT_COORDINATOR, Next.AFTER_FINDING),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Next.AFTER_FINDING),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Next.AFTER_PAUSE),
    ],
)
def test_a_coordinator_that_is_busy_or_elsewhere_costs_us_nothing(
    code: ErrorCode, following: Next
) -> None:
    member = joined(0)
    assert member.take(member.heartbeat(), refused(code)) is following
    assert (member.standing, member.owned) == (Standing.MEMBER, partitions(ORDERS, 0))
    assert member.heartbeat().subscribed_topic_names == ["orders"]


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (ErrorCode.GROUP_ID_NOT_FOUND, "another type"),
        (ErrorCode.UNRELEASED_INSTANCE_ID, "live member with instance_id 'till-1'"),
        (ErrorCode.FENCED_INSTANCE_ID, "took over instance_id 'till-1'"),
        (ErrorCode.UNSUPPORTED_VERSION, 'protocol="classic"'),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "no"),
    ],
)
def test_what_ends_a_membership_says_why(code: ErrorCode, hint: str) -> None:
    member = joined(0, instance_id="till-1")
    with pytest.raises(KafkaError, match=hint) as ended:
        member.take(member.heartbeat(), refused(code, "no"))
    assert ended.value.code == code


def test_a_static_member_leaves_for_a_while_and_another_for_good() -> None:
    assert joined(0).leaving().member_epoch == -1
    leaving = joined(0, instance_id="till-1").leaving()
    assert (leaving.member_epoch, leaving.instance_id) == (-2, "till-1")


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    member = joined(0)
    member.take(member.heartbeat(), accepted(2, {BILLS: [0]}))
    assert member.is_unsettled
    assert member.target is not None
    assert member.owned - member.target == partitions(ORDERS, 0)


def test_who_left_and_subscribes_again_joins() -> None:
    member = joined(0)
    member.leave()
    assert (member.standing, member.owned, member.is_due) == (Standing.OUTSIDE, frozenset(), False)
    member.subscribe(Subscription(("bills",)))
    assert (member.standing, member.heartbeat().member_epoch) == (Standing.JOINING, 0)
