"""The states of share partitions, for the nodes that lead these.

InitializeShareGroupState (0), ReadShareGroupState (0), WriteShareGroupState (0 to 1),
DeleteShareGroupState (0) and ReadShareGroupStateSummary (0 to 1).

KIP-932; KIP-1226 (how many records are complete, from 1). Each partition of a request has its own
coordinator and its own error. A partition that a request names twice is asked for twice and
answered once, with the last answer. Without a group id, topics or partitions the answer is empty.
"""

from functools import partial
from typing import Any, Final

from headrace.broker.broker import Broker
from headrace.broker.handlers.gathering import Gathering
from headrace.broker.request import LATER, Answer, Handler, Request
from headrace.coordinator.machine import Reply
from headrace.coordinator.shard import Shard
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId
from headrace.share.key import SharePartitionKey
from headrace.share.state.calls import (
    DELETE,
    INITIALIZE,
    READ,
    READ_SUMMARY,
    WRITE,
    Kind,
    read_request,
)
from headrace.share.state.machine import ShareStatesMachine
from headrace.share.state.placement import state_partition
from headrace.share.state.records import SHARE_STATES_TOPIC
from headrace.wire import ApiKey
from headrace.wire.schema import Message, Struct


def _handle(kind: Kind, broker: Broker, request: Request) -> Answer:
    asked = read_request(kind, request.body) if request.body.group_id else {}
    rows = [(key, argument) for key, arguments in asked.items() for argument in arguments]

    def respond(answers: list[Any]) -> None:
        last = {key: answer for (key, _), answer in zip(rows, answers, strict=True)}
        request.answer(_response(kind, last))

    gathering = Gathering(len(rows), respond)
    for position, (key, argument) in enumerate(rows):
        _ask(broker, kind, key, argument, partial(gathering.take, position))
    return LATER


def _ask(broker: Broker, kind: Kind, key: SharePartitionKey, argument: Any, reply: Reply) -> None:
    try:
        shard = _shard(broker, key)
    except KafkaError as error:
        reply(error)
        return
    shard.write(
        lambda machine, now_ms: kind.operate(machine.state, key, argument, now_ms, reply), reply
    )


def _shard(broker: Broker, key: SharePartitionKey) -> Shard[ShareStatesMachine]:
    """Give the shard of a share partition; KafkaError if it is not here."""
    topic = broker.image.topic(SHARE_STATES_TOPIC)
    found = None
    if topic is not None:
        found = broker.share_states.shard_at(state_partition(key, len(topic.partitions)))
    if found is None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, f"this node does not coordinate {key.text}")
    return found


def _response(kind: Kind, answers: dict[SharePartitionKey, Any]) -> Message:
    topics: dict[TopicId, list[Struct]] = {}
    for key, answer in answers.items():
        if isinstance(answer, KafkaError):
            row = kind.answered_row(
                partition=key.partition, error_code=answer.code, error_message=answer.message
            )
        else:
            row = kind.answered_row(partition=key.partition, **kind.fields(answer))
        topics.setdefault(key.topic_id, []).append(row)
    return kind.response(
        results=[kind.answered_topic(topic_id=each, partitions=topics[each]) for each in topics]
    )


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: partial(_handle, INITIALIZE),
    ApiKey.READ_SHARE_GROUP_STATE: partial(_handle, READ),
    ApiKey.WRITE_SHARE_GROUP_STATE: partial(_handle, WRITE),
    ApiKey.DELETE_SHARE_GROUP_STATE: partial(_handle, DELETE),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: partial(_handle, READ_SUMMARY),
}
