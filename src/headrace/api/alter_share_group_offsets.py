"""AlterShareGroupOffsets: API key 91, version 0.

KIP-932. Creates a group that does not exist. A group with members is NON_EMPTY_GROUP.

The work is in `groups.share.offsets`.
"""

from functools import partial
from typing import TypeVar

from headrace.api.groups import check_share_groups, group_shard
from headrace.api.share_group_offsets import code_and_message, topic_id_of, unknown_partition
from headrace.coordinator.machine import Operation, Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.machine import GroupsMachine
from headrace.groups.share.offsets import (
    begin_alteration,
)
from headrace.groups.share.states import Beginning, note_begun
from headrace.ids import UNKNOWN_OFFSET, PartitionIndex, SharePartitionKey, TopicName
from headrace.loop.slices import Slice, Slices, finish
from headrace.server.broker import Broker
from headrace.server.gathering import OperationFor, ask_in_slices, ask_shard
from headrace.server.request import Request
from headrace.wire.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
from headrace.wire.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

A = TypeVar("A")


async def handle(broker: Broker, request: Request) -> AlterShareGroupOffsetsResponse:
    body: AlterShareGroupOffsetsRequest = request.body
    check_share_groups(broker)
    offsets = await finish(_new_offsets(broker, body))

    def plan(reply: Reply[list[Beginning]]) -> Operation[GroupsMachine]:
        return lambda machine, now_ms: begin_alteration(
            machine.state, body.group_id, offsets, reply
        )

    def begin(beginning: Beginning, reply: Reply[None]) -> None:
        key, state_epoch, start_offset = beginning
        broker.persister.initialize(key, state_epoch, start_offset, reply)

    planned = await _ask_group(broker, body.group_id, plan)
    answers = await ask_in_slices(planned, begin)
    outcomes = {each.key: answer for each, answer in zip(planned, answers, strict=True)}
    done = [key for key, answer in outcomes.items() if answer is None]
    broker.share_partitions.forget_group(body.group_id)

    def note(reply: Reply[None]) -> Operation[GroupsMachine]:
        return lambda machine, now_ms: note_begun(machine.state, body.group_id, done, now_ms, reply)

    await _ask_group(broker, body.group_id, note)
    return await finish(_altered(broker, body, outcomes))


async def _ask_group(broker: Broker, group_id: str, operation: OperationFor[A, GroupsMachine]) -> A:
    """Run an operation in a group's shard; return its result, or raise its KafkaError."""

    def ask(operation: OperationFor[A, GroupsMachine], reply: Reply[A]) -> None:
        ask_shard(partial(group_shard, broker, group_id), operation, reply)

    (answer,) = await ask_in_slices([operation], ask)
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
        topic_id = topic_id_of(broker, asked.topic_name)
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
                error = unknown_partition(f"{asked.topic_name}-{index}")
            code, message = code_and_message(error)
            row.partitions.append(AlterShareGroupOffsetsResponsePartition(index, code, message))
            if current.spend():
                yield
    return AlterShareGroupOffsetsResponse(responses=list(rows.values()))
