"""JoinGroup of a classic group: new members, returning members and static ones.

KIP-394: a member without an id is given one and rejoins with it, so that a repeated request does
not create two members. KIP-345: a restarted static member takes over its previous place, at once
and without a rebalance if the group is stable; KIP-814: a leader that does so is told to skip the
assignment.
"""

from typing import Final

from headrace import config
from headrace.coordinator.machine import Outcome, Reply, told
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.deadlines import NEW_MEMBER_JOIN_TIMEOUT_MS, keep_session, session_key
from headrace.groups.classic.draft import Draft
from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.groups.classic.members import ClassicMember, Joiner, OfferedProtocol, read_protocols
from headrace.groups.classic.rebalance import (
    complete_join_if_all_came,
    forget_id,
    prepare_rebalance,
    rebalance,
)
from headrace.groups.classic.records import group_record, new_group_record
from headrace.groups.classic.requests import check_protocol_count, check_session_timeout
from headrace.groups.classic.responses import join_refused, joined, superseded
from headrace.groups.consumer.classic_members import join_consumer_group
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.kinds import rules_of
from headrace.groups.state import GroupId, GroupKind, GroupsState, MemberId, check_stays
from headrace.wire.messages.join_group_request import JoinGroupRequest
from headrace.wire.messages.join_group_response import JoinGroupResponse

__all__ = ["Joiner", "join"]

MEMBER_ID_BYTES_MAX: Final = 0x7FFF
"""What the record of a group, and many versions of its requests, can hold."""
REPLACEABLE: Final = frozenset({GroupKind.CONSUMER, GroupKind.STREAMS})
"""Kinds of groups that give way to a classic one when they are empty."""


def join(
    state: GroupsState,
    request: JoinGroupRequest,
    joiner: Joiner,
    now_ms: int,
    reply: Reply[JoinGroupResponse],
) -> Outcome:
    """Handle a JoinGroup; the reply is a JoinGroupResponse, once there is a generation.

    A group begins with the first request for it, even if that is refused.
    """
    check_session_timeout(state, request.session_timeout_ms)
    check_protocol_count(request)
    group_id = GroupId(request.group_id)
    check_stays(state, group_id)
    group = state.groups.get(group_id)
    if isinstance(group, ConsumerGroup) and not group.is_empty:
        return join_consumer_group(state, request, joiner, now_ms, reply)
    if isinstance(group, ClassicGroup):
        draft = Draft(state, group, now_ms)
    elif group is not None and not (group.is_empty and group.kind in REPLACEABLE):
        refused = join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return Outcome(replies=(told(reply, refused),))
    elif request.member_id:
        raise ClassicGroup(group_id).unknown(request.member_id)
    else:
        draft = _new_group(state, group_id, now_ms)
    try:
        _Join(draft, request, joiner, reply).run()
    except KafkaError as error:
        draft.answer(reply, error)
    return draft.outcome()


def _new_group(state: GroupsState, group_id: GroupId, now_ms: int) -> Draft:
    """Create a group, replacing an empty one of another kind if there is one."""
    former = state.groups.get(group_id)
    tombstones = () if former is None else rules_of(former).tombstones(former)
    group = ClassicGroup(group_id, state_since_ms=now_ms)
    state.groups[group_id] = group
    return Draft(state, group, now_ms, records=[*tombstones, new_group_record(group)])


class _Join:
    """One request to join one group."""

    def __init__(
        self,
        draft: Draft,
        request: JoinGroupRequest,
        joiner: Joiner,
        reply: Reply[JoinGroupResponse],
    ) -> None:
        self.draft = draft
        self.group = draft.group
        self.request = request
        self.joiner = joiner
        self.reply = reply
        self.member_id = MemberId(request.member_id)
        self.protocols: tuple[OfferedProtocol, ...] = read_protocols(request.protocols)

    def run(self) -> None:
        group = self.group
        if not self._has_room():
            forget_id(self.draft, self.member_id)
            self.draft.answer(self.reply, join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED))
            complete_join_if_all_came(self.draft)
            return
        if not group.supports(self.request.protocol_type, self.protocols):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"{[name for name, _ in self.protocols]} of {self.request.protocol_type!r} has "
                f"no protocol that all members of group {group.group_id!r} support",
            )
        if not self.member_id:
            self._join_new()
        elif self.member_id in group.pending_joins:
            self._check_is_dynamic()
            self._add(self.member_id)
        else:
            self._join_again(group.find_member(self.member_id, self.request.group_instance_id))

    def _has_room(self) -> bool:
        """Whether the group takes it (`group.max.size`); while it rebalances, those who came."""
        group = self.group
        size_max = self.draft.state.settings[config.GROUP_MAX_SIZE]
        if group.state is ClassicState.EMPTY:
            return True
        if group.state is ClassicState.PREPARING_REBALANCE:
            return self.member_id in group.join_replies or len(group.join_replies) < size_max
        return self.member_id in group.members or len(group.members) < size_max

    # New members

    def _join_new(self) -> None:
        instance_id = self.request.group_instance_id
        prefix = self.joiner.client_id if instance_id is None else instance_id
        member_id = MemberId(f"{prefix}-{self.draft.state.new_id()}")
        if len(member_id.encode()) > MEMBER_ID_BYTES_MAX:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,  # as Kafka, which cannot write it either
                f"a client id of {len(prefix)} characters is too long to make a member id of",
            )
        if instance_id is not None and instance_id in self.group.static_members:
            former = self.group.members[self.group.static_members[instance_id]]
            self._take_place(former, member_id)
        elif instance_id is None and self.joiner.fetches_id:
            self._give_id(member_id)
        else:
            self._add(member_id)

    def _give_id(self, member_id: MemberId) -> None:
        draft = self.draft
        self.group.pending_joins.add(member_id)
        due_ms = draft.now_ms + self.request.session_timeout_ms
        draft.state.deadlines.set(session_key(self.group, member_id), due_ms)
        draft.answer(self.reply, join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _add(self, member_id: MemberId) -> None:
        request, group, draft = self.request, self.group, self.draft
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            self.joiner.client_id,
            self.joiner.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=self.protocols,
            is_new=True,
        )
        group.has_grown = True
        group.add(member, request.protocol_type)
        group.join_replies[member_id] = self.reply
        due_ms = draft.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        draft.state.deadlines.set(session_key(group, member_id), due_ms)
        rebalance(draft)

    def _check_is_dynamic(self) -> None:
        """Static members are not given ids to come back with."""
        if self.request.group_instance_id is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{self.member_id!r} was given to a member without an instance id, but came with "
                f"{self.request.group_instance_id!r}",
            )

    # Members that come again

    def _join_again(self, member: ClassicMember) -> None:
        """Handle a known member's join; if nothing changes, reply the current generation."""
        group = self.group
        is_unchanged = member.protocols == self.protocols
        if group.state is ClassicState.COMPLETING_REBALANCE and is_unchanged:
            # The answer to its last request was lost.
            self.draft.answer(self.reply, joined(group, member.member_id))
        elif group.state is ClassicState.STABLE and is_unchanged and group.leader != self.member_id:
            self.draft.answer(self.reply, joined(group, member.member_id))
        else:
            # A leader joins again to have a rebalance: it saw that topics have changed.
            self._change(member)
            self._wait(member)
            rebalance(self.draft)

    def _change(self, member: ClassicMember) -> None:
        request = self.request
        self.group.change(
            member, self.protocols, request.rebalance_timeout_ms, request.session_timeout_ms
        )

    def _wait(self, member: ClassicMember) -> None:
        former = self.group.join_replies.get(member.member_id)
        if former is not None:
            self.draft.answer(former, superseded(self.group, member))
        self.group.join_replies[member.member_id] = self.reply

    # Static members that start again

    def _take_place(self, member: ClassicMember, member_id: MemberId) -> None:
        """Replace a static member by its new process; the previous one is fenced."""
        group, draft = self.group, self.draft
        former_id, former_leader = member.member_id, group.leader
        self._fence(former_id)
        group.replace(member, member_id)
        self._change(member)
        keep_session(draft.state, group, member, draft.now_ms)
        if group.state is ClassicState.STABLE and group.select_protocol() == group.protocol_name:
            self._keep_generation(member, former_leader)
            return
        group.join_replies[member_id] = self.reply
        if group.state is ClassicState.PREPARING_REBALANCE:
            complete_join_if_all_came(draft)
        else:
            # In a rebalance that completes, the leader may already assign to the former id.
            prepare_rebalance(draft)

    def _fence(self, former_id: MemberId) -> None:
        group, draft = self.group, self.draft
        draft.state.deadlines.drop(session_key(group, former_id))
        if (joining := group.join_replies.pop(former_id, None)) is not None:
            draft.answer(joining, join_refused(ErrorCode.FENCED_INSTANCE_ID, former_id))
        if (syncing := group.sync_replies.pop(former_id, None)) is not None:
            error = f"the place of {former_id!r} in group {group.group_id!r} was taken"
            draft.answer(syncing, KafkaError(ErrorCode.FENCED_INSTANCE_ID, error))

    def _keep_generation(self, member: ClassicMember, former_leader: MemberId | None) -> None:
        """Write the group with the new id; nobody else notices."""
        group, draft = self.group, self.draft
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        draft.records.append(group_record(group, assignments))
        is_leader = group.leader == member.member_id
        answer = joined(
            group, member.member_id, skip_assignment=is_leader and self.joiner.skips_assignment
        )
        if not self.joiner.skips_assignment:
            # An older client would assign if it knew that it leads, and has to believe otherwise.
            answer.members, answer.leader = [], former_leader or ""
        draft.answer(self.reply, answer)
