"""DescribeShareGroupOffsets: API key 90, versions 0 and 1.

KIP-932, KIP-1226 (the lag, from 1: the records from the start of a share partition up to what its
group may read, without those that it is done with; -1 where one of these is not known; the leaders
of partitions on other nodes are asked). A partition without a state begins at -1, which is not an
error, nor is a group that does not exist.

The work is in `groups.share.offsets`, `share.lag` and `share.end_offsets`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from headrace.api.groups import check_share_groups, group_shard
from headrace.api.share_group_offsets import topic_id_of
from headrace.coordinator.machine import Operation, Reply
from headrace.errors import KafkaError
from headrace.groups.machine import GroupsMachine
from headrace.groups.share.offsets import (
    KnownTopic,
    known_offsets,
)
from headrace.ids import UNKNOWN_OFFSET, PartitionIndex, SharePartitionKey, TopicName
from headrace.loop.slices import Slice, Slices, finish
from headrace.server.broker import Broker
from headrace.server.gathering import ask_in_slices, ask_shard
from headrace.server.request import Request
from headrace.share.durable import NO_LEADER_EPOCH, StateSummary
from headrace.share.end_offsets import EndOffsets
from headrace.share.lag import begun_summary, share_lag
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


async def handle(broker: Broker, request: Request) -> DescribeShareGroupOffsetsResponse:
    body: DescribeShareGroupOffsetsRequest = request.body
    check_share_groups(broker)

    def look_up(
        asked: DescribeShareGroupOffsetsRequestGroup, reply: Reply[list[KnownTopic]]
    ) -> None:
        def operation(reply: Reply[list[KnownTopic]]) -> Operation[GroupsMachine]:
            return lambda machine, now_ms: known_offsets(machine.state, asked.group_id, reply)

        ask_shard(partial(group_shard, broker, asked.group_id), operation, reply)

    def read(place: _Described, reply: Reply[StateSummary]) -> None:
        broker.persister.read_summary(place.key, NO_LEADER_EPOCH, reply)

    known = await ask_in_slices(body.groups, look_up)
    groups, existing = await finish(_group_rows(broker, body.groups, known))
    summaries = await ask_in_slices(existing, read)
    elsewhere = await broker.end_offsets.read([place.key for place in existing])
    await finish(_fill_rows(broker, existing, summaries, elsewhere))
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
        KnownTopic(name, topic_id_of(broker, name), tuple(named)) for name, named in indexes.items()
    ]


def _fill_rows(
    broker: Broker,
    existing: Sequence[_Described],
    answers: Sequence[StateSummary | KafkaError],
    elsewhere: EndOffsets,
) -> Slices[None]:
    """Write what was read into the rows of partitions."""
    current = Slice()
    for (key, row), answer in zip(existing, answers, strict=True):
        if isinstance(answer, KafkaError):
            row.error_code, row.error_message = answer.code, answer.message
        else:
            summary = begun_summary(broker.share_partitions, key, answer)
            row.start_offset, row.leader_epoch = summary.start_offset, summary.leader_epoch
            row.lag = share_lag(broker.replicas, key, summary, elsewhere)
        if current.spend(UNITS_OF_A_LAG):
            yield
