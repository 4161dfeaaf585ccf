"""Validation of requests to a classic group, before and after their member is known."""

from typing import Final

from headrace import config
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.members import ClassicMember
from headrace.groups.state import GroupId, GroupsState
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.join_group_request import JoinGroupRequest
from headrace.wire.messages.sync_group_request import SyncGroupRequest

PROTOCOLS_MAX: Final = 1000
"""How many protocols a member may offer: clients have a handful. Kafka has no such limit."""


def check_session_timeout(state: GroupsState, session_timeout_ms: int) -> None:
    """Raise INVALID_SESSION_TIMEOUT unless a timeout is within what the node allows."""
    shortest_ms = state.settings[config.GROUP_MIN_SESSION_TIMEOUT_MS]
    longest_ms = state.settings[config.GROUP_MAX_SESSION_TIMEOUT_MS]
    if not shortest_ms <= session_timeout_ms <= longest_ms:
        raise KafkaError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"a session timeout of {session_timeout_ms} ms: group.min.session.timeout.ms is "
            f"{shortest_ms}, group.max.session.timeout.ms {longest_ms}",
        )


def check_protocol_count(request: JoinGroupRequest) -> None:
    """Raise INVALID_REQUEST if a member offers more protocols than any client has."""
    if len(request.protocols) > PROTOCOLS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{len(request.protocols)} protocols: a member may offer {PROTOCOLS_MAX}",
        )


def find_member(
    state: GroupsState, request: SyncGroupRequest | HeartbeatRequest
) -> tuple[ClassicGroup, ClassicMember]:
    """Return a member of this generation with its group, or raise what it is told if it is none."""
    group = state.groups.get(GroupId(request.group_id))
    if not isinstance(group, ClassicGroup):
        raise ClassicGroup(GroupId(request.group_id)).unknown(request.member_id)
    member = group.find_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation_id)
    return group, member


def check_protocol(group: ClassicGroup, request: SyncGroupRequest) -> None:
    """Raise INCONSISTENT_GROUP_PROTOCOL if a member follows another protocol than its group."""
    for said, known in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if said is not None and known is not None and said != known:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"{said!r}, where group {group.group_id!r} has {known!r}",
            )
