"""ConsumerGroupHeartbeat, versions 0 and 1, and ConsumerGroupDescribe, versions 0 and 1.

KIP-848: the consumer protocol. Members choose their own ids from ConsumerGroupHeartbeat 1 on
(KIP-1082), which also brings subscription by a regular expression; ConsumerGroupDescribe 1 says
which protocol a member speaks (KIP-1099). A classic group of consumers becomes a consumer group
with the first who joins it like this, see `groups/migration`.
"""

from collections.abc import Coroutine
from typing import Any, Final

from headrace import config
from headrace.broker.broker import Broker
from headrace.broker.handlers.classic_groups import client_host
from headrace.broker.handlers.group_descriptions import answer_descriptions
from headrace.broker.request import LATER, Answer, Handler, Request
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.consumer.descriptions import describe_consumer_group
from headrace.groups.consumer.protocol import Sender, heartbeat
from headrace.wire import ApiKey
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
from headrace.wire.schema import Message


def handle_consumer_group_heartbeat(broker: Broker, request: Request) -> Answer:
    body: ConsumerGroupHeartbeatRequest = request.body
    sender = Sender(request.version, request.client_id or "", client_host(request.peer.address))

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


def handle_consumer_group_describe(
    broker: Broker, request: Request
) -> Answer | Coroutine[Any, Any, Message]:
    return answer_descriptions(
        broker, request, describe_consumer_group, _refused, ConsumerGroupDescribeResponse
    )


def _refused(code: int, message: str, group_id: str) -> DescribedGroup:
    # Kafka does not say of these groups what is wrong with having no name.
    is_nameless = code == ErrorCode.INVALID_GROUP_ID
    return DescribedGroup(code, None if is_nameless else message, group_id)


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: handle_consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: handle_consumer_group_describe,
}
