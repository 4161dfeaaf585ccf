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

from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from headrace.coordinator.machine import Reply
from headrace.coordinator.shard import Shard
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import SHARE_STATES_TOPIC, PartitionIndex, SharePartitionKey, TopicId
from headrace.loop.slices import Slice, Slices, finish, run_whole
from headrace.server.broker import Broker
from headrace.server.gathering import NAMES_AT_ONCE, Gathering, ask_in_slices
from headrace.server.request import LATER, Answer, Handler, Request
from headrace.share.state.calls import (
    DELETE,
    INITIALIZE,
    READ,
    READ_SUMMARY,
    WRITE,
    Kind,
)
from headrace.share.state.machine import ShareStatesMachine
from headrace.share.state.placement import state_partition
from headrace.wire.schema import Message, Struct

P = TypeVar("P")
A = TypeVar("A")

ROW_UNITS: Final = 2


def _handle(
    kind: Kind[P, A], broker: Broker, request: Request
) -> Answer | Coroutine[Any, Any, Message]:
    body = request.body
    topics = body.topics if body.group_id else []
    if sum(len(topic.partitions) for topic in topics) > NAMES_AT_ONCE:
        return _handle_many(kind, broker, body)
    rows = run_whole(read_rows(kind, body.group_id, topics))

    def respond(answers: list[A | KafkaError]) -> None:
        request.answer(run_whole(make_response(kind, rows, answers)))

    gathering = Gathering(len(rows), respond)
    for position, (key, argument) in enumerate(rows):
        _ask(broker, kind, key, argument, partial(gathering.take, position))
    return LATER


async def _handle_many(kind: Kind[P, A], broker: Broker, body: Any) -> Message:
    rows = await finish(read_rows(kind, body.group_id, body.topics))

    def ask(row: tuple[SharePartitionKey, P], reply: Reply[A]) -> None:
        _ask(broker, kind, *row, reply)

    answers = await ask_in_slices(rows, ask)
    return await finish(make_response(kind, rows, answers))


def read_rows(
    kind: Kind[P, A], group_id: str, topics: Iterable[Any]
) -> Slices[list[tuple[SharePartitionKey, P]]]:
    """Return the share partitions of a request with what is asked of each; twice by mistake."""
    asked: dict[SharePartitionKey, list[P]] = {}
    current = Slice()
    for topic in topics:
        topic_id = TopicId(topic.topic_id)
        for row in topic.partitions:
            key = SharePartitionKey(group_id, topic_id, PartitionIndex(row.partition))
            asked.setdefault(key, []).append(kind.argument(row))
            if current.spend(1 + len(getattr(row, "state_batches", ()))):
                yield
        if current.spend():
            yield
    return [(key, argument) for key, arguments in asked.items() for argument in arguments]


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


def make_response(
    kind: Kind[P, A], rows: list[tuple[SharePartitionKey, P]], answers: list[A | KafkaError]
) -> Slices[Message]:
    """Return the response, with one row for each share partition: the last answer."""
    last = {key: answer for (key, _), answer in zip(rows, answers, strict=True)}
    topics: dict[TopicId, list[Struct]] = {}
    current = Slice()
    for key, answer in last.items():
        if isinstance(answer, KafkaError):
            row = kind.answered_row(
                partition=key.partition, error_code=answer.code, error_message=answer.message
            )
        else:
            row = kind.answered_row(partition=key.partition, **kind.fields(answer))
        topics.setdefault(key.topic_id, []).append(row)
        if current.spend(ROW_UNITS):
            yield
    return kind.response(
        results=[kind.answered_topic(topic_id=each, partitions=topics[each]) for each in topics]
    )


handle_initialize: Final[Handler] = partial(_handle, INITIALIZE)
handle_read: Final[Handler] = partial(_handle, READ)
handle_write: Final[Handler] = partial(_handle, WRITE)
handle_delete: Final[Handler] = partial(_handle, DELETE)
handle_read_summary: Final[Handler] = partial(_handle, READ_SUMMARY)
