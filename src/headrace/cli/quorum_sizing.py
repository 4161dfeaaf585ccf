"""Who gets a vote on the metadata log, and who loses it. Pure.

choice = choose(members, wanted=5)
choice.add, choice.remove
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct


class Member(Struct, frozen=True):
    """A node, as far as its vote is concerned."""

    node_id: int
    is_voter: bool
    is_up: bool
    is_leader: bool = False
    host: str = ""
    rack: str | None = None


class Choice(Struct, frozen=True):
    """The nodes that change, in order: votes are given before any is taken."""

    add: tuple[int, ...] = ()
    remove: tuple[int, ...] = ()


def explain_size(wanted: int, members: Sequence[Member]) -> str:
    """Return why there cannot be so many voters; nothing if there can."""
    if wanted % 2 == 0:
        return (
            f"{wanted} voters survive the loss of no more nodes than {wanted - 1}, and need one "
            "more to agree: choose an odd number"
        )
    up = [each for each in members if each.is_up]
    if len(up) < wanted:
        return f"{wanted} voters need as many nodes that are up, but only {len(up)} are"
    return ""


def choose(members: Sequence[Member], wanted: int) -> Choice:
    """Return which nodes vote, so that there are `wanted` voters and all are up.

    Dead voters go first, then those that share a machine or a rack with another one; the leader
    goes last. New voters are on machines and racks that have none, if there are any.
    """
    staying = [each for each in members if each.is_voter]
    removed: list[Member] = []
    while len(staying) > wanted or any(not each.is_up for each in staying):
        dead = [each for each in staying if not each.is_up]
        if not dead and len(staying) <= wanted:
            break
        goes = _worst(dead or staying, staying)
        staying.remove(goes)
        removed.append(goes)
    added: list[Member] = []
    free = [each for each in members if not each.is_voter and each.is_up]
    while len(staying) < wanted and free:
        comes = _best(free, staying)
        free.remove(comes)
        staying.append(comes)
        added.append(comes)
    return Choice(tuple(each.node_id for each in added), tuple(each.node_id for each in removed))


def choose_successor(members: Sequence[Member], leaving: int) -> int | None:
    """Return the node that is to vote in place of another, None if there is none."""
    free = [each for each in members if not each.is_voter and each.is_up]
    voters = [each for each in members if each.is_voter and each.node_id != leaving]
    return _best(free, voters).node_id if free else None


def _worst(candidates: Iterable[Member], voters: Iterable[Member]) -> Member:
    hosts, racks = _places(voters)
    return max(
        candidates,
        key=lambda each: (not each.is_leader, hosts[each.host], racks[each.rack], each.node_id),
    )


def _best(candidates: Iterable[Member], voters: Iterable[Member]) -> Member:
    hosts, racks = _places(voters)
    return min(candidates, key=lambda each: (hosts[each.host], racks[each.rack], each.node_id))


def _places(voters: Iterable[Member]) -> tuple[Counter[str], Counter[str | None]]:
    every = tuple(voters)
    return Counter(each.host for each in every), Counter(each.rack for each in every)
