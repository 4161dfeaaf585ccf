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

from collections.abc import Mapping
from typing import Final

from headrace import config
from headrace.broker.broker import Broker
from headrace.broker.handlers.topic_configs import topic_config_rows
from headrace.broker.handlers.topic_creation import NewTopic, plan_topic, with_defaults
from headrace.broker.handlers.topic_validation import (
    PARTITIONS_PER_REQUEST_MAX,
    Collisions,
    duplicates,
)
from headrace.broker.proposals import propose_each, timed_out
from headrace.broker.request import Handler, Request
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
    answers: dict[str, KafkaError | CreateTopic] = {}
    twice = duplicates(topic.name for topic in body.topics)
    asked = {topic.name: _new_topic(topic) for topic in body.topics if topic.name not in twice}
    too_many = _explain_too_many(broker, asked)
    collisions = Collisions(broker.image)
    for name, new_topic in asked.items():
        try:
            if body.timeout_ms <= 0:
                raise timed_out(body.timeout_ms)
            if too_many is not None:
                raise too_many
            answers[name] = plan_topic(broker, new_topic, collisions)
        except KafkaError as error:
            answers[name] = error
    if not body.validate_only:
        changes = [change for change in answers.values() if isinstance(change, CreateTopic)]
        errors = await propose_each(broker, changes, body.timeout_ms)
        answers |= {
            change.name: error
            for change, error in zip(changes, errors, strict=True)
            if error is not None
        }
    answers |= twice
    has_configs = request.version >= FIRST_WITH_CONFIGS
    return CreateTopicsResponse(
        topics=[
            _create_row(broker, name, answers[name], has_configs)
            for name in dict.fromkeys(topic.name for topic in body.topics)
        ]
    )


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple((each.partition_index, each.broker_ids) for each in topic.assignments),
        configs=tuple((each.name, each.value) for each in topic.configs),
    )


def _explain_too_many(broker: Broker, asked: Mapping[str, NewTopic]) -> KafkaError | None:
    """Refuse the whole of a request that would create more than a controller should in one go."""
    count = sum(
        len(topic.assignments) or max(with_defaults(broker, topic)[0], 0)
        for topic in asked.values()
    )
    if count <= PARTITIONS_PER_REQUEST_MAX:
        return None
    return KafkaError(
        ErrorCode.POLICY_VIOLATION,
        f"{count} partitions in one request, {PARTITIONS_PER_REQUEST_MAX} are allowed: "
        "create the topics in several requests, or add partitions later",
    )


def _create_row(
    broker: Broker, name: str, answer: KafkaError | CreateTopic, has_configs: bool
) -> CreatableTopicResult:
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
        configs=topic_config_rows(broker, answer.configs) if has_configs else [],
    )


async def handle_delete_topics(broker: Broker, request: Request) -> DeleteTopicsResponse:
    body: DeleteTopicsRequest = request.body
    if request.version < FIRST_DELETE_WITH_IDS:
        asked = [DeleteTopicState(name=name) for name in body.topic_names]
    else:
        asked = body.topics
    rows: list[DeletableTopicResult] = []
    found: dict[TopicId, DeletableTopicResult] = {}
    for states in _by_topic(broker.image, asked):
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
    now_ms = broker.clock.now_ms()
    changes = [DeleteTopic(topic_id, now_ms) for topic_id in found]
    errors = await propose_each(broker, changes, body.timeout_ms)
    for row, refusal in zip(found.values(), errors, strict=True):
        _set_error(row, refusal)
    return DeleteTopicsResponse(responses=rows)


def _by_topic(image: Image, asked: list[DeleteTopicState]) -> list[list[DeleteTopicState]]:
    """Put together the elements of a request that mean the same topic, by name or by id."""
    groups: dict[object, list[DeleteTopicState]] = {}
    for state in asked:
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
