"""ShareGroupHeartbeat, version 1, and ShareGroupDescribe, version 1.

KIP-932: members of share groups. A heartbeat has the states begun of partitions that its group is
going to read; members are assigned a partition once that is done. Unlike in Kafka, a member without
partitions is answered then, not before (`groups/share/holding`). What fails is logged, and begun
again by the next heartbeat; what is not heard of any more, by one after
`group.share.initialize.retry.interval.ms`.

A state that is there already is not begun again: it would lose where the group was. Kafka does
begin it again if it has not heard that it did.
"""

import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

from headrace import config
from headrace.broker.broker import Broker
from headrace.broker.features import SHARE_VERSION
from headrace.broker.handlers.classic_groups import client_host, parked
from headrace.broker.handlers.gathering import ask_in_turns
from headrace.broker.handlers.group_descriptions import answer_descriptions
from headrace.broker.request import LATER, Answer, Handler, Request
from headrace.coordinator.machine import Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.share.descriptions import describe_share_group
from headrace.groups.share.heartbeat import Sender, heartbeat
from headrace.groups.share.states import Beginning, note_begun, note_not_begun
from headrace.share.durable import StateSummary
from headrace.share.key import SharePartitionKey
from headrace.wire import ApiKey
from headrace.wire.messages.share_group_describe_response import (
    DescribedGroup,
    ShareGroupDescribeResponse,
)
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from headrace.wire.schema import Message

NO_LEADER_EPOCH: Final = -1
"""Of who only looks at a state."""

logger = logging.getLogger(__name__)


def handle_share_group_heartbeat(broker: Broker, request: Request) -> Answer:
    body: ShareGroupHeartbeatRequest = request.body
    sender = Sender(request.client_id or "", client_host(request.peer.address))

    def answer(response: ShareGroupHeartbeatResponse | KafkaError) -> None:
        if isinstance(response, KafkaError):
            response = ShareGroupHeartbeatResponse(
                error_code=response.code, error_message=response.message
            )
        request.answer(response)

    def begin(beginnings: Sequence[Beginning] | KafkaError) -> None:
        if not isinstance(beginnings, KafkaError):  # else the log does not have them
            _begin_states(broker, body.group_id, beginnings)

    reply = parked(request, answer)
    try:
        check_served(broker)
        shard = broker.groups.shard(body.group_id)
    except KafkaError as error:
        reply(error)
        return LATER
    shard.write(
        lambda machine, now_ms: heartbeat(machine.state, body, sender, now_ms, reply, begin=begin),
        reply,
    )
    return LATER


def handle_share_group_describe(
    broker: Broker, request: Request
) -> Answer | Coroutine[Any, Any, Message]:
    check_served(broker)
    return answer_descriptions(
        broker, request, describe_share_group, DescribedGroup, ShareGroupDescribeResponse
    )


def check_served(broker: Broker) -> None:
    """UNSUPPORTED_VERSION if share groups are turned off."""
    protocols = broker.settings[config.GROUP_COORDINATOR_REBALANCE_PROTOCOLS]
    if "share" not in protocols and not broker.image.feature_level(SHARE_VERSION):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"share groups are turned off: the feature {SHARE_VERSION} has to be at 1",
        )


# States


def _begin_states(broker: Broker, group_id: str, beginnings: Sequence[Beginning]) -> None:
    """Begin states, and take note of those that have begun."""

    def on_all(answers: list[Any]) -> None:
        begun, failed = list[SharePartitionKey](), dict[SharePartitionKey, KafkaError]()
        for each, answer in zip(beginnings, answers, strict=True):
            if isinstance(answer, KafkaError):
                failed[each.key] = answer
            else:
                begun.append(each.key)
        if failed:
            logger.warning(
                "group %s: %d of %d states did not begin, and will be tried again: %s",
                *(group_id, len(failed), len(answers), next(iter(failed.values())).message),
            )
        _note(broker, group_id, begun, list(failed))

    ask_in_turns(beginnings, partial(_begin_state, broker), on_all)


def _begin_state(broker: Broker, beginning: Beginning, reply: Reply) -> None:
    """Begin a state, unless it is there."""
    key, state_epoch, start_offset = beginning

    def on_summary(answer: StateSummary | KafkaError) -> None:
        if isinstance(answer, KafkaError) or answer.state_epoch > 0:
            reply(answer)
        else:
            broker.persister.initialize(key, state_epoch, start_offset, reply)

    broker.persister.read_summary(key, NO_LEADER_EPOCH, on_summary)


def _note(
    broker: Broker,
    group_id: str,
    begun: Sequence[SharePartitionKey],
    failed: Sequence[SharePartitionKey],
) -> None:
    def on_noted(answer: KafkaError | None) -> None:
        if answer is not None:
            logger.warning("group %s: not noted that states began: %s", group_id, answer.message)

    try:
        shard = broker.groups.shard(group_id)
    except KafkaError as error:
        on_noted(error)  # whoever coordinates the group by now finds that the states are there
        return
    if failed:
        shard.write(lambda machine, now_ms: note_not_begun(machine.state, failed, now_ms), on_noted)
    if begun:
        shard.write(
            lambda machine, now_ms: note_begun(machine.state, group_id, begun, now_ms, on_noted),
            on_noted,
        )


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: handle_share_group_heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: handle_share_group_describe,
}
