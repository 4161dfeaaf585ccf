"""The invariants of a member between any two inputs; every step ends with them.

Only what the step changed is checked, so the check costs no more than the step. `check_all` checks
everything, for simulations.
"""

from typing import NoReturn

from headrace.cluster.swim.claims import Rank, Standing
from headrace.cluster.swim.messages import CLAIM_BYTES, Message, News, Sync
from headrace.cluster.swim.state import Member, State
from headrace.cluster.swim.timers import Due


class BrokenInvariant(AssertionError):
    """A member whose state cannot be; the text says which."""


class Marks:
    """What must not go back."""

    __slots__ = ("incarnation",)

    def __init__(self) -> None:
        self.incarnation = 0


def check(state: State, before: Marks) -> None:
    """Raise BrokenInvariant if the state cannot be, or cannot follow what was before."""
    settings = state.settings
    if state.incarnation < before.incarnation:
        _break(state, f"incarnation {state.incarnation} after {before.incarnation}")
    before.incarnation = state.incarnation
    # A period may begin while late probes of the last one still wait for helpers.
    if len(state.probes) > 2 * settings.probes_per_period:
        _break(state, f"{len(state.probes)} probes at a time")
    if len(state.relays) > settings.relays_max:
        _break(state, f"{len(state.relays)} relays at a time")
    if not 0 <= state.health.score <= settings.health_score_max:
        _break(state, f"health score {state.health.score}")
    if len(state.gossip) > len(state.members) + 1:
        _break(state, f"{len(state.gossip)} claims to spread on {len(state.members)} members")
    if not 0 <= state.present_count <= len(state.members):
        _break(state, f"{state.present_count} of {len(state.members)} members present")
    for send in state.sends:
        _check_size(state, send.message)
    for node, rank in state.changed.items():
        _check_member(state, state.members[node], rank)


def check_all(state: State) -> None:
    """Raise BrokenInvariant if anything is wrong with any member."""
    for member in state.members.values():
        _check_member(state, member, (-1, -1, -1))
    present = sum(member.claim.is_present for member in state.members.values())
    if present != state.present_count:
        _break(state, f"{present} members are present, not {state.present_count}")
    probed = {probe.target for probe in state.probes.values()}
    if probed != {node for node, member in state.members.items() if member.is_probed}:
        _break(state, f"probes of {sorted(probed)}")
    if state.timers.heap_size > 2 * len(state.timers) + 66:
        _break(state, f"{state.timers.heap_size} entries for {len(state.timers)} timers")


def _check_size(state: State, message: Message) -> None:
    settings = state.settings
    is_sync = isinstance(message.body, Sync | News)
    room = settings.datagram_bytes_max if is_sync else settings.piggyback_bytes_max
    claims_bytes = len(message.claims) * CLAIM_BYTES
    if claims_bytes > room:
        _break(state, f"{claims_bytes} bytes of claims with {message.body}")


def _check_member(state: State, member: Member, before: Rank) -> None:
    claim, node = member.claim, member.peer.node
    if claim.node != node or claim.rank < before:
        _break(state, f"{claim} after {before}")
    is_suspect = claim.standing is Standing.SUSPECT
    is_timed = state.timers.due_ms(Due.SUSPICION, node) is not None
    if is_suspect != (member.suspicion is not None) or is_suspect != is_timed:
        _break(state, f"{claim} with suspicion {member.suspicion}, timer {is_timed}")
    is_ageing = state.timers.due_ms(Due.FORGET, node) is not None
    if claim.is_present and (is_ageing or member.is_forgotten):
        _break(state, f"{claim} to be forgotten")
    if not claim.is_present and is_ageing == member.is_forgotten:
        _break(state, f"{claim} never to be forgotten")
    spread = state.gossip.claim_of(node)
    if spread is not None and (spread.rank != claim.rank or not claim.is_heard):
        _break(state, f"{spread} spread, {claim} held")


def _break(state: State, what: str) -> NoReturn:
    raise BrokenInvariant(
        f"node {state.node} in boot epoch {state.boot_epoch} at {state.now_ms} ms: {what}"
    )
