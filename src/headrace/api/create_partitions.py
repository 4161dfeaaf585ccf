"""CreatePartitions: API key 37, versions 0 to 3.

KIP-195, KIP-599 (error messages; quotas, with an error of their own from 3). A topic only grows, to
the count that is asked for. Unless the request names brokers for the new partitions, they get as
many replicas as partition 0 has. The response has one row per name, also for a name that comes
twice, which is refused. New partitions are served when the client hears of them.

Different from Kafka: internal topics do not grow. Beyond the bound on partitions of one request the
error is POLICY_VIOLATION, as for CreateTopics; Kafka's own is UNKNOWN_SERVER_ERROR.

The work is in `topics.assignment` and `topics.creation`.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

from headrace.config.values import shorten
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, TopicName
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.ddl import AddPartitions, Assignment
from headrace.metadata.image import Image
from headrace.metadata.state import Topic
from headrace.server.broker import Broker
from headrace.server.proposals import propose_planned, timed_out
from headrace.server.request import Request
from headrace.surroundings import new_random
from headrace.topics.assignment import Placement
from headrace.topics.creation import candidates, with_roles
from headrace.topics.validation import (
    INTERNAL_TOPICS,
    PARTITIONS_PER_REQUEST_MAX,
    check_assignments,
    duplicates,
)
from headrace.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

FIRST_STRICT: Final = 3
"""Clients know THROTTLING_QUOTA_EXCEEDED from this version on."""


async def handle(broker: Broker, request: Request) -> CreatePartitionsResponse:
    body: CreatePartitionsRequest = request.body
    twice = await finish(duplicates(topic.name for topic in body.topics))
    errors: dict[str, KafkaError | None] = dict(twice)
    changes = await finish(_plan_each(broker, request, errors))
    if not body.validate_only:
        topics = {topic.name: topic for topic in body.topics}
        asked = [topics[name] for name in changes]
        answers = await propose_planned(
            broker,
            list(changes.values()),
            lambda position: plan_growth(
                broker.image, asked[position], PARTITIONS_PER_REQUEST_MAX, Slice()
            ),
            body.timeout_ms,
            request,
        )
        errors |= dict(zip(changes, answers, strict=True))
    return CreatePartitionsResponse(results=await finish(rows_of(body.topics, errors)))


def _plan_each(
    broker: Broker, request: Request, errors: dict[str, KafkaError | None]
) -> Slices[dict[str, AddPartitions]]:
    """Return the changes by topic; what is refused is put among the errors."""
    body: CreatePartitionsRequest = request.body
    changes: dict[str, AddPartitions] = {}
    current = Slice()
    left = PARTITIONS_PER_REQUEST_MAX
    for asked in body.topics:
        if current.spend(5):
            yield
        if asked.name in errors:
            continue
        try:
            if body.timeout_ms <= 0:
                raise timed_out(body.timeout_ms)
            change = yield from plan_growth(broker.image, asked, left, current)
            if request.is_metered:
                is_strict = request.version >= FIRST_STRICT
                request.toll.change(len(change.partitions), is_strict=is_strict)
        except KafkaError as error:
            errors[asked.name] = error
        else:
            left -= len(change.partitions)
            changes[asked.name] = change
    return changes


def plan_growth(
    image: Image, asked: CreatePartitionsTopic, partitions_max: int, current_slice: Slice
) -> Slices[AddPartitions]:
    """Return the change that grows a topic; raise KafkaError if the request is invalid.

    `partitions_max` is how many more partitions the request may create.
    """
    topic = image.topic(TopicName(asked.name))
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {shorten(asked.name)}"
        )
    if topic.name in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{topic.name} keeps its number of partitions: where its records are depends on it, "
            "and brokers would look for those that are there in other places",
        )
    current = len(topic.partitions)
    if asked.count <= current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} has {current} partitions already and cannot have {asked.count}: "
            "it can only grow",
        )
    added = asked.count - current
    if added > partitions_max:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{added} new partitions of topic {topic.name} in one request that creates more than "
            f"{PARTITIONS_PER_REQUEST_MAX} in all: add them in several",
        )
    place = _placer(image, topic, asked, added)
    assigned: list[Assignment] = []
    while len(assigned) < added:
        placed = place(min(added - len(assigned), _PLACED_AT_ONCE))
        assigned += with_roles(image, placed)
        if current_slice.spend(2 * len(placed) * len(placed[0])):
            yield
    return AddPartitions(topic.topic_id, current, tuple(assigned))


def _placer(
    image: Image, topic: Topic, asked: CreatePartitionsTopic, added: int
) -> Callable[[int], list[tuple[BrokerId, ...]]]:
    """Return what gives the replicas of the next partitions."""
    replication_factor = len(topic.partitions[0].replicas)
    if asked.assignments is None:
        return Placement(
            candidates(image), replication_factor, start=new_random().randrange(2**16)
        ).place
    if len(asked.assignments) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{added} partitions are to be added to topic {topic.name}, but brokers are named for "
            f"{len(asked.assignments)}: name them for each or for none",
        )
    chosen = iter([each.broker_ids for each in asked.assignments])
    return lambda partitions: check_assignments(
        islice(chosen, partitions), image, replication_factor
    )


_PLACED_AT_ONCE: Final = 100


def rows_of(
    topics: Iterable[CreatePartitionsTopic], errors: Mapping[str, KafkaError | None]
) -> Slices[list[CreatePartitionsTopicResult]]:
    """Return a row for each name of a request."""
    rows: dict[str, CreatePartitionsTopicResult] = {}
    current = Slice()
    for topic in topics:
        name = topic.name
        if name not in rows:
            row = rows[name] = CreatePartitionsTopicResult(name=name)
            error = errors.get(name)
            if error is not None:
                row.error_code, row.error_message = error.code, error.message
        if current.spend():
            yield
    return list(rows.values())
