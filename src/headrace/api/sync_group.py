"""SyncGroup: API key 14, versions 0 to 5.

KIP-345 (static members, from 3), KIP-559 (the member names protocol type and name, from 5), KIP-848
(classic members of consumer groups). The sync waits for the leader's assignment; a waiting member
costs no task.

The work is in `groups.classic.sync`.
"""

from typing import Final

from headrace.api.groups import parked, write_to_group
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.sync import sync
from headrace.server.broker import Broker
from headrace.server.request import Answer, Request
from headrace.wire.messages.sync_group_request import SyncGroupRequest
from headrace.wire.messages.sync_group_response import SyncGroupResponse

FIRST_WITH_PROTOCOL: Final = 5
"""The version of SyncGroup from which a member names the protocol that it follows."""


def handle(broker: Broker, request: Request) -> Answer:
    body: SyncGroupRequest = request.body

    def answer(response: SyncGroupResponse | KafkaError) -> None:
        if isinstance(response, KafkaError):
            response = SyncGroupResponse(error_code=response.code)
        request.answer(response)

    names_none = body.protocol_type is None or body.protocol_name is None
    if request.version >= FIRST_WITH_PROTOCOL and names_none:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    reply = parked(request, answer)
    return write_to_group(
        broker, body.group_id, lambda state, now_ms: sync(state, body, now_ms, reply), reply
    )
