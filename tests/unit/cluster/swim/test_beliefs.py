"""What nodes hold true of each other: claims, suspicion, refutation, forgetting."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headrace.cluster.swim.checks import check_all
from headrace.cluster.swim.claims import INCARNATION_MAX, Claim, Standing
from headrace.cluster.swim.events import (
    Event,
    Forgotten,
    Joined,
    Left,
    Recovered,
    Superseded,
    Suspected,
    Unreachable,
)
from headrace.cluster.swim.messages import Ack, News, Ping, Sync
from headrace.cluster.swim.timers import Due
from headrace.ids import BrokerId as NodeId
from tests.unit.cluster.swim.members import (
    SETTINGS,
    Group,
    claim,
    meet,
    message,
    peer,
    standing_of,
    swim_of,
)

claims_on_two = some.builds(
    claim,
    some.just(2),
    some.sampled_from(Standing),
    boot_epoch=some.integers(1, 3),
    incarnation=some.integers(0, 3),
    accuser=some.sampled_from((2, 3)),
)


def suspicion_ends_ms(swim_node: int, *accusers: int, size: int) -> int:
    """Return how long node 2 is suspected with these accusers in a cluster of a size."""
    swim = swim_of(swim_node, size - 1)
    meet(swim, *range(2, size + 1))
    for accuser in accusers:
        accusation = claim(2, Standing.SUSPECT, accuser=accuser)
        swim.step(message(3, News(), accusation), 0)
    due_ms = swim.state.timers.due_ms(Due.SUSPICION, 2)
    assert due_ms is not None
    return due_ms


@given(some.lists(claims_on_two), some.randoms(use_true_random=False))
def test_the_same_claims_in_any_order_and_number_come_to_the_same(
    claims: list[Claim], random: Random
) -> None:
    views = []
    for said in (claims, random.sample(claims * 2, 2 * len(claims))):
        swim = swim_of(1, 2)
        for each in said:
            swim.step(message(3, News(), each), 0)
        check_all(swim.state)
        views.append(swim.view())
    assert views[0] == views[1]


def test_a_message_is_a_sign_of_life() -> None:
    swim = swim_of(1, 2)
    assert not swim.view()[0].is_heard
    outputs = swim.step(message(2, Ping(5), boot_epoch=9), 0)
    assert outputs.events == [Joined(NodeId(2), 9)]
    assert swim.view()[0].is_heard


def test_news_is_passed_on_and_old_news_is_not() -> None:
    swim = swim_of(1, 3)
    swim.step(message(2, News(), claim(3, Standing.SUSPECT, accuser=2)), 0)
    first = swim.step(message(4, Ping(1)), 0).sends[-1].message.claims
    assert claim(3, Standing.SUSPECT, accuser=2) in first
    assert swim.step(message(2, News(), claim(3)), 0).events == []
    assert standing_of(swim, 3) is Standing.SUSPECT


def test_who_accuses_a_member_and_is_behind_is_corrected_at_once() -> None:
    swim = swim_of(1, 2)
    meet(swim, 2, 3)
    held = claim(2, Standing.LEFT, incarnation=4)
    swim.step(message(3, News(), held), 0)
    while swim.state.gossip.take(9, 1):
        pass
    accusation = claim(2, Standing.SUSPECT, incarnation=1, accuser=3)
    for body, answers in ((Ping(1), [Ack(1)]), (News(), [News()]), (Ack(9), [News()])):
        sends = swim.step(message(3, body, accusation), 0).sends
        assert [send.message.body for send in sends] == answers
        assert sends[0].message.claims == (held,)
    assert swim.step(message(3, News(), claim(2, incarnation=1)), 0).sends == []
    (send,) = swim.step(message(3, Sync(NodeId(2), NodeId(2)), accusation), 0).sends
    assert send.message.claims == (held,)


@pytest.mark.parametrize("standing", [Standing.SUSPECT, Standing.UNREACHABLE, Standing.LEFT])
def test_an_accused_node_refutes_in_its_very_next_message(standing: Standing) -> None:
    swim = swim_of(2, 2)
    outputs = swim.step(message(1, Ping(5), claim(2, standing, accuser=1)), 0)
    (send,) = outputs.sends
    assert send.message.body == Ack(5)
    assert (send.message.incarnation, swim.state.incarnation) == (1, 1)
    assert claim(2, incarnation=1) in send.message.claims


def test_an_accusation_that_was_refuted_is_refuted_again_without_another_incarnation() -> None:
    swim = swim_of(2, 2)
    accusation = claim(2, Standing.SUSPECT, accuser=1)
    for _ in range(3):
        swim.step(message(1, Ping(5), accusation), 0)
    assert swim.state.incarnation == 1
    assert swim.counters.refutations == 1


def test_an_incarnation_that_cannot_grow_stays() -> None:
    swim = swim_of(2, 2)
    accusation = claim(2, Standing.SUSPECT, incarnation=INCARNATION_MAX, accuser=1)
    for _ in range(2):
        swim.step(message(1, Ping(5), accusation), 0)
    assert swim.state.incarnation == INCARNATION_MAX


def test_a_refutation_recovers_a_member_from_everything() -> None:
    swim = swim_of(1, 2)
    meet(swim, 2, 3)
    for incarnation, standing in enumerate(list(Standing)[1:]):
        accusation = claim(2, standing, incarnation=incarnation, accuser=3)
        swim.step(message(3, News(), accusation), 0)
        assert standing_of(swim, 2) is standing
        outputs = swim.step(message(2, News(), incarnation=incarnation + 1), 0)
        assert outputs.events == [Recovered(NodeId(2), 1)]
        check_all(swim.state)


def test_a_sign_of_life_in_the_suspected_incarnation_is_no_refutation() -> None:
    swim = swim_of(1, 2)
    meet(swim, 2, 3)
    swim.step(message(3, News(), claim(2, Standing.SUSPECT, accuser=3)), 0)
    assert swim.step(message(2, News()), 0).events == []
    assert standing_of(swim, 2) is Standing.SUSPECT


def test_a_suspected_member_is_told_before_anything_else() -> None:
    swim = swim_of(1, 40)
    meet(swim, *range(2, 42))
    accusation = claim(2, Standing.SUSPECT, accuser=3)
    swim.step(message(3, News(), accusation), 0)
    for _ in range(40):  # long after the accusation was sent as often as any claim is
        (send,) = swim.step(message(2, Ping(1)), 0).sends
        assert send.message.claims[0] == accusation


def test_a_suspicion_that_nobody_confirms_lasts_longest() -> None:
    assert suspicion_ends_ms(1, 3, size=8) == 12_000


def test_confirmations_of_others_shorten_a_suspicion() -> None:
    ends_ms = [suspicion_ends_ms(1, *range(3, 3 + count), size=8) for count in (1, 2, 3, 4)]
    assert ends_ms == [12_000, 5691, 2000, 2000]


def test_the_same_accuser_confirms_nothing() -> None:
    assert suspicion_ends_ms(1, 3, 3, 3, size=8) == 12_000


def test_a_failed_probe_of_ones_own_is_a_confirmation() -> None:
    assert suspicion_ends_ms(1, 3, 1, size=8) == 5691


def test_where_nobody_else_could_confirm_a_suspicion_is_short() -> None:
    swim = swim_of(1, 1)
    meet(swim, 2)
    swim.step(message(2, News()), 0)
    group = Group(2)
    group.run(3000)
    group.dead.add(2)
    group.run(SETTINGS.probe_interval_ms * 3 + 2000)
    assert group.seen(Unreachable) == [2]


def test_a_confirmation_is_passed_on_with_the_name_of_its_accuser() -> None:
    swim = swim_of(1, 7)
    meet(swim, *range(2, 9))
    for accuser in (3, 4, 5, 6):
        accusation = claim(2, Standing.SUSPECT, accuser=accuser)
        outputs = swim.step(message(accuser, Ping(1), accusation), 0)
        spread = [each for each in outputs.sends[0].message.claims if each.node == 2]
        assert [each.accuser for each in spread] == [min(accuser, 5)]


def test_a_suspicion_that_is_not_refuted_makes_a_member_unreachable() -> None:
    group = Group(5)
    group.run(3000)
    group.dead.add(5)
    group.run(10_000)
    for node in range(1, 5):
        kinds = [type(event) for by, event in group.events if by == node and event.node == 5]
        assert kinds == [Joined, Suspected, Unreachable]


def test_a_member_nobody_ever_heard_of_is_unreachable_in_the_end_and_not_spoken_of() -> None:
    group = Group(3)
    group.dead.add(3)
    group.run(6000)
    assert sorted(group.seen(Unreachable)) == [3, 3]
    assert not any(each.node == 3 for _, _, sent in group.sent for each in sent.claims)
    assert [group.swims[node].state.health.score for node in (1, 2)] == [0, 0]


def test_a_restarted_member_is_above_all_that_was_said_of_its_former_life() -> None:
    group = Group(3)
    group.run(3000)
    group.dead.add(3)
    group.run(10_000)
    group.start(3)
    group.run(2000)
    assert (group.swims[3].state.boot_epoch, group.swims[3].state.incarnation) == (2, 0)
    for node in (1, 2):
        last = [event for by, event in group.events if by == node and event.node == 3][-1]
        assert last == Joined(NodeId(3), 2)


def test_messages_of_a_former_life_are_ignored_and_counted() -> None:
    swim = swim_of(1, 2)
    swim.step(message(2, News(), boot_epoch=5), 0)
    outputs = swim.step(message(2, Ping(1), claim(3, Standing.SUSPECT), boot_epoch=4), 0)
    assert (outputs.sends, outputs.events, swim.counters.stale) == ([], [], 1)


def test_a_registration_with_a_newer_boot_epoch_ends_the_former_life() -> None:
    swim = swim_of(1, 2)
    meet(swim, 2, 3)
    swim.step(message(3, News(), claim(2, Standing.UNREACHABLE)), 0)
    swim.allow([peer(2, boot_epoch=7), peer(3)], 0)
    assert standing_of(swim, 2) is Standing.ALIVE
    assert not swim.view()[0].is_heard
    swim.step(message(3, News(), claim(2, Standing.LEFT, boot_epoch=6)), 0)
    assert swim.step(message(2, Ping(1), boot_epoch=6), 0).sends == []
    assert swim.step(message(2, Ping(1), boot_epoch=7), 0).events == [Joined(NodeId(2), 7)]
    check_all(swim.state)


def test_another_process_with_this_id_is_reported_once() -> None:
    swim = swim_of(1, 2, boot_epoch=3)
    events: list[Event] = []
    for _ in range(2):
        events += swim.step(message(2, News(), claim(1, boot_epoch=4)), 0).events
    assert events == [Joined(NodeId(2), 1), Superseded(NodeId(1), 4)]


def test_what_is_said_of_a_former_life_makes_this_one_known() -> None:
    swim = swim_of(1, 2, boot_epoch=3)
    (send,) = swim.step(message(2, Ping(1), claim(1, Standing.UNREACHABLE)), 0).sends
    assert claim(1, boot_epoch=3) in send.message.claims
    assert swim.state.incarnation == 0


def test_strangers_are_ignored_and_counted() -> None:
    swim = swim_of(1, 2)
    outputs = swim.step(message(9, Ping(1)), 0)
    assert (outputs.sends, outputs.events, swim.counters.strangers) == ([], [], 1)
    swim.step(message(2, News(), claim(9), claim(8)), 0)
    assert swim.counters.strangers == 3
    assert [seen.node for seen in swim.view()] == [2, 3]


def test_a_member_that_the_image_drops_leaves_nothing_behind() -> None:
    swim = swim_of(1, 3)
    meet(swim, 2, 3, 4)
    swim.step(message(3, News(), claim(2, Standing.SUSPECT, accuser=3)), 0)
    swim.tick(swim.state.settings.probe_interval_ms)
    swim.allow([peer(1), peer(3), peer(4)], swim.state.now_ms)
    state = swim.state
    assert 2 not in state.members
    assert 2 not in state.rotation
    assert 2 not in {probe.target for probe in state.probes.values()}
    assert state.gossip.claim_of(NodeId(2)) is None
    assert state.timers.due_ms(Due.SUSPICION, 2) is None
    check_all(state)
    swim.tick(state.now_ms + 60_000)


def test_a_member_that_is_gone_is_forgotten_at_last() -> None:
    group = Group(3)
    group.run(3000)
    group.dead.add(3)
    group.run(10_000)
    group.sent.clear()
    group.run(SETTINGS.forget_after_ms)
    assert sorted(group.seen(Forgotten)) == [3, 3]
    group.sent.clear()
    group.run(60_000)
    told = [sent.claims for _, to, sent in group.sent if to != 3]
    assert not any(each.node == 3 for claims in told for each in claims)


def test_nobody_brings_back_what_was_forgotten_but_the_member_itself() -> None:
    swim = swim_of(1, 2)
    meet(swim, 2, 3)
    swim.step(message(3, News(), claim(2, Standing.UNREACHABLE)), 0)
    for _ in range(3):
        swim.tick(swim.state.now_ms + SETTINGS.forget_after_ms)
    now_ms = swim.state.now_ms
    assert swim.view()[0].is_forgotten
    meet(swim, 3, now_ms=now_ms)
    for standing in (Standing.ALIVE, Standing.SUSPECT, Standing.UNREACHABLE):
        assert swim.step(message(3, News(), claim(2, standing)), now_ms).events == []
    assert swim.view()[0].is_forgotten
    (send,) = swim.step(message(2, Ping(1)), now_ms).sends
    assert send.message.claims[0] == claim(2, Standing.UNREACHABLE)
    outputs = swim.step(message(2, Ping(1), incarnation=1), now_ms)
    assert outputs.events == [Recovered(NodeId(2), 1)]
    check_all(swim.state)


def test_a_member_that_stays_refutes_that_it_left() -> None:
    swim = swim_of(2, 1)
    swim.step(message(1, News(), claim(2, Standing.LEFT)), 0)
    assert swim.state.incarnation == 1


def test_a_member_that_leaves_refutes_nothing() -> None:
    swim = swim_of(2, 1)
    meet(swim, 1)
    swim.leave(0)
    outputs = swim.step(message(1, Ping(1), claim(2, Standing.SUSPECT, accuser=1)), 0)
    assert swim.state.incarnation == 0
    assert outputs.sends[-1].message.is_leaving


def test_a_member_that_left_is_not_probed_nor_missed() -> None:
    group = Group(4)
    group.run(3000)
    group.take(4, group.swims[4].leave(group.now_ms))
    group.run(3000)
    group.dead.add(4)
    assert sorted(group.seen(Left)) == [4, 4, 4]
    group.run(20_000)
    assert group.seen(Suspected) == []
    assert group.seen(Unreachable) == []
