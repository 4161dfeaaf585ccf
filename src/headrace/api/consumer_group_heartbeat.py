"""ConsumerGroupHeartbeat: API key 68, versions 0 and 1.

KIP-848: the consumer protocol. KIP-1082 (members choose their own ids, from 1), subscription by a
regular expression (from 1). A classic group of consumers becomes a consumer group with the first
member that joins it like this, see `groups.migration`.

The work is in `groups.consumer.heartbeat`.
"""

from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from headrace import config
from headrace.api.groups import client_host
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.consumer.heartbeat import heartbeat
from headrace.groups.heartbeats import Sender
from headrace.groups.regular_expressions import check_pattern, is_quick_to_compile
from headrace.server.broker import Broker
from headrace.server.request import LATER, Answer, Request
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from headrace.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Answer]:
    body: ConsumerGroupHeartbeatRequest = request.body
    pattern = body.subscribed_topic_regex
    if pattern and not is_quick_to_compile((pattern,)):
        return _compile_first(broker, request, pattern)
    return _handle(broker, request)


async def _compile_first(broker: Broker, request: Request, pattern: str) -> Answer:
    """Handle a heartbeat with a pattern that takes long to compile, and is known from then on."""
    with suppress(KafkaError):  # the group says so, if it wants the pattern at all
        await broker.matching.run(check_pattern, pattern)
    return _handle(broker, request)


def _handle(broker: Broker, request: Request) -> Answer:
    body: ConsumerGroupHeartbeatRequest = request.body
    sender = Sender(request.client_id or "", client_host(request.peer.address), request.version)

    def reply(answer: ConsumerGroupHeartbeatResponse | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            answer = ConsumerGroupHeartbeatResponse(
                error_code=answer.code, error_message=answer.message
            )
        request.answer(answer)

    if "consumer" not in broker.settings[config.GROUP_COORDINATOR_REBALANCE_PROTOCOLS]:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        shard = broker.groups.shard(body.group_id)
    except KafkaError as error:
        reply(error)
        return LATER
    shard.write(
        lambda machine, now_ms: heartbeat(machine.state, body, sender, now_ms, reply), reply
    )
    return LATER
