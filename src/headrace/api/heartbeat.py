"""Heartbeat: API key 12, versions 0 to 4.

KIP-345 (static members, from 3), KIP-848 (classic members of consumer groups). While the group is
loaded a heartbeat succeeds, as in Kafka: sessions restart afterwards.

The work is in `groups.classic.heartbeat`.
"""

from headrace.api.groups import write_to_group
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.heartbeat import heartbeat
from headrace.server.broker import Broker
from headrace.server.request import Answer, Request
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.heartbeat_response import HeartbeatResponse


def handle(broker: Broker, request: Request) -> Answer:
    body: HeartbeatRequest = request.body

    def reply(answer: HeartbeatResponse | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            # While groups are loaded nobody is missed: sessions begin anew behind it.
            is_loading = answer.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            answer = HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else answer.code)
        request.answer(answer)

    return write_to_group(
        broker, body.group_id, lambda state, now_ms: heartbeat(state, body, now_ms, reply), reply
    )
