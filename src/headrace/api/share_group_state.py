"""The states of share partitions, for the nodes that lead these.

InitializeShareGroupState: API key 83, version 0.
ReadShareGroupState: API key 84, version 0.
WriteShareGroupState: API key 85, versions 0 and 1.
DeleteShareGroupState: API key 86, version 0.
ReadShareGroupStateSummary: API key 87, versions 0 and 1.

KIP-932; KIP-1226 (how many records are complete, from 1). Each partition of a request has its own
coordinator and its own error. A partition that a request names twice is asked for twice and has one
row, with the last result. Without a group id, topics or partitions the response is empty.

The work is in `share.state`; `share.coordinator` is its shell.
"""

from functools import partial
from typing import Final, TypeVar

from headrace.coordinator.machine import Reply
from headrace.coordinator.shard import Shard
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import SHARE_STATES_TOPIC, SharePartitionKey, TopicId
from headrace.server.broker import Broker
from headrace.server.gathering import Gathering
from headrace.server.request import LATER, Answer, Handler, Request
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
from headrace.wire.schema import Message, Struct

P = TypeVar("P")
A = TypeVar("A")


def _handle(kind: Kind[P, A], broker: Broker, request: Request) -> Answer:
    asked = read_request(kind, request.body) if request.body.group_id else {}
    rows = [(key, argument) for key, arguments in asked.items() for argument in arguments]

    def respond(answers: list[A | KafkaError]) -> None:
        last = {key: answer for (key, _), answer in zip(rows, answers, strict=True)}
        request.answer(_response(kind, last))

    gathering = Gathering(len(rows), respond)
    for position, (key, argument) in enumerate(rows):
        _ask(broker, kind, key, argument, partial(gathering.take, position))
    return LATER


def _ask(
    broker: Broker, kind: Kind[P, A], key: SharePartitionKey, argument: P, reply: Reply[A]
) -> None:
    try:
        shard = _shard(broker, key)
    except KafkaError as error:
        reply(error)
        return
    shard.write(
        lambda machine, now_ms: kind.operate(machine.state, key, argument, now_ms, reply), reply
    )


def _shard(broker: Broker, key: SharePartitionKey) -> Shard[ShareStatesMachine]:
    """Return the shard of a share partition; raise KafkaError if it is not here."""
    topic = broker.image.topic(SHARE_STATES_TOPIC)
    found = None
    if topic is not None:
        found = broker.share_states.shard_at(state_partition(key, len(topic.partitions)))
    if found is None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, f"this node does not coordinate {key.text}")
    return found


def _response(kind: Kind[P, A], answers: dict[SharePartitionKey, A | KafkaError]) -> Message:
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


handle_initialize: Final[Handler] = partial(_handle, INITIALIZE)
handle_read: Final[Handler] = partial(_handle, READ)
handle_write: Final[Handler] = partial(_handle, WRITE)
handle_delete: Final[Handler] = partial(_handle, DELETE)
handle_read_summary: Final[Handler] = partial(_handle, READ_SUMMARY)
