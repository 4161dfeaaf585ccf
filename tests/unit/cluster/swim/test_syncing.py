"""News, and the comparison of all that two nodes know."""

from headrace.cluster.swim.claims import Claim, Standing
from headrace.cluster.swim.machine import Swim
from headrace.cluster.swim.messages import NODE_ID_MAX, News, Ping, Sync, encode_message
from headrace.cluster.swim.sealing import SEAL_BYTES_MAX
from headrace.cluster.swim.syncing import claims_max, sync_with
from headrace.cluster.swim.timers import Due
from headrace.ids import BrokerId as NodeId
from tests.unit.cluster.swim.members import (
    SETTINGS,
    Group,
    bodies,
    claim,
    meet,
    message,
    standing_of,
    swim_of,
)

ALL = Sync(NodeId(0), NodeId(NODE_ID_MAX))


def news_of(swim: Swim) -> list[tuple[int, tuple[Claim, ...]]]:
    """Take a node to its next round of gossip and return who is told what."""
    swim.state.timers.cancel(Due.PERIOD, 0)
    swim.state.timers.cancel(Due.SYNC, 0)
    due_ms = swim.state.timers.due_ms(Due.GOSSIP, 0)
    if due_ms is None:
        return []
    return [(send.to.node, send.message.claims) for send in swim.tick(due_ms).sends]


def test_news_is_told_to_a_few_members_at_a_time() -> None:
    swim = swim_of(1, 9)
    meet(swim, 2)
    told = news_of(swim)
    assert len({node for node, _ in told}) == SETTINGS.gossip_members
    assert {claims for _, claims in told} == {(claim(2),)}


def test_who_has_no_news_is_silent() -> None:
    swim = swim_of(1, 9)
    assert news_of(swim) == []
    meet(swim, 2)
    sends = 0
    while told := news_of(swim):
        sends += len(told)
    assert sends == SETTINGS.gossip_limit(10)
    assert swim.state.timers.due_ms(Due.GOSSIP, 0) is None


def test_a_node_that_is_not_well_tells_news_as_often() -> None:
    swim = swim_of(1, 9)
    swim.state.health.change(8)
    meet(swim, 2)
    assert swim.state.timers.due_ms(Due.GOSSIP, 0) == SETTINGS.gossip_interval_ms


def test_members_that_are_gone_are_told_no_news() -> None:
    swim = swim_of(1, 3)
    meet(swim, 2)
    gone = [claim(3, Standing.UNREACHABLE), claim(4, Standing.LEFT)]
    swim.step(message(2, News(), *gone), 0)
    while told := news_of(swim):
        assert {node for node, _ in told} == {2}


def test_the_first_contact_is_asked_for_all_it_knows() -> None:
    swim = swim_of(1, 3)
    swim.state.has_synced = False
    sent = bodies(swim.step(message(2, Ping(1)), 0))
    assert (2, ALL) in sent
    assert not any(isinstance(body, Sync) for _, body in bodies(swim.step(message(3, Ping(1)), 0)))


def test_a_comparison_begins_after_each_interval() -> None:
    swim = swim_of(1, 3)
    meet(swim, 2)
    swim.state.timers.cancel(Due.PERIOD, 0)
    swim.state.timers.cancel(Due.GOSSIP, 0)
    swim.state.gossip.drop(NodeId(2))
    outputs = swim.tick(swim.deadline_ms())
    assert bodies(outputs) == [(2, ALL)]
    assert outputs.sends[0].message.claims == (claim(2),)
    assert swim.deadline_ms() == swim.state.now_ms + SETTINGS.sync_interval_ms


def test_both_sides_learn() -> None:
    swim = swim_of(1, 4)
    meet(swim, 2, 3)
    swim.step(message(2, News(), claim(4, Standing.SUSPECT, accuser=2)), 0)
    outputs = swim.step(message(3, ALL, claim(5), claim(4)), 0)
    (send,) = outputs.sends
    assert send.message.body == News()
    known = {each.node: each.standing for each in send.message.claims}
    assert known == {2: Standing.ALIVE, 3: Standing.ALIVE, 4: Standing.SUSPECT}
    assert standing_of(swim, 5) is Standing.ALIVE
    assert swim.view()[-1].is_heard


def test_nothing_is_answered_to_who_knows_as_much() -> None:
    swim = swim_of(1, 2)
    meet(swim, 2, 3)
    assert swim.step(message(2, ALL, claim(2), claim(3)), 0).sends == []


def test_only_what_was_asked_for_is_answered() -> None:
    swim = swim_of(1, 9)
    meet(swim, *range(2, 11))
    (send,) = swim.step(message(2, Sync(NodeId(4), NodeId(6))), 0).sends
    assert [each.node for each in send.message.claims] == [4, 5, 6]


def test_a_large_cluster_is_compared_part_by_part_in_datagrams_that_fit() -> None:
    swim = swim_of(1, 100)
    meet(swim, *range(2, 102))
    told: list[Claim] = []
    for _ in range(3):
        sync_with(swim.state, swim.state.members[NodeId(2)])
        (send,) = swim.allow([each.peer for each in swim.state.members.values()], 0).sends
        size = SEAL_BYTES_MAX + len(encode_message(send.message))
        assert size <= SETTINGS.datagram_bytes_max
        told += send.message.claims
    assert [each.node for each in told] == list(range(2, 102))
    (send,) = swim.step(message(2, ALL), 0).sends
    assert len(send.message.claims) == claims_max(SETTINGS)


def test_a_node_that_missed_all_gossip_catches_up() -> None:
    group = Group(4)
    group.run(3000)
    state = group.swims[1].state
    missed = claim(3, incarnation=4)
    group.swims[3].state.incarnation = 4
    for node in (2, 4):
        swim = group.swims[node]
        swim.step(message(3, News(), incarnation=4), group.now_ms)
        swim.state.gossip.drop(NodeId(3))
    group.dead.add(3)
    group.run(SETTINGS.sync_interval_ms * 3)
    assert state.members[NodeId(3)].claim.incarnation == missed.incarnation
