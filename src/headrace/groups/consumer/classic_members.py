"""Members of consumer groups that use the classic protocol: JoinGroup, SyncGroup and Heartbeat.

KIP-848, for a rolling upgrade from one protocol to the other. No member leads: the target is
computed here, as for the other members. A heartbeat gets REBALANCE_IN_PROGRESS when the member has
something to do. It then joins, which reports its owned partitions and is its step towards the
target, and gets its assignment by SyncGroup. Its generation is its member epoch. A cooperative
member, which revokes partitions one by one, joins once more after that, as in a classic group.

They leave by `consumer.leave`, as all members do.
"""

from dataclasses import replace

from headrace.coordinator.machine import OnError, Outcome, Reply, Told, told
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.embedded_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    embedded_version,
    partitions_by_id,
    read_subscription,
    write_assignment,
)
from headrace.groups.classic.members import Joiner, OfferedProtocol, read_protocols
from headrace.groups.classic.rebalance import prepare_rebalance
from headrace.groups.classic.responses import join_refused
from headrace.groups.consumer.deadlines import await_join, await_sync, end_sync_wait, keep_session
from headrace.groups.consumer.draft import Draft
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import ConsumerMember, MemberState
from headrace.groups.consumer.membership import advance, subscribe, take_place
from headrace.groups.consumer.requests import (
    check_room,
    find_consumer_group,
    find_member,
    find_static_member,
)
from headrace.groups.migration import (
    allows_mixed_groups,
    can_downgrade,
    classic_metadata,
    downgrade,
)
from headrace.groups.state import GroupsState, MemberId
from headrace.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.messages.join_group_request import JoinGroupRequest
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.sync_group_request import SyncGroupRequest
from headrace.wire.messages.sync_group_response import SyncGroupResponse

# Joining


def join_consumer_group(
    state: GroupsState,
    request: JoinGroupRequest,
    joiner: Joiner,
    now_ms: int,
    reply: Reply[JoinGroupResponse],
) -> Outcome:
    """Handle a classic member's JoinGroup to a consumer group; the reply comes at once."""
    try:
        return _join(state, request, joiner, now_ms, reply)
    except KafkaError as error:
        return Outcome(replies=(told(reply, join_refused(error.code)),))


def _join(
    state: GroupsState,
    request: JoinGroupRequest,
    joiner: Joiner,
    now_ms: int,
    reply: Reply[JoinGroupResponse],
) -> Outcome:
    group = find_consumer_group(state, request.group_id)
    protocols, instance_id = read_protocols(request.protocols), request.group_instance_id
    member_id = MemberId(request.member_id or state.new_id())
    if not allows_mixed_groups(state.settings):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.group_id!r} is a consumer group, and group.consumer.migration.policy "
            "does not allow classic members in it",
        )
    check_room(group, member_id, state.settings)
    _check_protocols(group, request.protocol_type, protocols)
    if not request.member_id and instance_id is None and joiner.fetches_id:
        answer = join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return Outcome(replies=(told(reply, answer),))
    subscription = _subscription(group, protocols)

    draft = Draft(group)
    member = _admit(state, draft, request, member_id)
    before = draft.group.members.get(member_id)
    updated = replace(
        _described(member, subscription, request),
        client_id=joiner.client_id,
        client_host=joiner.client_host,
        classic_metadata=classic_metadata(protocols, request.session_timeout_ms),
    )
    is_new = subscribe(state, draft, before, updated, now_ms)
    rows = ((each.topic, each.partitions) for each in subscription.owned_partitions)
    owned = partitions_by_id(rows, state.image)
    after = advance(state, draft, member_id, owned, now_ms, is_subscription_new=is_new)
    answer = JoinGroupResponse(
        generation_id=after.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocols[0].name,
        member_id=member_id,
    )
    if instance_id in group.static_members and can_downgrade(draft.group, state.settings):
        successor = draft.group.copy()
        successor.put_member(after)
        return _turn_classic(state, group, successor, now_ms, told(reply, answer))
    keep_session(state, group.group_id, after, now_ms)
    await_sync(state, group.group_id, after, now_ms)
    return Outcome(tuple(draft.records), (told(reply, answer), *draft.replies), notes=draft.notes)


def _check_protocols(
    group: ConsumerGroup, protocol_type: str, protocols: tuple[OfferedProtocol, ...]
) -> None:
    if protocol_type != CONSUMER_PROTOCOL_TYPE or not group.supports(protocols):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"{[name for name, _ in protocols]} of {protocol_type!r} has no protocol that all "
            f"classic members of the consumer group {group.group_id!r} support",
        )


def _subscription(
    group: ConsumerGroup, protocols: tuple[OfferedProtocol, ...]
) -> ConsumerProtocolSubscription:
    """Read what a member says for the protocol that it likes best."""
    subscription = read_subscription(protocols[0].metadata)
    if subscription is None:
        # Kafka's code, though what is wrong is the request.
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the subscription of a member that joins group {group.group_id!r} cannot be parsed",
        )
    return subscription


def _admit(
    state: GroupsState, draft: Draft, request: JoinGroupRequest, member_id: MemberId
) -> ConsumerMember:
    """Return the joining member: an existing one or a new one.

    Any id is accepted: it may have been given out before the group was a consumer group.
    """
    group, instance_id, new = draft.group, request.group_instance_id, ConsumerMember(member_id)
    if instance_id is None:
        return group.members.get(member_id, new)
    if request.member_id:
        return find_static_member(group, member_id, instance_id)
    owner = group.static_members.get(instance_id)
    return new if owner is None else take_place(state, draft, group.members[owner], member_id)


def _described(
    member: ConsumerMember, subscription: ConsumerProtocolSubscription, request: JoinGroupRequest
) -> ConsumerMember:
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
        topic_names=tuple(sorted(set(subscription.topics))),
        topic_pattern="",
    )


def _turn_classic(
    state: GroupsState,
    former: ConsumerGroup,
    group: ConsumerGroup,
    now_ms: int,
    answer: Told,
) -> Outcome:
    """Convert to a classic group: the last consumer-protocol member rejoined as a classic one.

    Nobody else notices if all have what they should. If not, they join anew: there is nobody any
    more who would tell them when something else is theirs.
    """
    is_settled = group.state_name == "Stable"
    classic = downgrade(state, former, group, now_ms)
    classic.replies.append(answer)
    if not is_settled:
        prepare_rebalance(classic)
    return classic.outcome()


# Getting an assignment, and keeping it


def sync_consumer_group(
    state: GroupsState,
    group: ConsumerGroup,
    request: SyncGroupRequest,
    now_ms: int,
    reply: Reply[SyncGroupResponse],
) -> Outcome:
    """Reply a classic member's assignment, in the embedded format of its version."""
    member = _member(group, request)
    protocol = member.classic_protocols[0]
    for said, known in (
        (request.protocol_type, CONSUMER_PROTOCOL_TYPE),
        (request.protocol_name, protocol.name),
    ):
        if said is not None and said != known:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"{said!r}, where member {member.member_id!r} has {known!r}",
            )
    is_behind = group.epoch > member.epoch
    if is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return _have_it_join(state, group, member, now_ms, reply)
    end_sync_wait(state, group.group_id, member.member_id)
    keep_session(state, group.group_id, member, now_ms)
    answer = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=write_assignment(
            member.assigned, embedded_version(protocol.metadata), state.image
        ),
    )
    return Outcome(replies=(told(reply, answer),))


def heartbeat_consumer_group(
    state: GroupsState,
    group: ConsumerGroup,
    request: HeartbeatRequest,
    now_ms: int,
    reply: Reply[HeartbeatResponse],
) -> Outcome:
    """Restart a classic member's session; REBALANCE_IN_PROGRESS tells it to rejoin.

    It is told so when there is another group epoch, when it has partitions to give up, and when
    what it waits for has become free.
    """
    member = _member(group, request)
    keep_session(state, group.group_id, member, now_ms)
    is_waiting = member.state is MemberState.UNRELEASED_PARTITIONS
    if (
        member.epoch < group.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (is_waiting and not group.waits_for_others(member))
    ):
        return _have_it_join(state, group, member, now_ms, reply)
    return Outcome(replies=(told(reply, HeartbeatResponse()),))


def _member(group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest) -> ConsumerMember:
    """Return a classic member of its generation, or raise the error that it gets."""
    instance_id = request.group_instance_id
    member = (
        find_member(group, request.member_id)
        if instance_id is None
        else find_static_member(group, request.member_id, instance_id)
    )
    if not member.is_classic:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"member {member.member_id!r} does not use the classic protocol",
        )
    if request.generation_id != member.epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"generation {request.generation_id}: member {member.member_id!r} is in {member.epoch}",
        )
    return member


def _have_it_join(
    state: GroupsState, group: ConsumerGroup, member: ConsumerMember, now_ms: int, reply: OnError
) -> Outcome:
    # Answered, not raised: the deadline is part of the outcome.
    await_join(state, group.group_id, member, now_ms)
    error = KafkaError(
        ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id!r} is rebalancing: rejoin it"
    )
    return Outcome(replies=(told(reply, error),))
