"""The members of the quorum, and changes of the membership.

A change is an entry that holds the whole new membership. It takes effect when the entry is
*appended*, on the leader and on every follower, and is undone where the entry is truncated. One
member changes at a time, so that any majority before overlaps any majority after: a change is
refused while the previous one is not committed, and until the leader has committed an entry of its
own term (otherwise two leaders could each count on a majority that the other does not know).

A removed node may never learn of it, as no member sends it the entry. It then requests pre-votes in
vain, which is harmless.
"""

import msgspec

from headrace.ids import BrokerId as NodeId
from headrace.raft.errors import InvalidMessage, MembershipRefused


class Membership(msgspec.Struct, array_like=True, frozen=True):
    """Voters decide; learners only receive. Both sorted, without overlap."""

    voters: tuple[NodeId, ...] = ()
    learners: tuple[NodeId, ...] = ()

    @property
    def members(self) -> tuple[NodeId, ...]:
        return self.voters + self.learners

    @property
    def quorum(self) -> int:
        """How many voters are a majority."""
        return len(self.voters) // 2 + 1

    def is_sole_voter(self, node: NodeId) -> bool:
        return self.voters == (node,)

    def __str__(self) -> str:
        voters = " ".join(map(str, self.voters))
        learners = " ".join(map(str, self.learners))
        return f"voters({voters})" + (f" learners({learners})" if learners else "")


def with_learner(membership: Membership, node: NodeId, members_max: int) -> Membership:
    if node in membership.members:
        raise MembershipRefused(f"node {node} is a member already")
    if len(membership.members) >= members_max:
        raise MembershipRefused(
            f"the quorum has {len(membership.members)} members, headrace.raft.members.max is "
            f"{members_max}"
        )
    learners = tuple(sorted((*membership.learners, node)))
    return Membership(membership.voters, learners)


def with_voter(membership: Membership, node: NodeId) -> Membership:
    """Make a learner a voter."""
    if node not in membership.learners:
        what = "a voter already" if node in membership.voters else "no member: add it as a learner"
        raise MembershipRefused(f"node {node} is {what}")
    learners = tuple(each for each in membership.learners if each != node)
    return Membership(tuple(sorted((*membership.voters, node))), learners)


def with_demoted(membership: Membership, node: NodeId) -> Membership:
    """Make a voter a learner."""
    if node not in membership.voters:
        raise MembershipRefused(f"node {node} is no voter")
    rest = without(membership, node)
    return Membership(rest.voters, tuple(sorted((*rest.learners, node))))


def without(membership: Membership, node: NodeId) -> Membership:
    if node not in membership.members:
        raise MembershipRefused(f"node {node} is no member")
    voters = tuple(each for each in membership.voters if each != node)
    if not voters:
        raise MembershipRefused(f"node {node} is the only voter: a quorum cannot be empty")
    return Membership(voters, tuple(each for each in membership.learners if each != node))


def encode_membership(membership: Membership) -> bytes:
    return msgspec.msgpack.encode(membership)


def decode_membership(data: bytes) -> Membership:
    """Read what `encode_membership` wrote; InvalidMessage if it is not a membership."""
    try:
        membership = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise InvalidMessage(f"an entry with a membership that cannot be read: {error}") from None
    check_membership(membership)
    return membership


def check_membership(membership: Membership) -> None:
    """Raise InvalidMessage if there is no voter, or a member is listed twice."""
    if len(set(membership.members)) != len(membership.members) or not membership.voters:
        raise InvalidMessage(f"a membership that cannot be: {membership}")


_decoder = msgspec.msgpack.Decoder(Membership)
