"""Online conversion of groups from the classic to the consumer protocol, and back.

KIP-848: the first member of the new protocol that joins a classic group of consumers converts it to
a consumer group. Classic members stay members and are rebalanced through their own requests, see
`consumer.classic_members`. When the last member of the new protocol has left, the group converts
back. `group.consumer.migration.policy` says which of the two may happen.

| policy | to consumer | to classic | classic members in a consumer group |
| --- | --- | --- | --- |
| disabled | | | |
| upgrade | yes | | yes |
| downgrade | | yes | yes |
| bidirectional | yes | yes | yes |
"""

from collections.abc import Iterable
from typing import Final

from headrace import config
from headrace.config import AnySettings
from headrace.coordinator.records import CoordinatorRecord
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.assignors import Assignment
from headrace.groups.classic.deadlines import keep_session
from headrace.groups.classic.draft import Draft as ClassicDraft
from headrace.groups.classic.embedded_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    embedded_version,
    read_assignment,
    read_subscription,
    write_assignment,
)
from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.groups.classic.members import ClassicMember, OfferedProtocol
from headrace.groups.classic.records import group_record as classic_group_record
from headrace.groups.classic.records import group_tombstone
from headrace.groups.consumer.deadlines import forget_deadlines
from headrace.groups.consumer.draft import Draft
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import ConsumerMember
from headrace.groups.consumer.records import (
    current_record,
    group_record,
    group_tombstones,
    member_record,
    target_epoch_record,
    target_record,
)
from headrace.groups.heartbeats import FIRST_EPOCH
from headrace.groups.metadata_hash import metadata_hash
from headrace.groups.state import GroupsState
from headrace.metadata.image import Image
from headrace.wire.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
)

_UPGRADING: Final = frozenset({"upgrade", "bidirectional"})
_DOWNGRADING: Final = frozenset({"downgrade", "bidirectional"})


def allows_mixed_groups(settings: AnySettings) -> bool:
    """Whether members of both protocols may be in one group."""
    return _policy(settings) in _UPGRADING | _DOWNGRADING


def _policy(settings: AnySettings) -> str:
    return settings[config.GROUP_CONSUMER_MIGRATION_POLICY].lower()


# To the consumer protocol


def upgrade(state: GroupsState, group: ClassicGroup, now_ms: int) -> Draft:
    """Return the consumer group that a classic group with members converts to.

    GROUP_ID_NOT_FOUND, which is what a group of another kind is to a consumer, if it cannot.
    """
    _check_upgrade(group, state.settings)
    group_id, epoch = group.group_id, max(group.generation, FIRST_EPOCH)
    members = [_consumer_member(group, each, epoch, state.image) for each in group.members.values()]
    draft = Draft(ConsumerGroup(group_id))
    draft.write_last(group_tombstone(group_id))
    draft.write(*(member_record(group_id, member) for member in members))
    hashed = metadata_hash(draft.group.subscribed_topics, state.image)
    draft.write(
        group_record(group_id, epoch, hashed),
        *(target_record(group_id, each.member_id, _indexes(each)) for each in members),
        # Computed by nobody here, so that the first target of the group need not wait.
        target_epoch_record(group_id, epoch, 0),
        *(current_record(group_id, member) for member in members),
    )
    return draft


def _check_upgrade(group: ClassicGroup, settings: AnySettings) -> None:
    if _policy(settings) not in _UPGRADING:
        raise _cannot_upgrade(group, "online upgrade is disabled")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _cannot_upgrade(group, "its members are no consumers")
    members_max = settings[config.GROUP_CONSUMER_MAX_SIZE]
    if len(group.members) > members_max:
        raise _cannot_upgrade(group, f"it has more than {members_max} members")


def _consumer_member(
    group: ClassicGroup, member: ClassicMember, epoch: int, image: Image
) -> ConsumerMember:
    protocol_name = group.protocol_name or group.select_protocol()
    subscription = read_subscription(member.metadata(protocol_name))
    assignment = read_assignment(member.assignment, image)
    if subscription is None or assignment is None:
        raise _cannot_upgrade(group, f"what {member.member_id} says of itself cannot be read")
    return ConsumerMember(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic_metadata=classic_metadata(member.protocols, member.session_timeout_ms),
        epoch=epoch,
        previous_epoch=epoch,
        assigned={topic: dict.fromkeys(assignment[topic], epoch) for topic in assignment},
    )


def classic_metadata(
    protocols: Iterable[OfferedProtocol], session_timeout_ms: int
) -> ClassicMemberMetadata:
    """Return what a consumer group keeps of a member of the classic protocol."""
    return ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=[ClassicProtocol(name=n, metadata=m) for n, m in protocols],
    )


def _indexes(member: ConsumerMember) -> Assignment:
    return {topic: frozenset(epochs) for topic, epochs in member.assigned.items()}


def _cannot_upgrade(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group.group_id} is not a consumer group, and cannot become one: {reason}.",
    )


# To the classic protocol


def can_downgrade(group: ConsumerGroup, settings: AnySettings) -> bool:
    """Whether a group, as it would be, has classic members only and may be a classic group."""
    return (
        0 < len(group.members) <= settings[config.GROUP_MAX_SIZE]
        and _policy(settings) in _DOWNGRADING
        and all(member.is_classic for member in group.members.values())
    )


def downgrade(
    state: GroupsState, former: ConsumerGroup, group: ConsumerGroup, now_ms: int
) -> ClassicDraft:
    """Put a classic group in the place of a consumer group, and give the records of that.

    `former` is the group as it is, `group` as it would be. Members have what was the target for
    them. The group itself takes the place once the records can be written: they alone would not
    bring back what else its members can follow.
    """
    classic = ClassicGroup(
        group.group_id,
        state=ClassicState.STABLE,
        state_since_ms=now_ms,
        generation=group.epoch,
    )
    for member in group.members.values():
        classic.add(_classic_member(member), CONSUMER_PROTOCOL_TYPE)
    classic.protocol_name = classic.select_protocol()
    for each in classic.members.values():
        version = embedded_version(each.metadata(classic.protocol_name))
        target = group.target_of(each.member_id)
        each.assignment = write_assignment(target, version, state.image)
    assignments = {each.member_id: each.assignment for each in classic.members.values()}
    records: list[CoordinatorRecord] = [
        *group_tombstones(former),
        classic_group_record(classic, assignments),
    ]
    for each in classic.members.values():
        keep_session(state, classic, each, now_ms)

    def take_place() -> None:
        for member_id in (*former.members, *group.members):
            forget_deadlines(state, group.group_id, member_id)
        state.groups[group.group_id] = classic

    return ClassicDraft(state, classic, now_ms, records, notes=[take_place])


def _classic_member(member: ConsumerMember) -> ClassicMember:
    assert member.classic_metadata is not None
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic_metadata.session_timeout_ms,
        protocols=member.classic_protocols,
    )
