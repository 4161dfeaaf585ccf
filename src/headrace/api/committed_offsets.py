"""Committing offsets: which partitions exist, large commits in slices, the rows of a response."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from headrace.coordinator.machine import Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.offsets.commits import Commit, Refused, TopicOffsets
from headrace.ids import ZERO_TOPIC_ID, TopicId, TopicName
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.image import Image
from headrace.metadata.state import Topic
from headrace.server.gathering import ask_in_slices
from headrace.wire.schema import Message

M = TypeVar("M", bound=Message)
OFFSETS_AT_ONCE: Final = 500
"""How many offsets are committed in one turn of the loop."""


async def commit_in_slices(
    commit: Commit,
    ask: Callable[[Commit, Reply[Refused]], None],
    respond: Callable[["Refused | KafkaError"], Slices[M]],
) -> M:
    """Commit very many offsets, with turns for others on the loop in between.

    Kafka writes them as one batch. These are several: if one is refused, the others hold.
    """
    slices = [commit._replace(topics=topics) for topics in _slices(commit.topics)]
    answers = await ask_in_slices(slices, ask, at_once=1)
    refused = await finish(_refused(slices, answers))
    return await finish(respond(refused))


def _refused(
    parts: Iterable[Commit], answers: Iterable["Refused | KafkaError"]
) -> Slices[dict[tuple[str, int], ErrorCode]]:
    """Return which partitions of all parts were refused."""
    current = Slice()
    refused: dict[tuple[str, int], ErrorCode] = {}
    for part, answer in zip(parts, answers, strict=True):
        if isinstance(answer, KafkaError):
            refused |= {
                (name, each.partition_index): answer.code
                for name, _, partitions in part.topics
                for each in partitions
            }
            if current.spend(OFFSETS_AT_ONCE):
                yield
        else:
            refused |= answer
    return refused


def _slices(topics: Iterable[TopicOffsets]) -> Iterator[list[TopicOffsets]]:
    """Yield the same offsets in lists of a bounded size."""
    some: list[TopicOffsets] = []
    room = OFFSETS_AT_ONCE
    for name, topic_id, partitions in topics:
        start = 0
        while start < len(partitions):
            taken = partitions[start : start + room]
            some.append(TopicOffsets(name, topic_id, taken))
            start += len(taken)
            room -= len(taken)
            if not room:
                yield some
                some, room = [], OFFSETS_AT_ONCE
    if some:
        yield some


# What is asked for
class AskedOffsets(NamedTuple):
    """The partitions of a request: those that exist, and those that do not."""

    existing: list[TopicOffsets]
    missing: list[tuple[str, bytes, list[int], ErrorCode]]
    """Topics by name or id, with partitions and why nothing is committed for them."""

    @property
    def row_count(self) -> int:
        """How many rows the response has."""
        missing = len(self.missing) + sum(len(indexes) for _, _, indexes, _ in self.missing)
        return missing + sum(len(topic.partitions) for topic in self.existing)


def sort_out(image: Image, topics: Iterable[Any], *, is_by_id: bool) -> AskedOffsets:
    """Look up what is to be committed."""
    asked = AskedOffsets([], [])
    for topic in topics:
        partitions = topic.partitions
        found = _find(image, topic, is_by_id=is_by_id)
        if found is None:
            indexes = [each.partition_index for each in partitions]
            if is_by_id:
                asked.missing.append(("", topic.topic_id, indexes, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                asked.missing.append((topic.name, ZERO_TOPIC_ID, indexes, code))
            continue
        count = len(found.partitions)
        beyond = [
            each.partition_index for each in partitions if not 0 <= each.partition_index < count
        ]
        if beyond:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            asked.missing.append((found.name, found.topic_id, beyond, code))
            partitions = [each for each in partitions if 0 <= each.partition_index < count]
        if partitions:
            asked.existing.append(TopicOffsets(found.name, found.topic_id, partitions))
    return asked


def _find(image: Image, topic: Any, *, is_by_id: bool) -> Topic | None:
    if is_by_id:
        return image.topic_by_id(TopicId(topic.topic_id))
    return image.topic(TopicName(topic.name))


# The answer
class OffsetRows(NamedTuple):
    """The types of a response's rows."""

    topic: Callable[..., Any]
    partition: Callable[..., Any]

    def __call__(self, asked: AskedOffsets, answer: "Refused | KafkaError") -> Slices[list[Any]]:
        """Return the rows of topics: what is missing comes first, as Kafka has it."""
        current = Slice()
        code_for_all = answer.code if isinstance(answer, KafkaError) else ErrorCode.NONE
        refused = {} if isinstance(answer, KafkaError) else answer
        rows: list[Any] = []
        by_topic: dict[tuple[str, bytes], Any] = {}
        for name, topic_id, indexes, code in asked.missing:
            row = by_topic.get((name, topic_id))
            if row is None:
                row = by_topic[name, topic_id] = self.topic(name, topic_id, [])
                rows.append(row)
            if current.spend():
                yield
            for index in indexes:
                row.partitions.append(self.partition(index, code))
                if current.spend():
                    yield
        for name, topic_id, partitions in asked.existing:
            row = by_topic.get((name, topic_id))
            if row is None:
                row = self.topic(name, topic_id, [])
                rows.append(row)
            if current.spend():
                yield
            for each in partitions:
                index = each.partition_index
                code = refused.get((name, index), code_for_all) if refused else code_for_all
                row.partitions.append(self.partition(index, code))
                if current.spend():
                    yield
        return rows
