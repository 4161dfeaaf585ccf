"""How nodes find out who is there: probes, helpers, their own health."""

from headrace.cluster.swim.checks import check_all
from headrace.cluster.swim.claims import Standing
from headrace.cluster.swim.events import Outputs, Recovered, Suspected, Unreachable
from headrace.cluster.swim.machine import Swim
from headrace.cluster.swim.messages import (
    NO_REPLY,
    Ack,
    Nack,
    News,
    Ping,
    PingRequest,
    RelayedAck,
)
from headrace.cluster.swim.settings import SwimSettings
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

PERIOD_MS = SETTINGS.probe_interval_ms
TIMEOUT_MS = SETTINGS.probe_timeout_ms


def start_period(swim: Swim) -> Outputs:
    """Take a node to its next period."""
    due_ms = swim.state.timers.due_ms(Due.PERIOD, 0)
    assert due_ms is not None
    swim.state.timers.cancel(Due.SYNC, 0)
    return swim.tick(due_ms)


def one_probe(others: int) -> tuple[Swim, int, int, int]:
    """Return a node with one probe, its number, target and start."""
    swim = swim_of(1, others, SwimSettings(probes_per_period=1))
    meet(swim, *range(2, others + 2))
    ((target, ping),) = bodies(start_period(swim))
    assert isinstance(ping, Ping)
    return swim, ping.number, target, swim.state.now_ms


def ask_helpers(swim: Swim, started_ms: int) -> list[int]:
    """Let a probe's timeout pass and return who was asked."""
    asked = bodies(swim.tick(started_ms + TIMEOUT_MS))
    assert all(isinstance(body, PingRequest) for _, body in asked)
    return [node for node, _ in asked]


def test_probes_run_side_by_side() -> None:
    swim = swim_of(1, 10)
    meet(swim, *range(2, 12))
    sent = bodies(start_period(swim))
    assert len({node for node, _ in sent}) == len(sent) == SETTINGS.probes_per_period
    assert all(isinstance(body, Ping) for _, body in sent)


def test_everybody_is_probed_before_anybody_is_probed_again() -> None:
    group = Group(10)
    group.run(2000)
    group.sent.clear()
    group.run(PERIOD_MS * 3 * 20)
    probed = [
        to
        for sender, to, sent in group.sent
        if sender == 1 and isinstance(sent.body, Ping) and sent.body.number != NO_REPLY
    ]
    counts = [probed.count(node) for node in range(2, 11)]
    assert all(19 <= count <= 21 for count in counts)  # a turn may have begun, and one not ended


def test_an_answer_ends_a_probe_and_nothing_follows() -> None:
    swim, number, target, started_ms = one_probe(5)
    swim.step(message(target, Ack(number)), started_ms + 1)
    assert bodies(swim.tick(started_ms + PERIOD_MS - 1)) == []


def test_helpers_are_asked_when_a_member_does_not_answer() -> None:
    swim, _, target, started_ms = one_probe(6)
    helpers = ask_helpers(swim, started_ms)
    assert len(set(helpers)) == SETTINGS.indirect_probes
    assert target not in helpers


def test_helpers_are_members_that_are_well() -> None:
    swim = swim_of(1, 4, SwimSettings(probes_per_period=4))
    meet(swim, 2, 3)
    swim.step(message(2, News(), claim(3, Standing.SUSPECT, accuser=2)), 0)
    start_period(swim)
    asked = bodies(swim.tick(swim.state.now_ms + TIMEOUT_MS))
    assert {node for node, _ in asked} == {2}


def test_a_helper_passes_the_answer_on() -> None:
    helper = swim_of(2, 3)
    meet(helper, 1, 3)
    ((to, ping),) = bodies(helper.step(message(1, PingRequest(77, NodeId(3))), 0))
    assert to == 3
    assert isinstance(ping, Ping)
    outputs = helper.step(message(3, Ack(ping.number), boot_epoch=4, incarnation=6), 10)
    assert bodies(outputs) == [(1, RelayedAck(77, NodeId(3), 4, 6))]


def test_a_relayed_answer_ends_the_probe_and_counts_as_word_of_the_target() -> None:
    swim, number, target, started_ms = one_probe(5)
    helper = ask_helpers(swim, started_ms)[0]
    answer = RelayedAck(number, NodeId(target), 1, 3)
    swim.step(message(helper, answer), started_ms + TIMEOUT_MS + 5)
    assert swim.state.probes == {}
    assert swim.state.members[NodeId(target)].claim.incarnation == 3


def test_a_member_that_only_others_reach_is_not_suspected() -> None:
    group = Group(4)
    group.run(3000)
    group.cut |= {(1, 2), (2, 1)}
    group.run(20_000)
    assert group.seen(Suspected) == []
    assert any(isinstance(sent.body, RelayedAck) for _, _, sent in group.sent)


def test_a_helper_that_gets_no_answer_says_so_in_time() -> None:
    helper = swim_of(2, 3)
    meet(helper, 1, 3)
    helper.state.timers.cancel(Due.PERIOD, 0)
    helper.state.timers.cancel(Due.SYNC, 0)
    helper.state.timers.cancel(Due.GOSSIP, 0)
    helper.state.gossip.drop(NodeId(1))
    helper.state.gossip.drop(NodeId(3))
    helper.step(message(1, PingRequest(77, NodeId(3))), 0)
    assert helper.deadline_ms() < PERIOD_MS - TIMEOUT_MS
    assert bodies(helper.tick(helper.deadline_ms())) == [(1, Nack(77))]
    assert helper.state.relays == {}


def test_a_helper_runs_a_bounded_number_of_probes_for_others() -> None:
    helper = swim_of(2, 3)
    meet(helper, 1, 3)
    for number in range(1, SETTINGS.relays_max + 1):
        helper.step(message(1, PingRequest(number, NodeId(3))), 0)
    assert bodies(helper.step(message(1, PingRequest(999, NodeId(3))), 0)) == [(1, Nack(999))]
    assert len(helper.state.relays) == SETTINGS.relays_max
    assert helper.counters.relays_refused == 1


def test_a_request_that_comes_twice_is_one_probe() -> None:
    helper = swim_of(2, 3)
    meet(helper, 1, 3)
    helper.step(message(1, PingRequest(77, NodeId(3))), 0)
    assert bodies(helper.step(message(1, PingRequest(77, NodeId(3))), 0)) == []
    assert len(helper.state.relays) == 1


def test_nobody_is_probed_for_others_who_is_not_a_member() -> None:
    helper = swim_of(2, 3)
    for target in (2, 1, 99):  # itself, the one who asks, a stranger
        assert bodies(helper.step(message(1, PingRequest(7, NodeId(target))), 0)) == []
    assert helper.counters.strangers == 3


def test_answers_of_others_do_not_end_a_probe() -> None:
    swim, number, target, started_ms = one_probe(5)
    helper = ask_helpers(swim, started_ms)[0]
    outsider = next(node for node in range(2, 7) if node not in (target, helper))
    now_ms = swim.state.now_ms
    swim.state.probes[number].helpers = frozenset((NodeId(helper),))
    swim.step(message(helper, Ack(number)), now_ms)
    swim.step(message(target, Ack(number + 1)), now_ms)
    swim.step(message(outsider, RelayedAck(number, NodeId(target), 1, 0)), now_ms)
    swim.step(message(helper, RelayedAck(number, NodeId(outsider), 1, 0)), now_ms)
    swim.step(message(outsider, Nack(number)), now_ms)
    assert list(swim.state.probes) == [number]
    assert swim.state.probes[number].nacks == set()
    assert swim.counters.unexpected == 5


def test_a_probe_that_everybody_failed_makes_a_member_suspected() -> None:
    swim, _, target, started_ms = one_probe(5)
    ask_helpers(swim, started_ms)
    outputs = swim.tick(started_ms + PERIOD_MS)
    assert Suspected(NodeId(target), 1, NodeId(1)) in outputs.events


# Health


def test_helpers_that_say_nothing_speak_against_oneself() -> None:
    swim, number, _, started_ms = one_probe(5)
    helpers = ask_helpers(swim, started_ms)
    swim.step(message(helpers[0], Nack(number)), swim.state.now_ms)
    swim.tick(started_ms + PERIOD_MS)
    assert swim.state.health.score == 2


def test_helpers_that_got_no_answer_either_speak_for_oneself() -> None:
    swim, number, _, started_ms = one_probe(5)
    for helper in ask_helpers(swim, started_ms):
        swim.step(message(helper, Nack(number)), swim.state.now_ms)
    swim.tick(started_ms + PERIOD_MS)
    assert swim.state.health.score == 0


def test_a_failed_probe_without_helpers_speaks_against_oneself() -> None:
    swim, _, _, started_ms = one_probe(1)
    swim.tick(started_ms + TIMEOUT_MS)
    swim.tick(started_ms + PERIOD_MS)
    assert swim.state.health.score == 1


def test_an_answered_probe_speaks_for_oneself() -> None:
    swim, number, target, started_ms = one_probe(5)
    swim.state.health.change(3)
    swim.step(message(target, Ack(number)), started_ms + 1)
    assert swim.state.health.score == 2


def test_having_to_refute_a_suspicion_speaks_against_oneself() -> None:
    swim = swim_of(1, 2)
    swim.step(message(2, Ping(1), claim(1, Standing.SUSPECT, accuser=2)), 0)
    assert swim.state.health.score == 1


def test_health_has_an_end() -> None:
    swim = swim_of(1, 2)
    swim.state.health.change(100)
    assert swim.state.health.score == SETTINGS.health_score_max
    swim.state.health.change(-100)
    assert swim.state.health.score == 0


def test_a_node_that_is_not_well_takes_its_time() -> None:
    swim = swim_of(1, 5)
    meet(swim, *range(2, 7))
    swim.state.health.change(2)
    start_period(swim)
    now_ms = swim.state.now_ms
    assert swim.state.timers.due_ms(Due.PERIOD, 0) == now_ms + 3 * PERIOD_MS
    probes = [swim.state.timers.due_ms(Due.PROBE, number) for number in swim.state.probes]
    assert probes == [now_ms + 3 * TIMEOUT_MS] * 3


def test_a_node_that_was_stopped_accuses_nobody_for_that_time() -> None:
    swim, _, _, started_ms = one_probe(5)
    swim.step(message(3, News(), claim(2, Standing.SUSPECT, accuser=3)), started_ms)
    before_ms = swim.state.timers.due_ms(Due.SUSPICION, 2)
    outputs = swim.tick(started_ms + 60_000)
    assert outputs.events == []
    assert (swim.state.health.score, swim.counters.late) == (1, 1)
    after_ms = swim.state.timers.due_ms(Due.SUSPICION, 2)
    assert before_ms is not None
    assert after_ms == before_ms + 60_000 - TIMEOUT_MS
    check_all(swim.state)


def test_a_stopped_node_does_not_take_others_down_when_it_goes_on() -> None:
    group = Group(5)
    group.run(3000)
    group.dead.add(1)
    group.run(20_000)
    assert set(group.seen(Unreachable)) == {1}
    group.dead.discard(1)
    group.run(5000)
    assert set(group.seen(Unreachable)) == {1}
    assert sorted(group.seen(Recovered)) == [1, 1, 1, 1]


# Members that are gone


def test_one_member_that_is_gone_is_pinged_in_each_period() -> None:
    swim = swim_of(1, 5)
    meet(swim, *range(2, 7))
    gone = [claim(node, Standing.UNREACHABLE) for node in (3, 4, 5)]
    swim.step(message(2, News(), *gone), 0)
    pinged = [node for node, body in bodies(start_period(swim)) if body == Ping(NO_REPLY)]
    assert len(pinged) == 1
    assert pinged[0] in (3, 4, 5)


def test_a_cluster_that_was_cut_in_two_finds_together() -> None:
    group = Group(6, SwimSettings(forget_after_ms=20_000))
    group.run(3000)
    sides = ({1, 2, 3}, {4, 5, 6})
    group.cut = {(a, b) for side in sides for a in side for b in range(1, 7) if b not in side}
    group.run(60_000)  # long enough for both sides to forget each other
    assert all(seen.is_forgotten for seen in group.swims[1].view()[2:])
    group.cut = set()
    group.run(10_000)
    for node, swim in group.swims.items():
        others = [each for each in group.swims if each != node]
        assert {standing_of(swim, each) for each in others} == {Standing.ALIVE}


def test_load_per_member_does_not_grow_with_the_cluster() -> None:
    loads = []
    for size in (5, 40):
        group = Group(size)
        group.run(4000)
        group.sent.clear()
        group.run(10 * PERIOD_MS)
        loads.append(len(group.sent) / size / 10)
    assert all(0 <= load - 2 * SETTINGS.probes_per_period < 0.2 for load in loads)
