"""DeleteTopics: API key 20, versions 1 to 6.

KIP-4, KIP-516 (by id, from 6), KIP-599 (error messages; quotas, with an error of their own from 5).
Topics are deleted even if others of the request are refused, and are gone when the client hears of
it. A timeout of zero or less times out before anything is done, as in Kafka.

Left out: leases on a topic are not drained before it is deleted; while there is one, deletion is
refused.
The work is in `metadata.topics`.
"""

from typing import Final

from headrace import config
from headrace.config.values import shorten
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import ZERO_TOPIC_ID, TopicId, TopicName, topic_id_text
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.ddl import DeleteTopic
from headrace.metadata.image import Image
from headrace.metadata.state import Topic
from headrace.metadata.topics import require_topic
from headrace.server.broker import Broker
from headrace.server.proposals import propose_each, timed_out
from headrace.server.request import Request
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.delete_topics_response import (
    DeletableTopicResult,
    DeleteTopicsResponse,
)

FIRST_DELETE_WITH_IDS: Final = 6
FIRST_DELETE_DISABLED_CODE: Final = 3
"""Older clients do not know TOPIC_DELETION_DISABLED."""
FIRST_STRICT: Final = 5
"""Older clients do not know THROTTLING_QUOTA_EXCEEDED."""


async def handle(broker: Broker, request: Request) -> DeleteTopicsResponse:
    body: DeleteTopicsRequest = request.body
    if request.version < FIRST_DELETE_WITH_IDS:
        asked = [DeleteTopicState(name=name) for name in body.topic_names]
    else:
        asked = body.topics
    rows: list[DeletableTopicResult] = []
    found = await finish(_find_deleted(broker, request, asked, rows))
    now_ms = broker.clock.now_ms()
    changes = [DeleteTopic(topic_id, now_ms) for topic_id in found]
    errors = await propose_each(broker, changes, body.timeout_ms, request)
    for row, refusal in zip(found.values(), errors, strict=True):
        _set_error(row, refusal)
    return DeleteTopicsResponse(responses=rows)


def _find_deleted(
    broker: Broker,
    request: Request,
    asked: list[DeleteTopicState],
    rows: list[DeletableTopicResult],
) -> Slices[dict[TopicId, DeletableTopicResult]]:
    """Return the rows of topics that can be deleted; `rows` gets those of all topics."""
    found: dict[TopicId, DeletableTopicResult] = {}
    current = Slice()
    grouped = yield from _by_topic(broker.image, asked, current)
    for states in grouped:
        if current.spend(2):
            yield
        row = DeletableTopicResult(
            name=next((each.name for each in states if each.name is not None), None),
            topic_id=max(each.topic_id for each in states),  # the zero id is the least
        )
        rows.append(row)
        try:
            _check_delete(broker, request, states)
            topic = _find_topic(broker.image, states[0])
            if request.is_metered:
                is_strict = request.version >= FIRST_STRICT
                request.toll.change(len(topic.partitions), is_strict=is_strict)
        except KafkaError as error:
            _set_error(row, error)
        else:
            row.name, row.topic_id = topic.name, topic.topic_id
            found[topic.topic_id] = row
    return found


def _by_topic(
    image: Image, asked: list[DeleteTopicState], current: Slice
) -> Slices[list[list[DeleteTopicState]]]:
    """Put together the elements of a request that mean the same topic, by name or by id."""
    groups: dict[object, list[DeleteTopicState]] = {}
    for state in asked:
        if current.spend():
            yield
        key: object = state.topic_id
        if state.name is not None and state.topic_id != ZERO_TOPIC_ID:
            key = state.name, state.topic_id
        elif state.name is not None:
            topic = image.topic(TopicName(state.name))
            key = state.name if topic is None else topic.topic_id
        groups.setdefault(key, []).append(state)
    return list(groups.values())


def _check_delete(broker: Broker, request: Request, states: list[DeleteTopicState]) -> None:
    if not broker.settings[config.DELETE_TOPIC_ENABLE]:
        raise _deletion_disabled(request.version)
    state, timeout_ms = states[0], request.body.timeout_ms
    if state.name is None and state.topic_id == ZERO_TOPIC_ID:
        reason = "neither a name nor an id says which topic to delete"
    elif state.name is not None and state.topic_id != ZERO_TOPIC_ID:
        reason = f"both a name ({state.name}) and an id say which topic to delete: give one"
    elif len(states) > 1:
        which = state.name or topic_id_text(TopicId(state.topic_id))
        reason = f"topic {which} is in the request more than once"
    elif timeout_ms <= 0:
        raise timed_out(timeout_ms)
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _find_topic(image: Image, state: DeleteTopicState) -> Topic:
    if state.name is None:
        return require_topic(image, TopicId(state.topic_id))
    topic = image.topic(TopicName(state.name))
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {shorten(state.name)}"
        )
    return topic


def _deletion_disabled(version: int) -> KafkaError:
    is_known = version >= FIRST_DELETE_DISABLED_CODE
    return KafkaError(
        ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST,
        "topics cannot be deleted: delete.topic.enable is false",
    )


def _set_error(row: DeletableTopicResult, error: KafkaError | None) -> None:
    if error is not None:
        row.error_code, row.error_message = error.code, error.message
