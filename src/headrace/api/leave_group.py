"""LeaveGroup: API key 13, versions 0 to 5.

KIP-345 (several members at once, from 3), KIP-800 (a reason, from 5), KIP-848 (classic members of
consumer groups). Very many members leave in slices, so that other clients are served meanwhile.

The work is in `groups.classic.leave`.
"""

from collections.abc import Coroutine
from typing import Any, Final

from headrace.api.groups import write_to_group
from headrace.coordinator.machine import Reply
from headrace.errors import KafkaError
from headrace.groups.classic.leave import leave
from headrace.server.broker import Broker
from headrace.server.gathering import ask_in_slices
from headrace.server.request import Answer, Request
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.leave_group_response import LeaveGroupResponse
from headrace.wire.schema import Message

MEMBERS_AT_ONCE: Final = 500
"""How many members leave in one turn of the loop."""
FIRST_WITH_MANY: Final = 3
"""The version of LeaveGroup from which many may leave at once."""


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    body: LeaveGroupRequest = request.body
    is_single = request.version < FIRST_WITH_MANY
    if is_single:
        body.members = [MemberIdentity(member_id=body.member_id)]
    if len(body.members) > MEMBERS_AT_ONCE:
        return _leave_in_slices(broker, body)

    def reply(answer: LeaveGroupResponse | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            answer = LeaveGroupResponse(error_code=answer.code)
        elif is_single:
            answer = LeaveGroupResponse(error_code=answer.members[0].error_code)
        request.answer(answer)

    return write_to_group(
        broker, body.group_id, lambda state, now_ms: leave(state, body, now_ms, reply), reply
    )


async def _leave_in_slices(broker: Broker, body: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove very many members, with turns for others on the loop in between."""
    slices = [
        LeaveGroupRequest(
            group_id=body.group_id, members=body.members[start : start + MEMBERS_AT_ONCE]
        )
        for start in range(0, len(body.members), MEMBERS_AT_ONCE)
    ]

    def ask(part: LeaveGroupRequest, reply: Reply[LeaveGroupResponse]) -> None:
        write_to_group(
            broker, body.group_id, lambda state, now_ms: leave(state, part, now_ms, reply), reply
        )

    response = LeaveGroupResponse(members=[])
    for answer in await ask_in_slices(slices, ask, at_once=1):
        if isinstance(answer, KafkaError):
            return LeaveGroupResponse(error_code=answer.code)
        response.members += answer.members
    return response
