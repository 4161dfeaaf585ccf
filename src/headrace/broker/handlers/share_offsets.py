"""DescribeShareGroupOffsets v0 and 1, AlterShareGroupOffsets v0, DeleteShareGroupOffsets v0.

KIP-932; DescribeShareGroupOffsets 1 has the lag (KIP-1226): the records from the start of a share
partition up to what its group may read, without those that it is done with; -1 where one of these
is not known, or known to another node. What a group has no state of begins at -1, and is no error,
nor is a group that does not exist. AlterShareGroupOffsets begins a group that there is not. Neither
it nor DeleteShareGroupOffsets touches a group that has members.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from headrace.broker.broker import Broker
from headrace.broker.failures import failure_response
from headrace.broker.handlers.gathering import Gathering, ask_each
from headrace.broker.handlers.group_descriptions import group_shard
from headrace.broker.handlers.share_groups import NO_LEADER_EPOCH, check_served
from headrace.broker.request import LATER, Answer, Handler, Request
from headrace.broker.share_lag import share_lag
from headrace.coordinator.machine import Operation, Reply
from headrace.coordinator.shard import Shard
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.machine import GroupsMachine
from headrace.groups.share.offsets import (
    KnownTopic,
    begin_alteration,
    begin_deletion,
    begin_group_deletion,
    known_offsets,
    note_deleted,
)
from headrace.groups.share.states import Beginning, note_begun
from headrace.ids import ZERO_TOPIC_ID, PartitionIndex, TopicId, TopicName
from headrace.share.durable import UNKNOWN_OFFSET, StateSummary
from headrace.share.key import SharePartitionKey
from headrace.wire import ApiKey
from headrace.wire.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
from headrace.wire.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from headrace.wire.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
)
from headrace.wire.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from headrace.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from headrace.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

# Describing


def handle_describe_share_group_offsets(broker: Broker, request: Request) -> Answer:
    body: DescribeShareGroupOffsetsRequest = request.body
    check_served(broker)

    def on_rows(rows: list[Any]) -> None:
        request.answer(DescribeShareGroupOffsetsResponse(groups=rows))

    gathering = Gathering(len(body.groups), on_rows)
    for position, group in enumerate(body.groups):
        _describe_group(broker, group, partial(gathering.take, position))
    return LATER


def _describe_group(
    broker: Broker, asked: DescribeShareGroupOffsetsRequestGroup, reply: Reply
) -> None:
    """Answer the row of a group."""
    group_id = asked.group_id

    def on_known(answers: list[Any]) -> None:
        (known,) = answers
        if isinstance(known, KafkaError):
            row = DescribeShareGroupOffsetsResponseGroup(group_id)
            row.error_code, row.error_message = known.code, known.message
            reply(row)
            return
        topics = known if asked.topics is None else _asked_topics(broker, asked)
        gathering = Gathering(
            len(topics), lambda rows: reply(DescribeShareGroupOffsetsResponseGroup(group_id, rows))
        )
        for position, topic in enumerate(topics):
            _describe_topic(broker, group_id, topic, partial(gathering.take, position))

    def look_up(reply: Reply) -> Operation:
        return lambda machine, now_ms: known_offsets(machine.state, group_id, reply)

    ask_each([(partial(group_shard, broker, group_id), look_up)], on_known)


def _asked_topics(broker: Broker, asked: DescribeShareGroupOffsetsRequestGroup) -> list[KnownTopic]:
    """Give the topics that a request names, each once, and those that do not exist without id."""
    indexes: dict[str, dict[int, None]] = {}
    for row in asked.topics or ():
        indexes.setdefault(row.topic_name, {}).update(dict.fromkeys(row.partitions))
    return [
        KnownTopic(name, _topic_id(broker, name), tuple(named)) for name, named in indexes.items()
    ]


def _topic_id(broker: Broker, name: str) -> TopicId:
    topic = broker.image.topic(TopicName(name))
    return ZERO_TOPIC_ID if topic is None else topic.topic_id


def _describe_topic(broker: Broker, group_id: str, topic: KnownTopic, reply: Reply) -> None:
    """Answer the row of a topic."""
    keys = topic.keys(group_id)

    def on_summaries(answers: list[Any]) -> None:
        rows = [
            _describe_partition(broker, key, answer)
            for key, answer in zip(keys, answers, strict=True)
        ]
        reply(DescribeShareGroupOffsetsResponseTopic(topic.name, topic.topic_id, rows))

    gathering = Gathering(len(keys), on_summaries)
    for position, key in enumerate(keys):
        take = partial(gathering.take, position)
        if broker.image.partition(TopicName(topic.name), key.partition) is None:
            take(None)
        else:
            broker.persister.read_summary(key, NO_LEADER_EPOCH, take)


def _describe_partition(
    broker: Broker, key: SharePartitionKey, answer: StateSummary | KafkaError | None
) -> DescribeShareGroupOffsetsResponsePartition:
    row = DescribeShareGroupOffsetsResponsePartition(key.partition, UNKNOWN_OFFSET)
    if isinstance(answer, KafkaError):
        row.error_code, row.error_message = answer.code, answer.message
    elif answer is not None:
        row.start_offset, row.leader_epoch = answer.start_offset, answer.leader_epoch
        row.lag = share_lag(broker, key, answer)
    return row


# Altering


def handle_alter_share_group_offsets(broker: Broker, request: Request) -> Answer:
    body: AlterShareGroupOffsetsRequest = request.body
    check_served(broker)
    offsets: dict[str, dict[int, int]] = {}
    for topic in body.topics:
        starts = offsets.setdefault(topic.topic_name, {})
        for row in topic.partitions:
            if row.start_offset >= UNKNOWN_OFFSET:
                starts[row.partition_index] = row.start_offset

    def on_done(answer: KafkaError | dict[SharePartitionKey, KafkaError | None]) -> None:
        if isinstance(answer, KafkaError):
            request.answer(failure_response(request, answer.code, answer.message))
        else:
            request.answer(_altered(broker, body, answer))

    def on_planned(answers: list[Any]) -> None:
        (planned,) = answers
        if isinstance(planned, KafkaError):
            on_done(planned)
        else:
            _set_offsets(broker, body.group_id, planned, on_done)

    def plan(reply: Reply) -> Operation:
        return lambda machine, now_ms: begin_alteration(
            machine.state, body.group_id, offsets, reply
        )

    ask_each([(partial(group_shard, broker, body.group_id), plan)], on_planned)
    return LATER


def _set_offsets(broker: Broker, group_id: str, planned: Sequence[Beginning], reply: Reply) -> None:
    """Begin states anew, and note it; the answer is what came of each."""

    def on_begun(answers: list[Any]) -> None:
        outcomes = {each.key: answer for each, answer in zip(planned, answers, strict=True)}
        done = [key for key, answer in outcomes.items() if answer is None]
        broker.share_partitions.forget_group(group_id)
        _note(
            broker,
            group_id,
            lambda taken: lambda machine, now_ms: note_begun(machine.state, group_id, done, taken),
            lambda answer: reply(outcomes if answer is None else answer),
        )

    gathering = Gathering(len(planned), on_begun)
    for position, (key, state_epoch, start_offset) in enumerate(planned):
        take = partial(gathering.take, position)
        broker.persister.initialize(key, state_epoch, start_offset, take)


def _altered(
    broker: Broker,
    body: AlterShareGroupOffsetsRequest,
    outcomes: dict[SharePartitionKey, KafkaError | None],
) -> AlterShareGroupOffsetsResponse:
    rows: dict[str, AlterShareGroupOffsetsResponseTopic] = {}
    for asked in body.topics:
        topic_id = _topic_id(broker, asked.topic_name)
        row = rows.setdefault(
            asked.topic_name, AlterShareGroupOffsetsResponseTopic(asked.topic_name, topic_id, [])
        )
        for each in asked.partitions:
            index = PartitionIndex(each.partition_index)
            key = SharePartitionKey(body.group_id, topic_id, index)
            if each.start_offset < UNKNOWN_OFFSET:
                error: KafkaError | None = KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{each.start_offset} is no offset"
                )
            else:
                error = outcomes.get(key, _unknown(f"{asked.topic_name}-{index}"))
            code, message = _said(error)
            row.partitions.append(AlterShareGroupOffsetsResponsePartition(index, code, message))
    return AlterShareGroupOffsetsResponse(responses=list(rows.values()))


# Deleting


def handle_delete_share_group_offsets(broker: Broker, request: Request) -> Answer:
    body: DeleteShareGroupOffsetsRequest = request.body
    check_served(broker)
    names = list(dict.fromkeys(topic.topic_name for topic in body.topics))

    def on_done(answer: KafkaError | dict[str, tuple[TopicId, KafkaError | None]]) -> None:
        if isinstance(answer, KafkaError):
            request.answer(failure_response(request, answer.code, answer.message))
            return
        rows = []
        for name in names:
            topic_id, error = answer.get(name) or (ZERO_TOPIC_ID, _unknown(name))
            rows.append(DeleteShareGroupOffsetsResponseTopic(name, topic_id, *_said(error)))
        request.answer(DeleteShareGroupOffsetsResponse(responses=rows))

    def plan(reply: Reply) -> Operation:
        return lambda machine, now_ms: begin_deletion(machine.state, body.group_id, names, reply)

    find = partial(group_shard, broker, body.group_id)
    _delete_states(broker, body.group_id, (find, plan), on_done)
    return LATER


def delete_group_states(broker: Broker, group_id: str, reply: Reply) -> None:
    """Delete all states of a group that is about to be deleted; the answer is None.

    Nothing is done for groups that are no share groups. Else the answer is a KafkaError if it has
    members, or if one of the states could not be deleted: the group stays then.
    """

    def on_done(answer: KafkaError | dict[str, tuple[TopicId, KafkaError | None]]) -> None:
        if isinstance(answer, KafkaError):
            reply(answer)
        else:
            reply(next((error for _, error in answer.values() if error is not None), None))

    def plan(reply: Reply) -> Operation:
        return lambda machine, now_ms: begin_group_deletion(machine.state, group_id, reply)

    find = partial(broker.groups.shard, group_id, is_served=False)
    _delete_states(broker, group_id, (find, plan), on_done, is_group_deleted=True)


def _delete_states(
    broker: Broker,
    group_id: str,
    plan: tuple[Callable[[], Shard[GroupsMachine]], Callable[[Reply], Operation]],
    reply: Reply,
    *,
    is_group_deleted: bool = False,
) -> None:
    """Delete the states of topics that a plan gives; the answer is what came of each, by name."""

    def on_planned(answers: list[Any]) -> None:
        (planned,) = answers
        if isinstance(planned, KafkaError):
            reply(planned)
            return
        keys = [(topic, key) for topic in planned for key in topic.keys(group_id)]

        def on_deleted(answers: list[KafkaError | None]) -> None:
            outcomes: dict[str, tuple[TopicId, KafkaError | None]] = {
                topic.name: (topic.topic_id, None) for topic in planned
            }
            for (topic, _), answer in zip(keys, answers, strict=True):
                if answer is not None:
                    outcomes[topic.name] = topic.topic_id, answer
            if planned:
                broker.share_partitions.forget_group(group_id)
            if is_group_deleted or not planned:
                reply(outcomes)  # what is known of states goes with the group
                return
            gone = [topic_id for topic_id, error in outcomes.values() if error is None]
            _note(
                broker,
                group_id,
                lambda taken: (
                    lambda machine, now_ms: note_deleted(machine.state, group_id, gone, taken)
                ),
                lambda answer: reply(outcomes if answer is None else answer),
            )

        gathering = Gathering(len(keys), on_deleted)
        for position, (_, key) in enumerate(keys):
            broker.persister.delete(key, partial(gathering.take, position))

    ask_each([plan], on_planned)


# All of them


def _note(
    broker: Broker, group_id: str, operation: Callable[[Reply], Operation], reply: Reply
) -> None:
    """Write what was done; the answer is None, or the KafkaError that it failed with."""

    def on_noted(answers: list[Any]) -> None:
        reply(answers[0])

    ask_each([(partial(group_shard, broker, group_id), operation)], on_noted)


def _unknown(name: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} does not exist, or nothing is known of it"
    )


def _said(error: KafkaError | None) -> tuple[int, str | None]:
    return (ErrorCode.NONE, None) if error is None else (error.code, error.message)


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: handle_describe_share_group_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: handle_alter_share_group_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: handle_delete_share_group_offsets,
}
