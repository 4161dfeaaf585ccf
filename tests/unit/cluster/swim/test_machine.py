"""A node from start to leave, and what holds after every step."""

import pytest

from headrace.cluster.swim.checks import BrokenInvariant, check_all
from headrace.cluster.swim.claims import Standing
from headrace.cluster.swim.events import Joined, LeaveFinished, Left
from headrace.cluster.swim.messages import CLAIM_BYTES, News, Ping
from headrace.cluster.swim.settings import SwimSettings
from headrace.ids import BrokerId as NodeId
from tests.growth.steps import assert_grows_linearly, assert_stays_flat, steps
from tests.unit.cluster.swim.members import Group, claim, meet, message, peer, swim_of


def test_members_find_each_other() -> None:
    group = Group(8)
    group.run(3000)
    for node in range(1, 9):
        others = sorted(each for each in range(1, 9) if each != node)
        assert sorted(group.seen(Joined, by=node)) == others


def test_a_new_member_is_found_by_all() -> None:
    group = Group(4)
    group.run(3000)
    group.peers.append(peer(5))
    for node, swim in group.swims.items():
        group.take(node, swim.allow(group.peers, group.now_ms))
    group._boot_epochs[5] = 0
    group.start(5)
    group.run(3000)
    assert group.seen(Joined).count(5) == 4


def test_messages_go_to_the_address_of_the_image() -> None:
    swim = swim_of(1, 2)
    (send,) = swim.step(message(2, Ping(1)), 0).sends
    assert send.to == peer(2)
    moved = peer(2).__class__(NodeId(2), "elsewhere", 1)
    swim.allow([moved, peer(3)], 0)
    (send,) = swim.step(message(2, Ping(1)), 0).sends
    assert send.to == moved


def test_claims_that_go_along_stay_within_their_bytes() -> None:
    settings = SwimSettings(piggyback_bytes_max=3 * CLAIM_BYTES + 1)
    swim = swim_of(1, 30, settings)
    meet(swim, *range(2, 32))
    for _ in range(20):
        (send,) = swim.step(message(2, Ping(1)), 0).sends
        assert len(send.message.claims) == 3


def test_without_room_for_claims_probes_still_work() -> None:
    group = Group(3, SwimSettings(piggyback_bytes_max=0))
    group.run(5000)
    assert len(group.seen(Joined)) == 6
    assert not any(sent.claims for _, _, sent in group.sent if isinstance(sent.body, Ping))


def test_leaving_ends_when_enough_were_told() -> None:
    group = Group(6)
    group.run(3000)
    group.take(6, group.swims[6].leave(group.now_ms))
    group.run(3000)
    assert group.seen(LeaveFinished) == [6]
    assert sorted(set(group.seen(Left))) == [6]
    assert len(group.seen(Left)) == 5


def test_leaving_alone_ends_at_once() -> None:
    swim = swim_of(1, 0)
    swim.leave(10)
    assert swim.tick(10).events == [LeaveFinished(NodeId(1), 1)]


def test_leaving_when_nobody_answers_ends_too() -> None:
    group = Group(3)
    group.run(3000)
    group.dead |= {2, 3}
    group.take(1, group.swims[1].leave(group.now_ms))
    group.run(10_000)
    assert group.seen(LeaveFinished) == [1]


def test_leaving_twice_is_leaving_once() -> None:
    group = Group(2)
    group.run(2000)
    for _ in range(2):
        group.take(1, group.swims[1].leave(group.now_ms))
    group.run(3000)
    group.take(1, group.swims[1].leave(group.now_ms))
    assert group.seen(LeaveFinished) == [1]


def test_time_does_not_go_back() -> None:
    swim = swim_of(1, 2)
    swim.tick(500)
    with pytest.raises(AssertionError, match="time went back"):
        swim.tick(499)


def test_a_node_that_is_alone_has_a_deadline() -> None:
    swim = swim_of(1, 0)
    for _ in range(5):
        assert swim.tick(swim.deadline_ms()).sends == []


def test_a_claim_that_goes_back_is_noticed() -> None:
    swim = swim_of(1, 2)
    meet(swim, 2)
    member = swim.state.members[NodeId(2)]
    swim.state.changed[NodeId(2)] = (9, 9, 9)
    with pytest.raises(BrokenInvariant, match="after \\(9, 9, 9\\)"):
        swim.tick(1)
    assert member.claim == claim(2)


def test_a_suspicion_without_an_end_is_noticed() -> None:
    swim = swim_of(1, 2)
    swim.step(message(2, News(), claim(3, Standing.SUSPECT, accuser=2)), 0)
    check_all(swim.state)
    swim.state.members[NodeId(3)].suspicion = None
    with pytest.raises(BrokenInvariant, match="with suspicion None"):
        check_all(swim.state)


def test_a_message_costs_the_same_in_a_cluster_of_any_size() -> None:
    def cost(size: int) -> int:
        swim = swim_of(1, size)
        meet(swim, *range(2, size + 2))
        accusations = [claim(node, Standing.SUSPECT, accuser=2) for node in range(3, 19)]
        ping = message(2, Ping(1), *accusations)
        return steps(lambda: swim.step(ping, 0))

    assert_stays_flat(cost, 40)


def test_a_period_costs_in_proportion_to_the_cluster() -> None:
    def cost(size: int) -> int:
        swim = swim_of(1, size)
        meet(swim, *range(2, size + 2))
        return steps(lambda: swim.tick(500))

    assert_grows_linearly(cost, 200)
