"""ConsumerGroupHeartbeat, versions 0 and 1, and ConsumerGroupDescribe, versions 0 and 1.

KIP-848: the consumer protocol. Members choose their own ids from ConsumerGroupHeartbeat 1 on
(KIP-1082), which also brings subscription by a regular expression; ConsumerGroupDescribe 1 says
which protocol a member speaks (KIP-1099). A classic group of consumers becomes a consumer group
with the first who joins it like this, see `groups/migration`.
"""

from typing import Any, Final

from headrace import config
from headrace.broker.broker import Broker
from headrace.broker.handlers.operations import GROUP_OPERATIONS
from headrace.broker.request import LATER, Answer, Handler, Request
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.consumer.descriptions import describe_consumer_group
from headrace.groups.consumer.protocol import Sender, heartbeat
from headrace.wire import ApiKey
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_describe_response import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from headrace.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)


def handle_consumer_group_heartbeat(broker: Broker, request: Request) -> Answer:
    body: ConsumerGroupHeartbeatRequest = request.body
    host = request.peer.address.rpartition(":")[0]
    sender = Sender(request.version, request.client_id or "", f"/{host}")

    def reply(answer: Any) -> None:
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


def handle_consumer_group_describe(broker: Broker, request: Request) -> Answer:
    body: ConsumerGroupDescribeRequest = request.body
    rows: list[DescribedGroup | None] = [None] * len(body.group_ids)
    missing = len(rows)

    def put(place: int, answer: Any) -> None:
        nonlocal missing
        if isinstance(answer, KafkaError):
            message = None if answer.code == ErrorCode.INVALID_GROUP_ID else answer.message
            answer = DescribedGroup(
                group_id=body.group_ids[place], error_code=answer.code, error_message=message
            )
        elif body.include_authorized_operations:
            answer.authorized_operations = GROUP_OPERATIONS
        rows[place] = answer
        missing -= 1
        if not missing:
            request.answer(ConsumerGroupDescribeResponse(groups=rows))  # type: ignore[arg-type]

    if not rows:
        return ConsumerGroupDescribeResponse()
    for place, group_id in enumerate(body.group_ids):
        _describe(broker, group_id, lambda answer, place=place: put(place, answer))
    return LATER


def _describe(broker: Broker, group_id: str, reply: Any) -> None:
    if not group_id:
        reply(KafkaError(ErrorCode.INVALID_GROUP_ID, "a group without a name"))
        return
    try:
        shard = broker.groups.shard(group_id)
    except KafkaError as error:
        reply(error)
        return
    shard.write(
        lambda machine, now_ms: describe_consumer_group(machine.state, group_id, reply), reply
    )


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: handle_consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: handle_consumer_group_describe,
}
