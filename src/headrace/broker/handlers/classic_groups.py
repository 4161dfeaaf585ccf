"""JoinGroup, versions 0 to 9, SyncGroup, 0 to 5, Heartbeat, 0 to 4, and LeaveGroup, 0 to 5.

The classic group protocol. JoinGroup: KIP-62 (a rebalance timeout, from 1; before, the session's is
it), KIP-394 (a member fetches its id first, from 4), KIP-345 (static members, from 5), KIP-559 (the
protocol's type is in the answer, from 7), KIP-800 (a reason, from 8), KIP-814 (a leader that need
not assign, from 9). SyncGroup: type and name of the protocol are to be named from 5 on. LeaveGroup:
many members at once from 3 on. Joins and syncs wait for other members: who waits costs no task.
KIP-848: they are for consumer groups too, whose classic members are rolled to the other protocol.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from headrace.broker.broker import Broker
from headrace.broker.handlers.gathering import ask_in_slices
from headrace.broker.request import LATER, Answer, Handler, Request
from headrace.coordinator.machine import Outcome, Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.join import Joiner, join
from headrace.groups.classic.leave import leave
from headrace.groups.classic.sync import heartbeat, sync
from headrace.groups.state import GroupsState
from headrace.wire import ApiKey
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.messages.join_group_request import JoinGroupRequest
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.leave_group_response import LeaveGroupResponse
from headrace.wire.messages.sync_group_request import SyncGroupRequest
from headrace.wire.messages.sync_group_response import SyncGroupResponse
from headrace.wire.schema import Message

MEMBERS_AT_ONCE: Final = 500
"""How many members leave in one turn of the loop."""
FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_WITH_FETCHED_IDS: Final = 4
FIRST_WITH_NO_PROTOCOL: Final = 7
"""The version of JoinGroup from which an answer that names no protocol says null."""
FIRST_WITH_SKIPPED_ASSIGNMENT: Final = 9
FIRST_WITH_PROTOCOL: Final = 5
"""The version of SyncGroup from which a member names the protocol that it follows."""
FIRST_WITH_MANY: Final = 3
"""The version of LeaveGroup from which many may leave at once."""

Operation = Callable[[GroupsState, int], Outcome]


def handle_join_group(broker: Broker, request: Request) -> Answer:
    body: JoinGroupRequest = request.body
    if request.version < FIRST_WITH_REBALANCE_TIMEOUT:
        body.rebalance_timeout_ms = body.session_timeout_ms
    joiner = Joiner(
        request.client_id or "",
        client_host(request.peer.address),
        fetches_id=request.version >= FIRST_WITH_FETCHED_IDS,
        skips_assignment=request.version >= FIRST_WITH_SKIPPED_ASSIGNMENT,
    )

    def answer(response: JoinGroupResponse | KafkaError) -> None:
        if isinstance(response, KafkaError):
            response = JoinGroupResponse(
                error_code=response.code, protocol_name=None, member_id=body.member_id
            )
        if response.protocol_name is None and request.version < FIRST_WITH_NO_PROTOCOL:
            response.protocol_name = ""
        request.answer(response)

    reply = parked(request, answer)
    return _write(
        broker, body.group_id, lambda state, now_ms: join(state, body, joiner, now_ms, reply), reply
    )


def handle_sync_group(broker: Broker, request: Request) -> Answer:
    body: SyncGroupRequest = request.body

    def answer(response: SyncGroupResponse | KafkaError) -> None:
        if isinstance(response, KafkaError):
            response = SyncGroupResponse(error_code=response.code)
        request.answer(response)

    names_none = body.protocol_type is None or body.protocol_name is None
    if request.version >= FIRST_WITH_PROTOCOL and names_none:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    reply = parked(request, answer)
    return _write(
        broker, body.group_id, lambda state, now_ms: sync(state, body, now_ms, reply), reply
    )


def handle_heartbeat(broker: Broker, request: Request) -> Answer:
    body: HeartbeatRequest = request.body

    def reply(answer: HeartbeatResponse | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            # While groups are loaded nobody is missed: sessions begin anew behind it.
            is_loading = answer.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            answer = HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else answer.code)
        request.answer(answer)

    return _write(
        broker, body.group_id, lambda state, now_ms: heartbeat(state, body, now_ms, reply), reply
    )


def handle_leave_group(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
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

    return _write(
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

    def ask(part: LeaveGroupRequest, reply: Reply) -> None:
        _write(
            broker, body.group_id, lambda state, now_ms: leave(state, part, now_ms, reply), reply
        )

    response = LeaveGroupResponse(members=[])
    for answer in await ask_in_slices(slices, ask, at_once=1):
        if isinstance(answer, KafkaError):
            return LeaveGroupResponse(error_code=answer.code)
        response.members += answer.members
    return response


def parked(request: Request, answer: Reply) -> Reply:
    """Return the reply of a request that a coordinator may keep waiting.

    A node that stops answers it, and the coordinator's own answer, if it still comes, is dropped.
    """
    is_answered = False

    def reply(response: Any) -> None:
        nonlocal is_answered
        if not is_answered:
            answer(response)
            is_answered = True

    def on_drain() -> None:
        reply(KafkaError(ErrorCode.NOT_COORDINATOR, "this node stops"))

    request.on_drain = on_drain
    return reply


def client_host(address: str) -> str:
    """Return where a member is, as Kafka's tools show it: an address in Java's form, no port."""
    return "/" + address.rpartition(":")[0].strip("[]")


def _write(broker: Broker, group_id: str, operation: Operation, reply: Reply) -> Answer:
    """Do an operation where the group is coordinated; whatever comes of it goes to the reply."""

    def on_machine(machine: Any, now_ms: int) -> Outcome:
        return operation(machine.state, now_ms)

    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "an empty group id")
        shard = broker.groups.shard(group_id)
    except KafkaError as error:
        reply(error)
        return LATER
    shard.write(on_machine, reply)
    return LATER


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.JOIN_GROUP: handle_join_group,
    ApiKey.SYNC_GROUP: handle_sync_group,
    ApiKey.HEARTBEAT: handle_heartbeat,
    ApiKey.LEAVE_GROUP: handle_leave_group,
}
