"""CreateTopics, versions 2 to 7, and DeleteTopics, versions 1 to 6.

KIP-4; KIP-464 (-1 for the broker's defaults), KIP-525 (counts and configs in the answer from
CreateTopics 5), KIP-516 (topic ids; deletion by id from DeleteTopics 6), KIP-599 (error messages).
Good topics of a request are created and deleted even if others are refused. The answer has a row
for each name, one also for a name that comes twice, which is refused. What is created is served,
and what is deleted is gone, when the client hears of it. A timeout of zero or less times out
before anything is done, as it does in Kafka. validate_only answers as if, and has an id as well.

Left out: quotas on changes (KIP-599's throttling), policies (create.topic.policy.class.name).
Leases on a topic are not drained before it is deleted: while there is one, deletion is refused.
"""

from collections.abc import Container, Mapping
from typing import Final

from headrace import config
from headrace.broker.broker import Broker
from headrace.broker.handlers.topic_configs import TopicConfigRows
from headrace.broker.handlers.topic_creation import NewTopic, planning, with_defaults
from headrace.broker.handlers.topic_validation import (
    PARTITIONS_PER_REQUEST_MAX,
    Collisions,
    duplicates,
)
from headrace.broker.proposals import propose_each, timed_out
from headrace.broker.request import Handler, Request
from headrace.broker.slices import Slice, Slices, finish
from headrace.config.values import shorten
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import ZERO_TOPIC_ID, TopicId, TopicName, topic_id_text
from headrace.metadata.ddl import CreateTopic, DeleteTopic
from headrace.metadata.image import Image
from headrace.metadata.state import Topic
from headrace.metadata.topics import require_topic
from headrace.wire import ApiKey
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.create_topics_response import (
    CreatableTopicResult,
    CreateTopicsResponse,
)
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.delete_topics_response import (
    DeletableTopicResult,
    DeleteTopicsResponse,
)

FIRST_WITH_CONFIGS: Final = 5
FIRST_DELETE_WITH_IDS: Final = 6
FIRST_DELETE_DISABLED_CODE: Final = 3
"""Older clients do not know TOPIC_DELETION_DISABLED."""


async def handle_create_topics(broker: Broker, request: Request) -> CreateTopicsResponse:
    body: CreateTopicsRequest = request.body
    twice = duplicates(topic.name for topic in body.topics)
    answers = await finish(plan_creation(broker, body, twice))
    if not body.validate_only:
        changes = [change for change in answers.values() if isinstance(change, CreateTopic)]
        errors = await propose_each(broker, changes, body.timeout_ms)
        answers |= {
            change.name: error
            for change, error in zip(changes, errors, strict=True)
            if error is not None
        }
    answers |= twice
    return await finish(_create_response(broker, request, answers))


def plan_creation(
    broker: Broker, body: CreateTopicsRequest, twice: Container[str]
) -> Slices[dict[str, KafkaError | CreateTopic]]:
    """Return the change that creates each topic which is named once, or why there is none."""
    asked: dict[str, NewTopic] = {}
    current = Slice()
    count = 0
    for topic in body.topics:
        if topic.name not in twice:
            new_topic = asked[topic.name] = _new_topic(topic)
            count += len(new_topic.assignments) or max(with_defaults(broker, new_topic)[0], 0)
        if current.spend(3 + len(topic.assignments) // 2 + len(topic.configs) // 2):
            yield
    too_many = _explain_too_many(count)
    collisions = Collisions(broker.image)
    answers: dict[str, KafkaError | CreateTopic] = {}
    for name, new_topic in asked.items():
        try:
            if body.timeout_ms <= 0:
                raise timed_out(body.timeout_ms)
            if too_many is not None:
                raise too_many
            answers[name] = yield from planning(broker, new_topic, collisions, current)
        except KafkaError as error:
            answers[name] = error
        if current.spend():
            yield
    return answers


def _create_response(
    broker: Broker, request: Request, answers: Mapping[str, KafkaError | CreateTopic]
) -> Slices[CreateTopicsResponse]:
    has_configs = request.version >= FIRST_WITH_CONFIGS
    response = CreateTopicsResponse(topics=[])
    configs = TopicConfigRows(broker)
    current = Slice()
    for name in dict.fromkeys(topic.name for topic in request.body.topics):
        answer = answers[name]
        row = _create_row(name, answer)
        if has_configs and isinstance(answer, CreateTopic):
            row.configs = configs.of(answer.configs)
        response.topics.append(row)
        if current.spend(_CREATED_UNITS):
            yield
    return response


_CREATED_UNITS: Final = 50
"""What a created topic's row costs at most: it has all configs of the topic."""


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple((each.partition_index, each.broker_ids) for each in topic.assignments),
        configs=tuple((each.name, each.value) for each in topic.configs),
    )


def _explain_too_many(count: int) -> KafkaError | None:
    """Refuse the whole of a request that would create more than a controller should in one go."""
    if count <= PARTITIONS_PER_REQUEST_MAX:
        return None
    return KafkaError(
        ErrorCode.POLICY_VIOLATION,
        f"{count} partitions in one request, {PARTITIONS_PER_REQUEST_MAX} are allowed: "
        "create the topics in several requests, or add partitions later",
    )


def _create_row(name: str, answer: KafkaError | CreateTopic) -> CreatableTopicResult:
    if isinstance(answer, KafkaError):
        return CreatableTopicResult(
            name=name, error_code=answer.code, error_message=answer.message, configs=[]
        )
    return CreatableTopicResult(
        name=name,
        topic_id=answer.topic_id,
        error_message=None,
        num_partitions=len(answer.partitions),
        replication_factor=len(answer.partitions[0].replicas),
        configs=[],
    )


async def handle_delete_topics(broker: Broker, request: Request) -> DeleteTopicsResponse:
    body: DeleteTopicsRequest = request.body
    if request.version < FIRST_DELETE_WITH_IDS:
        asked = [DeleteTopicState(name=name) for name in body.topic_names]
    else:
        asked = body.topics
    rows: list[DeletableTopicResult] = []
    found = await finish(_find_deleted(broker, request, asked, rows))
    now_ms = broker.clock.now_ms()
    changes = [DeleteTopic(topic_id, now_ms) for topic_id in found]
    errors = await propose_each(broker, changes, body.timeout_ms)
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


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.CREATE_TOPICS: handle_create_topics,
    ApiKey.DELETE_TOPICS: handle_delete_topics,
}
