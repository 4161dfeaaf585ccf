"""OffsetFetch: API key 9, versions 1 to 10.

KIP-88 (null topics for all that a group has committed, from 2), KIP-447 (offsets that an open
transaction will change are UNSTABLE_OFFSET_COMMIT for clients that require stable ones, from 7),
KIP-709 (many groups at once, from 8), KIP-848 (members of consumer groups identify themselves, from
9), KIP-516 (topic ids, from 10; unknown ones come last in the response). A group, topic or
partition that does not exist has offset -1 and no error.

The work is in `groups.offsets.fetches`.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final

from headrace.coordinator.machine import Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.machine import GroupsMachine
from headrace.groups.offsets.fetches import (
    FetchedOffset,
    FetchedTopic,
    OffsetQuery,
    OffsetSnapshot,
    fetch_offsets,
    snapshot_offsets,
)
from headrace.ids import ZERO_TOPIC_ID, TopicId, TopicName
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.image import Image
from headrace.server.broker import Broker
from headrace.server.failures import failure_response
from headrace.server.gathering import OperationFor, answer_each, ask_each, ask_in_slices, ask_shard
from headrace.server.request import LATER, Answer, Request
from headrace.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headrace.wire.schema import Message

FIRST_WITH_GROUPS: Final = 8
FIRST_BY_ID: Final = 10
OFFSETS_AT_ONCE: Final = 500
"""How many topics and partitions are looked up in one turn of the loop."""
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    if request.version >= FIRST_WITH_GROUPS:
        if _are_many([each.topics for each in request.body.groups]):
            return _fetch_many_of_groups(broker, request)
        return _fetch_groups(broker, request)
    if _are_many([request.body.topics]):
        return _fetch_many_of_one(broker, request)
    _fetch_one(broker, request)
    return LATER


def _are_many(topics_of_groups: Sequence[Sequence[Any] | None]) -> bool:
    """Return whether these are more topics and partitions than one turn of the loop is for."""
    left = OFFSETS_AT_ONCE
    for topics in topics_of_groups:
        if topics is None:
            return True  # nobody knows how many
        left -= len(topics)
        if left < 0:
            return True
        left -= sum(len(each.partition_indexes) for each in topics)
    return left < 0


# One group


def _fetch_one(broker: Broker, request: Request) -> None:
    body: OffsetFetchRequest = request.body
    topics = None if body.topics is None else [(x.name, x.partition_indexes) for x in body.topics]
    query = OffsetQuery(body.group_id, topics, body.require_stable)

    def on_answer(answers: list[list[FetchedTopic] | KafkaError]) -> None:
        (answer,) = answers
        if isinstance(answer, KafkaError):
            response = failure_response(request, answer.code, answer.message)
        else:
            response = OffsetFetchResponse(
                topics=[
                    OffsetFetchResponseTopic(
                        name=topic,
                        partitions=[_row(each, OffsetFetchResponsePartition) for each in fetched],
                    )
                    for topic, fetched in answer
                ]
            )
        request.answer(response)

    ask_each([(partial(broker.groups.shard, query.group_id), _look_up(query))], on_answer)


# Many groups


def _fetch_groups(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    body: OffsetFetchRequest = request.body
    image, is_by_id = broker.image, request.version >= FIRST_BY_ID

    def fetch(group: OffsetFetchRequestGroup, reply: Reply[list[FetchedTopic]]) -> None:
        query = OffsetQuery(
            group.group_id,
            _known_topics(image, group, is_by_id=is_by_id),
            body.require_stable,
            group.member_id,
            group.member_epoch,
        )
        ask_shard(partial(broker.groups.shard, query.group_id), _look_up(query), reply)

    def row(
        group: OffsetFetchRequestGroup, answer: list[FetchedTopic] | KafkaError
    ) -> OffsetFetchResponseGroup:
        row = OffsetFetchResponseGroup(group_id=group.group_id)
        if isinstance(answer, KafkaError):
            row.error_code = answer.code
            return row
        row.topics = _topic_rows(image, answer, is_by_id=is_by_id)
        if is_by_id:
            row.topics += _unknown_rows(image, group)
        return row

    return answer_each(
        request, body.groups, fetch, row, lambda rows: OffsetFetchResponse(groups=rows)
    )


def _known_topics(
    image: Image, group: OffsetFetchRequestGroup, *, is_by_id: bool
) -> Sequence[tuple[str, list[int]]] | None:
    if group.topics is None:
        return None
    if not is_by_id:
        return [(each.name, each.partition_indexes) for each in group.topics]
    found = ((image.topic_by_id(TopicId(each.topic_id)), each) for each in group.topics)
    return [(topic.name, each.partition_indexes) for topic, each in found if topic is not None]


def _topic_rows(
    image: Image, fetched: Sequence[FetchedTopic], *, is_by_id: bool
) -> list[OffsetFetchResponseTopics]:
    rows = []
    for name, offsets in fetched:
        topic_id: bytes = ZERO_TOPIC_ID
        if is_by_id:
            topic = image.topic(TopicName(name))
            if topic is None:
                continue  # it was deleted, and its offsets are about to be
            topic_id = topic.topic_id
        partitions = [_row(each, OffsetFetchResponsePartitions) for each in offsets]
        rows.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions))
    return rows


def _unknown_rows(image: Image, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            topic_id=each.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(
                    index, NO_OFFSET, NO_EPOCH, "", ErrorCode.UNKNOWN_TOPIC_ID
                )
                for index in each.partition_indexes
            ],
        )
        for each in group.topics or ()
        if image.topic_by_id(TopicId(each.topic_id)) is None
    ]


# Very many offsets


async def _fetch_many_of_one(broker: Broker, request: Request) -> OffsetFetchResponse:
    body: OffsetFetchRequest = request.body
    topics = None if body.topics is None else [(x.name, x.partition_indexes) for x in body.topics]
    query = OffsetQuery(body.group_id, topics, body.require_stable)
    (snapshot,) = await _snapshots(broker, [query])
    if isinstance(snapshot, KafkaError):
        raise snapshot
    current, rows = Slice(), list[OffsetFetchResponseTopic]()

    def fill() -> Slices[None]:
        for name, indexes in _topics_of(query, snapshot):
            row = OffsetFetchResponseTopic(name=name, partitions=[])
            rows.append(row)
            kind = OffsetFetchResponsePartition
            yield from _fill(row.partitions, snapshot, (name, indexes), kind, current)

    await finish(fill())
    return OffsetFetchResponse(topics=rows)


async def _fetch_many_of_groups(broker: Broker, request: Request) -> OffsetFetchResponse:
    body: OffsetFetchRequest = request.body
    image, is_by_id = broker.image, request.version >= FIRST_BY_ID
    current, rows = Slice(), list[OffsetFetchResponseGroup]()
    queries: list[OffsetQuery] = []

    def make_queries() -> Slices[None]:
        for group in body.groups:
            topics = _known_topics(image, group, is_by_id=is_by_id)
            member = group.member_id, group.member_epoch
            queries.append(OffsetQuery(group.group_id, topics, body.require_stable, *member))
            if current.spend(1 + len(group.topics or ())):
                yield

    def fill() -> Slices[None]:
        for group, query, snapshot in zip(body.groups, queries, snapshots, strict=True):
            row = OffsetFetchResponseGroup(group_id=group.group_id)
            rows.append(row)
            if current.spend():
                yield
            if isinstance(snapshot, KafkaError):
                row.error_code = snapshot.code
                continue
            for name, indexes in _topics_of(query, snapshot):
                topic = image.topic(TopicName(name)) if is_by_id else None
                if is_by_id and topic is None:
                    continue  # it was deleted, and its offsets are about to be
                topic_id = ZERO_TOPIC_ID if topic is None else topic.topic_id
                each = OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=[])
                row.topics.append(each)
                kind = OffsetFetchResponsePartitions
                yield from _fill(each.partitions, snapshot, (name, indexes), kind, current)
            if is_by_id:
                for asked in group.topics or ():
                    alone = OffsetFetchRequestGroup(group.group_id, topics=[asked])
                    row.topics += _unknown_rows(image, alone)
                    if current.spend(1 + len(asked.partition_indexes)):
                        yield

    await finish(make_queries())
    snapshots = await _snapshots(broker, queries)
    await finish(fill())
    return OffsetFetchResponse(groups=rows)


async def _snapshots(
    broker: Broker, queries: Sequence[OffsetQuery]
) -> list[OffsetSnapshot | KafkaError]:
    def ask(query: OffsetQuery, reply: Reply[OffsetSnapshot]) -> None:
        ask_shard(
            partial(broker.groups.shard, query.group_id),
            lambda reply: lambda machine, now_ms: snapshot_offsets(machine.state, query, reply),
            reply,
        )

    return await ask_in_slices(queries, ask, at_once=1)


def _topics_of(
    query: OffsetQuery, snapshot: OffsetSnapshot
) -> Iterable[tuple[str, Collection[int]]]:
    return snapshot.committed.items() if query.topics is None else query.topics


def _fill(
    rows: list[Any],
    snapshot: OffsetSnapshot,
    asked: tuple[str, Collection[int]],
    kind: Callable[..., Any],
    current: Slice,
) -> Slices[None]:
    """Append the rows of a topic's partitions."""
    name, indexes = asked
    if current.spend():
        yield
    for index in indexes:
        rows.append(_row(snapshot.fetched(name, index), kind))
        if current.spend():
            yield


# All of them


def _look_up(query: OffsetQuery) -> OperationFor[list[FetchedTopic], GroupsMachine]:
    return lambda reply: lambda machine, now_ms: fetch_offsets(machine.state, query, reply)


def _row(fetched: FetchedOffset, kind: Callable[..., Any]) -> Any:
    index, committed, is_unstable = fetched
    if committed is None:
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else ErrorCode.NONE
        return kind(index, NO_OFFSET, NO_EPOCH, "", code)
    return kind(index, committed.offset, committed.leader_epoch, committed.metadata)
