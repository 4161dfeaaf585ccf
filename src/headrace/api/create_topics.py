"""CreateTopics: API key 19, versions 2 to 7.

KIP-4, KIP-464 (-1 for the broker's defaults), KIP-525 (counts and configs in the response, from 5),
KIP-516 (topic ids, from 7), KIP-599 (error messages; quotas, with an error of their own from 6;
validate_only counts as well, as in Kafka). Valid topics are created even if others of
the request are refused. The response has one row per name, also for a name that comes twice, which
is refused. A topic is served when the client hears of it. A timeout of zero or less times out
before anything is done, as in Kafka. validate_only responds as if the topic had been created, with
an id.

Left out: policies (create.topic.policy.class.name).
The work is in `topics.creation` and `topics.assignment`.
"""

from collections.abc import Container, Mapping
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.ddl import CreateTopic
from headrace.server.broker import Broker
from headrace.server.proposals import propose_each, timed_out
from headrace.server.request import Request
from headrace.topics.configs import TopicConfigRows
from headrace.topics.creation import NewTopic, planning, with_defaults
from headrace.topics.validation import (
    PARTITIONS_PER_REQUEST_MAX,
    duplicates,
)
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.create_topics_response import (
    CreatableTopicResult,
    CreateTopicsResponse,
)

FIRST_WITH_CONFIGS: Final = 5
FIRST_STRICT: Final = 6
"""Clients know THROTTLING_QUOTA_EXCEEDED from this version on."""


async def handle(broker: Broker, request: Request) -> CreateTopicsResponse:
    body: CreateTopicsRequest = request.body
    twice = await finish(duplicates(topic.name for topic in body.topics))
    answers = await finish(plan_creation(broker, body, twice))
    if request.is_metered:
        _charge(request, answers)
    if not body.validate_only:
        changes = [change for change in answers.values() if isinstance(change, CreateTopic)]
        errors = await propose_each(broker, changes, body.timeout_ms, request)
        answers |= {
            change.name: error
            for change, error in zip(changes, errors, strict=True)
            if error is not None
        }
    answers |= twice
    return await finish(_create_response(broker, request, answers))


def _charge(request: Request, answers: dict[str, KafkaError | CreateTopic]) -> None:
    """Charge each topic to the client's quota; what is beyond it becomes an error."""
    is_strict = request.version >= FIRST_STRICT
    for name, answer in answers.items():
        if isinstance(answer, CreateTopic):
            try:
                request.toll.change(len(answer.partitions), is_strict=is_strict)
            except KafkaError as error:
                answers[name] = error


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
    answers: dict[str, KafkaError | CreateTopic] = {}
    for name, new_topic in asked.items():
        try:
            if body.timeout_ms <= 0:
                raise timed_out(body.timeout_ms)
            if too_many is not None:
                raise too_many
            answers[name] = yield from planning(broker, new_topic, current)
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
