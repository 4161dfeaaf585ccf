"""Bugs planted into the machine, each of which the simulation must notice.

A bug is a patch of a small piece. What notices may be the view from above or the machine's own
checks; that something does, within a bounded number of seeds, is what gives a clean run weight.
"""

from collections.abc import Callable

import pytest

from headrace.cluster.swim import beliefs, probing
from headrace.cluster.swim.claims import Claim, Standing
from headrace.cluster.swim.gossip import Gossip
from headrace.cluster.swim.health import LocalHealth
from headrace.cluster.swim.machine import Swim
from headrace.cluster.swim.messages import (
    NO_REPLY,
    Ack,
    Body,
    Message,
    News,
    Ping,
    PingRequest,
    RelayedAck,
)
from headrace.cluster.swim.state import Member, State, Suspicion, unheard
from headrace.cluster.swim.timers import Due
from tests.sim.test_swim import Crowd, CutPair, Halves, SlowNode, play
from tests.sim.test_swim_world import Violation, World

SEEDS_MAX = 60
Patch = pytest.MonkeyPatch


def keep_the_answer_of_a_target(patch: Patch) -> None:
    """Be asked to help, and tell nobody what came of it."""
    real = probing.handle_ack

    def handle(state: State, sender: Member, body: Ack, message: Message) -> None:
        if body.number not in state.relays:
            real(state, sender, body, message)

    patch.setattr(probing, "handle_ack", handle)


def answer_for_a_target(patch: Patch) -> None:
    """Be asked to help, and say at once that all is well."""

    def handle(state: State, sender: Member, body: PingRequest) -> None:
        target = state.members.get(body.target)
        if target is not None and target.claim.is_heard:
            claim = target.claim
            answer = RelayedAck(body.number, body.target, claim.boot_epoch, claim.incarnation)
            state.send(sender, answer)

    patch.setattr(probing, "handle_ping_request", handle)


def take_any_answer(patch: Patch) -> None:
    """Let an answer end whichever probe there is."""

    def handle(state: State, sender: Member, body: Ack, message: Message) -> None:
        for number in list(state.probes)[:1]:
            probing._end_probe(state, number)

    patch.setattr(probing, "handle_ack", handle)


def refute_in_the_same_incarnation(patch: Patch) -> None:
    patch.setattr(beliefs, "refute", lambda state, claim: state.gossip.put(state.own_claim()))


def let_a_join_reset_the_incarnation(patch: Patch) -> None:
    real = beliefs.learn

    def learn(state: State, claim: Claim) -> None:
        member = state.members.get(claim.node)
        if member is not None and claim.standing is Standing.ALIVE and claim != member.claim:
            beliefs._hold(state, member, claim)
        else:
            real(state, claim)

    patch.setattr(beliefs, "learn", learn)


def forget_the_boot_epoch(patch: Patch) -> None:
    """Compare claims of different lives by their incarnations."""
    patch.setattr(Claim, "rank", property(lambda self: (0, self.incarnation, self.standing)))


def give_up_who_is_gone(patch: Patch) -> None:
    """Ping nobody who is unreachable, so that a cluster that was cut in two stays so."""
    real = State.send

    def send(
        self: State, member: Member, body: Body, claims: tuple[Claim, ...] | None = None
    ) -> None:
        if body != Ping(NO_REPLY):
            real(self, member, body, claims)

    patch.setattr(State, "send", send)


def tell_a_suspect_nothing(patch: Patch) -> None:
    """Leave it to gossip, which ends, whether a member hears what is said of it."""
    real = State.send

    def send(
        self: State, member: Member, body: Body, claims: tuple[Claim, ...] | None = None
    ) -> None:
        held, member.claim = member.claim, unheard(member.peer)
        real(self, member, body, claims)
        member.claim = held

    patch.setattr(State, "send", send)


def suspect_for_ever(patch: Patch) -> None:
    def set_timer(state: State, member: Member, suspicion: Suspicion) -> None:
        state.timers.set(Due.SUSPICION, member.peer.node, state.now_ms + 10**9)

    patch.setattr(beliefs, "_set_suspicion_timer", set_timer)


def ignore_confirmations(patch: Patch) -> None:
    patch.setattr(beliefs, "_confirm", lambda state, member, accuser: None)


def never_forget(patch: Patch) -> None:
    patch.setattr(beliefs, "forget", lambda state, member: None)


def forget_which_life_it_was(patch: Patch) -> None:
    real = beliefs.forget

    def forget(state: State, member: Member) -> None:
        real(state, member)
        state.present_count += 1
        member.is_forgotten = False
        member.claim = unheard(member.peer)

    patch.setattr(beliefs, "forget", forget)


def send_all_claims(patch: Patch) -> None:
    """Mind no bound on the bytes that go along."""
    real = Gossip.take
    patch.setattr(Gossip, "take", lambda self, count_max, limit: real(self, 200, limit))


def probe_the_same_members(patch: Patch) -> None:
    def next_targets(state: State) -> list[Member]:
        present = [member for _, member in sorted(state.members.items())][:3]
        return [each for each in present if each.claim.is_present and not each.is_probed]

    patch.setattr(probing, "_next_targets", next_targets)


def tell_everybody(patch: Patch) -> None:
    """Pass on news to all members at once, at a cost that grows with the cluster."""
    real = probing.handle_ping

    def handle(state: State, sender: Member, body: Ping) -> None:
        real(state, sender, body)
        for member in state.members.values():
            state.send(member, News())

    patch.setattr(probing, "handle_ping", handle)


def blame_others_for_being_away(patch: Patch) -> None:
    patch.setattr(Swim, "_return_from_away", lambda self, away_ms: None)


def never_get_well(patch: Patch) -> None:
    """Count what speaks against oneself, and nothing that speaks for it."""
    real = LocalHealth.change
    patch.setattr(LocalHealth, "change", lambda self, by: real(self, max(by, 0)))


def condemn_at_once(patch: Patch) -> None:
    """Leave a suspect no time to refute it."""

    def set_timer(state: State, member: Member, suspicion: Suspicion) -> None:
        state.timers.set(Due.SUSPICION, member.peer.node, state.now_ms)

    patch.setattr(beliefs, "_set_suspicion_timer", set_timer)


BUGS: list[tuple[Callable[[Patch], None], type[World], int]] = [
    (keep_the_answer_of_a_target, CutPair, 0),
    (answer_for_a_target, World, 0),
    (take_any_answer, World, 3),
    (refute_in_the_same_incarnation, World, 2),
    (let_a_join_reset_the_incarnation, World, 0),
    (forget_the_boot_epoch, World, 9),
    (give_up_who_is_gone, Halves, 1),
    (tell_a_suspect_nothing, Halves, 0),
    (suspect_for_ever, World, 0),
    (ignore_confirmations, World, 0),
    (never_forget, World, 0),
    (forget_which_life_it_was, World, 0),
    (send_all_claims, World, 3),
    (probe_the_same_members, World, 9),
    (tell_everybody, Crowd, 0),
    (blame_others_for_being_away, SlowNode, 7),
    (never_get_well, World, 5),
    (condemn_at_once, SlowNode, 0),
]
"""Each with the scenario that notices it, and a seed at which that was so."""


@pytest.mark.parametrize(
    ("bug", "scenario", "seed"), BUGS, ids=[bug.__name__ for bug, _, _ in BUGS]
)
def test_bug_is_caught(
    bug: Callable[[Patch], None], scenario: type[World], seed: int, monkeypatch: Patch
) -> None:
    bug(monkeypatch)
    for each in (seed, *range(SEEDS_MAX)):
        try:
            play(each, scenario)
        except Violation as caught:
            print(f"{bug.__name__}: seed {each}: {str(caught).splitlines()[0]}")
            return
    pytest.fail(f"{SEEDS_MAX} seeds, and nobody noticed")
