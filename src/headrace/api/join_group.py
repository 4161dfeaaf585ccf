"""JoinGroup: API key 11, versions 0 to 9.

KIP-62 (a rebalance timeout, from 1; before, the session timeout serves), KIP-394 (a member fetches
its id first, from 4), KIP-345 (static members, from 5), KIP-559 (the response has the protocol
type, from 7), KIP-800 (a reason, from 8), KIP-814 (a leader that need not assign, from 9), KIP-848
(classic members of consumer groups, while these are migrated). The join waits for other members; a
waiting member costs no task.

The work is in `groups.classic.join`.
"""

from typing import Final

from headrace.api.groups import client_host, parked, write_to_group
from headrace.errors import KafkaError
from headrace.groups.classic.join import Joiner, join
from headrace.server.broker import Broker
from headrace.server.request import Answer, Request
from headrace.wire.messages.join_group_request import JoinGroupRequest
from headrace.wire.messages.join_group_response import JoinGroupResponse

FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_WITH_FETCHED_IDS: Final = 4
FIRST_WITH_NO_PROTOCOL: Final = 7
"""The version of JoinGroup from which on a response without a protocol has null."""
FIRST_WITH_SKIPPED_ASSIGNMENT: Final = 9


def handle(broker: Broker, request: Request) -> Answer:
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
    return write_to_group(
        broker, body.group_id, lambda state, now_ms: join(state, body, joiner, now_ms, reply), reply
    )
