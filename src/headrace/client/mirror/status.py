"""How far a mirror is behind its source, from what both clusters have."""

import msgspec

from headrace.client.admin import Admin
from headrace.client.mirror.choice import Choice
from headrace.client.mirror.group_positions import GroupCopy, GroupPositions
from headrace.client.mirror.raw import extents
from headrace.client.mirror.topic_copies import CopyOptions, MirroredTopic, TopicCopies
from headrace.client.topics import TopicPartition
from headrace.errors import KafkaError


class PartitionStatus(msgspec.Struct, frozen=True):
    """A partition in both clusters. Offsets are -1 if they are not known."""

    topic: str
    partition: int
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    lag: int
    problem: str


class Status(msgspec.Struct, frozen=True):
    """What is mirrored, and how far."""

    topics: list[MirroredTopic]
    """All that were chosen, those that are not mirrored yet included."""
    partitions: list[PartitionStatus]
    groups: list[GroupCopy]


async def read_status(source: Admin, target: Admin, topics: Choice, groups: Choice) -> Status:
    """Compare two clusters without a change to either."""
    options = CopyOptions(topics=topics, is_dry_run=True)
    found = await TopicCopies(source, target, options).refresh()
    partitions = [
        TopicPartition(topic.name, index)
        for topic in found
        if not topic.problem and not topic.is_new
        for index in range(topic.partitions)
    ]
    there = {topic.name: len(topic.partitions) for topic in await target.list_topics()}
    partitions = [each for each in partitions if each.partition < there.get(each.topic, 0)]
    theirs = await extents(source.cluster, partitions)
    ours = await extents(target.cluster, partitions)
    rows: list[PartitionStatus] = []
    ends: dict[TopicPartition, int] = {}
    for partition in partitions:
        left, right = theirs[partition], ours[partition]
        if isinstance(left, KafkaError) or isinstance(right, KafkaError):
            problem = left if isinstance(left, KafkaError) else right
            assert isinstance(problem, KafkaError)
            rows.append(PartitionStatus(*partition, -1, -1, -1, -1, -1, problem.message))
            continue
        lag = max(left.end - right.end, 0)
        problem_text = "the source ends before the target" if right.end > left.end else ""
        rows.append(PartitionStatus(*partition, *left, *right, lag, problem_text))
        ends[partition] = right.end
    positions = GroupPositions(source, target, groups)
    return Status(found, rows, await positions.refresh(ends, is_dry_run=True))
