"""Admin requests for a share group's offsets.

A share group has no committed offsets. It has a start offset per partition, before which every
record is done, and a state for every record after it: moving the start discards these states.
"""

from collections.abc import Mapping, Sequence

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.coordinators import CoordinatorType, ask_coordinator
from headrace.client.errors import raise_for, refusal
from headrace.client.leaders import by_topic
from headrace.client.outcomes import Outcomes
from headrace.client.topics import TopicPartition
from headrace.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from headrace.wire.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
)
from headrace.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from headrace.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
)


class ShareStart(msgspec.Struct, frozen=True):
    """Where a share group is in a partition."""

    offset: int | None
    """Every record before it is done; None until the first fetch."""
    lag: int | None
    """How many records it is not done with; None where the broker does not know."""


async def describe_share_offsets(
    cluster: Cluster, group_id: str
) -> Outcomes[TopicPartition, ShareStart]:
    """Return a share group's offsets in every partition that it knows, sorted.

    Empty for a group that does not exist.
    """
    row = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    answer = await ask_coordinator(
        cluster,
        CoordinatorType.GROUP,
        group_id,
        DescribeShareGroupOffsetsRequest(groups=[row]),
        DescribeShareGroupOffsetsResponse,
        code_of=lambda answer: answer.groups[0].error_code,
    )
    (group,) = answer.groups
    raise_for(group.error_code, group.error_message, f"the offsets of share group {group_id!r}")
    found: Outcomes[TopicPartition, ShareStart] = {}
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.topic_name, each.partition_index)
            found[partition] = (
                refusal(each.error_code, each.error_message, f"partition {partition}")
                if each.error_code
                else ShareStart(_known(each.start_offset), _known(each.lag))
            )
    return dict(sorted(found.items()))


async def alter_share_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> Outcomes[TopicPartition, None]:
    """Set the start offsets of a share group without members; return an outcome for each partition.

    A group that does not exist is created. Raise KafkaError if there are members.
    """
    body = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=index, start_offset=offsets[TopicPartition(topic, index)]
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ],
    )
    answer = await ask_coordinator(
        cluster,
        CoordinatorType.GROUP,
        group_id,
        body,
        AlterShareGroupOffsetsResponse,
        code_of=lambda answer: answer.error_code,
    )
    raise_for(answer.error_code, answer.error_message, f"share group {group_id!r}")
    return {
        TopicPartition(topic.topic_name, row.partition_index): refusal(
            row.error_code, row.error_message, f"{topic.topic_name}-{row.partition_index}"
        )
        if row.error_code
        else None
        for topic in answer.responses
        for row in topic.partitions
    }


async def delete_share_offsets(
    cluster: Cluster, group_id: str, topics: Sequence[str]
) -> Outcomes[str, None]:
    """Delete topics' states of a share group without members; return an outcome for each topic.

    Raise KafkaError if there is no such group, or if it has members.
    """
    body = DeleteShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics],
    )
    answer = await ask_coordinator(
        cluster,
        CoordinatorType.GROUP,
        group_id,
        body,
        DeleteShareGroupOffsetsResponse,
        code_of=lambda answer: answer.error_code,
    )
    raise_for(answer.error_code, answer.error_message, f"share group {group_id!r}")
    return {
        row.topic_name: refusal(row.error_code, row.error_message, f"topic {row.topic_name!r}")
        if row.error_code
        else None
        for row in answer.responses
    }


def _known(number: int) -> int | None:
    return None if number < 0 else number
