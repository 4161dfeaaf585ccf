"""OffsetFetch, versions 1 to 10.

KIP-88 (null topics for all that a group has committed, from 2), KIP-447 (offsets that a transaction
under way will change are UNSTABLE_OFFSET_COMMIT to who requires stable ones, from 7), KIP-709 (many
groups at once, from 8), KIP-848 (members of consumer groups say who they are, from 9), KIP-516
(topic ids, from 10; unknown ones come last in the answer). A group, topic or partition that does
not exist has no offset: -1, and no error.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from headrace.broker.broker import Broker
from headrace.broker.failures import failure_response
from headrace.broker.handlers.gathering import answer_each, ask_each, ask_shard
from headrace.broker.request import LATER, Answer, Handler, Request
from headrace.coordinator.machine import Operation, Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.offsets.fetches import FetchedOffset, FetchedTopic, OffsetQuery, fetch_offsets
from headrace.ids import ZERO_TOPIC_ID, TopicId, TopicName
from headrace.metadata.image import Image
from headrace.wire import ApiKey
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
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1


def handle_offset_fetch(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    if request.version >= FIRST_WITH_GROUPS:
        return _fetch_groups(broker, request)
    _fetch_one(broker, request)
    return LATER


# One group


def _fetch_one(broker: Broker, request: Request) -> None:
    body: OffsetFetchRequest = request.body
    topics = None if body.topics is None else [(x.name, x.partition_indexes) for x in body.topics]
    query = OffsetQuery(body.group_id, topics, body.require_stable)

    def on_answer(answers: list[Any]) -> None:
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

    def fetch(group: OffsetFetchRequestGroup, reply: Reply) -> None:
        query = OffsetQuery(
            group.group_id,
            _known_topics(image, group, is_by_id=is_by_id),
            body.require_stable,
            group.member_id,
            group.member_epoch,
        )
        ask_shard(partial(broker.groups.shard, query.group_id), _look_up(query), reply)

    def row(group: OffsetFetchRequestGroup, answer: Any) -> OffsetFetchResponseGroup:
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


# Both


def _look_up(query: OffsetQuery) -> Callable[[Reply], Operation]:
    return lambda reply: lambda machine, now_ms: fetch_offsets(machine.state, query, reply)


def _row(fetched: FetchedOffset, kind: Callable[..., Any]) -> Any:
    index, committed, is_unstable = fetched
    if committed is None:
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else ErrorCode.NONE
        return kind(index, NO_OFFSET, NO_EPOCH, "", code)
    return kind(index, committed.offset, committed.leader_epoch, committed.metadata)


HANDLERS: Final[dict[ApiKey, Handler]] = {ApiKey.OFFSET_FETCH: handle_offset_fetch}
