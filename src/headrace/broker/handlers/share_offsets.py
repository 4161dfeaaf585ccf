"""DescribeShareGroupOffsets v0 and 1, AlterShareGroupOffsets v0, DeleteShareGroupOffsets v0.

KIP-932; DescribeShareGroupOffsets 1 has the lag (KIP-1226): the records from the start of a share
partition up to what its group may read, without those that it is done with; -1 where one of these
is not known, or known to another node. What a group has no state of begins at -1, and is no error,
nor is a group that does not exist. AlterShareGroupOffsets begins a group that there is not. Neither
it nor DeleteShareGroupOffsets touches a group that has members.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from headrace.broker.broker import Broker
from headrace.broker.failures import failure_response
from headrace.broker.handlers.gathering import ask_each, ask_in_slices, ask_in_turns, ask_shard
from headrace.broker.handlers.group_descriptions import group_shard
from headrace.broker.handlers.share_groups import NO_LEADER_EPOCH, check_served
from headrace.broker.request import LATER, Answer, Handler, Request
from headrace.broker.share_lag import begun_summary, share_lag
from headrace.broker.slices import Slice, Slices, finish
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

UNITS_OF_A_LAG: Final = 4
"""What a row with a lag costs, in units of a slice."""

# Describing


async def handle_describe_share_group_offsets(
    broker: Broker, request: Request
) -> DescribeShareGroupOffsetsResponse:
    body: DescribeShareGroupOffsetsRequest = request.body
    check_served(broker)

    def look_up(asked: DescribeShareGroupOffsetsRequestGroup, reply: Reply) -> None:
        def operation(reply: Reply) -> Operation:
            return lambda machine, now_ms: known_offsets(machine.state, asked.group_id, reply)

        ask_shard(partial(group_shard, broker, asked.group_id), operation, reply)

    def read(place: _Described, reply: Reply) -> None:
        broker.persister.read_summary(place.key, NO_LEADER_EPOCH, reply)

    known = await ask_in_slices(body.groups, look_up)
    groups, existing = await finish(_group_rows(broker, body.groups, known))
    summaries = await ask_in_slices(existing, read)
    await finish(_fill_rows(broker, existing, summaries))
    return DescribeShareGroupOffsetsResponse(groups=groups)


class _Described(NamedTuple):
    """A share partition that exists, and the row that says where its group is."""

    key: SharePartitionKey
    row: DescribeShareGroupOffsetsResponsePartition


def _group_rows(
    broker: Broker,
    asked: Sequence[DescribeShareGroupOffsetsRequestGroup],
    known: Sequence[list[KnownTopic] | KafkaError],
) -> Slices[tuple[list[DescribeShareGroupOffsetsResponseGroup], list[_Described]]]:
    """Return the rows of groups, and those partitions of which the state has to be read."""
    current = Slice()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []
    existing: list[_Described] = []
    for group, answer in zip(asked, known, strict=True):
        row = DescribeShareGroupOffsetsResponseGroup(group.group_id)
        groups.append(row)
        if isinstance(answer, KafkaError):
            row.error_code, row.error_message = answer.code, answer.message
            continue
        for name, topic_id, indexes in (
            answer if group.topics is None else _asked_topics(broker, group)
        ):
            topic = DescribeShareGroupOffsetsResponseTopic(name, topic_id, [])
            row.topics.append(topic)
            if current.spend():
                yield
            for index in indexes:
                described = DescribeShareGroupOffsetsResponsePartition(index, UNKNOWN_OFFSET)
                topic.partitions.append(described)
                if broker.image.partition(TopicName(name), PartitionIndex(index)) is not None:
                    key = SharePartitionKey(group.group_id, topic_id, PartitionIndex(index))
                    existing.append(_Described(key, described))
                if current.spend():
                    yield
    return groups, existing


def _asked_topics(broker: Broker, asked: DescribeShareGroupOffsetsRequestGroup) -> list[KnownTopic]:
    """Return the topics that a request names, each once, and those that do not exist without id."""
    indexes: dict[str, dict[int, None]] = {}
    for row in asked.topics or ():
        indexes.setdefault(row.topic_name, {}).update(dict.fromkeys(row.partitions))
    return [
        KnownTopic(name, _topic_id(broker, name), tuple(named)) for name, named in indexes.items()
    ]


def _topic_id(broker: Broker, name: str) -> TopicId:
    topic = broker.image.topic(TopicName(name))
    return ZERO_TOPIC_ID if topic is None else topic.topic_id


def _fill_rows(
    broker: Broker, existing: Sequence[_Described], answers: Sequence[StateSummary | KafkaError]
) -> Slices[None]:
    """Write what was read into the rows of partitions."""
    current = Slice()
    for (key, row), answer in zip(existing, answers, strict=True):
        if isinstance(answer, KafkaError):
            row.error_code, row.error_message = answer.code, answer.message
        else:
            summary = begun_summary(broker, key, answer)
            row.start_offset, row.leader_epoch = summary.start_offset, summary.leader_epoch
            row.lag = share_lag(broker, key, summary)
        if current.spend(UNITS_OF_A_LAG):
            yield


# Altering


async def handle_alter_share_group_offsets(
    broker: Broker, request: Request
) -> AlterShareGroupOffsetsResponse:
    body: AlterShareGroupOffsetsRequest = request.body
    check_served(broker)
    offsets = await finish(_new_offsets(broker, body))

    def plan(reply: Reply) -> Operation:
        return lambda machine, now_ms: begin_alteration(
            machine.state, body.group_id, offsets, reply
        )

    def begin(beginning: Beginning, reply: Reply) -> None:
        key, state_epoch, start_offset = beginning
        broker.persister.initialize(key, state_epoch, start_offset, reply)

    planned = await _ask_group(broker, body.group_id, plan)
    answers = await ask_in_slices(planned, begin)
    outcomes = {each.key: answer for each, answer in zip(planned, answers, strict=True)}
    done = [key for key, answer in outcomes.items() if answer is None]
    broker.share_partitions.forget_group(body.group_id)

    def note(reply: Reply) -> Operation:
        return lambda machine, now_ms: note_begun(machine.state, body.group_id, done, now_ms, reply)

    await _ask_group(broker, body.group_id, note)
    return await finish(_altered(broker, body, outcomes))


async def _ask_group(broker: Broker, group_id: str, operation: Callable[[Reply], Operation]) -> Any:
    """Do an operation in a group's shard and return its answer, or raise its KafkaError."""
    find = partial(group_shard, broker, group_id)
    (answer,) = await ask_in_slices([operation], partial(ask_shard, find))
    if isinstance(answer, KafkaError):
        raise answer
    return answer


def _new_offsets(
    broker: Broker, body: AlterShareGroupOffsetsRequest
) -> Slices[dict[str, dict[int, int]]]:
    """Return where each partition that exists is to begin."""
    current = Slice()
    offsets: dict[str, dict[int, int]] = {}
    for asked in body.topics:
        topic = broker.image.topic(TopicName(asked.topic_name))
        count = 0 if topic is None else len(topic.partitions)
        starts = offsets.setdefault(asked.topic_name, {})
        if current.spend():
            yield
        for row in asked.partitions:
            if row.start_offset >= UNKNOWN_OFFSET and 0 <= row.partition_index < count:
                starts[row.partition_index] = row.start_offset
            if current.spend():
                yield
    return offsets


def _altered(
    broker: Broker,
    body: AlterShareGroupOffsetsRequest,
    outcomes: dict[SharePartitionKey, KafkaError | None],
) -> Slices[AlterShareGroupOffsetsResponse]:
    current = Slice()
    rows: dict[str, AlterShareGroupOffsetsResponseTopic] = {}
    for asked in body.topics:
        topic_id = _topic_id(broker, asked.topic_name)
        row = rows.setdefault(
            asked.topic_name, AlterShareGroupOffsetsResponseTopic(asked.topic_name, topic_id, [])
        )
        if current.spend():
            yield
        for each in asked.partitions:
            index = PartitionIndex(each.partition_index)
            key = SharePartitionKey(body.group_id, topic_id, index)
            error: KafkaError | None
            if each.start_offset < UNKNOWN_OFFSET:
                error = KafkaError(ErrorCode.INVALID_REQUEST, f"{each.start_offset} is no offset")
            elif key in outcomes:
                error = outcomes[key]
            else:
                error = _unknown(f"{asked.topic_name}-{index}")
            code, message = _said(error)
            row.partitions.append(AlterShareGroupOffsetsResponsePartition(index, code, message))
            if current.spend():
                yield
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

        def delete(place: tuple[KnownTopic, SharePartitionKey], reply: Reply) -> None:
            broker.persister.delete(place[1], reply)

        ask_in_turns(keys, delete, on_deleted)

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
