"""Metadata: API key 3, versions 0 to 13.

KIP-4 (null for all topics, an empty list for none; in version 0 the empty list is all), KIP-361
(creation on demand, which the client may forbid), KIP-320 (leader epochs), KIP-430 (authorized
operations), KIP-516 (topic ids: in the response from 10, in the request from 12), KIP-1102 (the
error code of version 13, always none here). One topic asked for by id makes this a request by ids,
and names without an id are ignored. Brokers are named by their address on the listener that the
request came through. A broker that has none, or is fenced, is not reachable: its replicas are
offline, and partitions that it leads have no leader. The controller is the leader of the metadata
log. Without an authorizer a client may do everything.

A response with many partitions is made in slices, with the leaders of each slice's time.

Different from Kafka: a topic created on demand is in the response at once; Kafka responds
UNKNOWN_TOPIC_OR_PARTITION first and creates it afterwards. An element with neither name nor id is
INVALID_REQUEST; Kafka fails with UNKNOWN_SERVER_ERROR.

The work is in `server.reach` and `topics.creation`.
"""

import logging
from collections.abc import Coroutine, Iterable
from typing import Any, Final, NamedTuple

from headrace import config
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import ZERO_TOPIC_ID, TopicId, TopicName
from headrace.loop.slices import Slice, Slices, finish, in_slices
from headrace.metadata.ddl import CreateTopic
from headrace.metadata.image import Image
from headrace.metadata.state import Topic
from headrace.raft.errors import DiskFull
from headrace.server.broker import Broker
from headrace.server.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from headrace.server.proposals import propose_each
from headrace.server.reach import Reach, controller_id
from headrace.server.request import Request
from headrace.topics.creation import on_demand, planning
from headrace.topics.validation import (
    INTERNAL_TOPICS,
    explain_illegal_name,
)
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

FIRST_WITH_NULL_TOPICS: Final = 1
FIRST_WITH_LISTENER_ERROR: Final = 6
FIRST_BY_ID: Final = 12
CREATION_TIMEOUT_MS: Final = 15_000
"""How long a response waits for an auto-created topic: half of the client's timeout."""

_NAMES_PER_UNIT: Final = 2
"""How many names are checked in a unit of work."""
_NO_OPERATIONS: Final = MetadataResponseTopic().topic_authorized_operations

logger = logging.getLogger(__name__)


def handle(
    broker: Broker, request: Request
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    answer = in_slices(prepare(broker, request))
    if isinstance(answer, _Creation):
        return _create_and_answer(broker, request, answer.names)
    if isinstance(answer, MetadataResponse):
        return answer
    return _finish(broker, request, answer)


def prepare(broker: Broker, request: Request) -> Slices["MetadataResponse | _Creation"]:
    """Put the response together, unless topics are to be created before."""
    body: MetadataRequest = request.body
    current = Slice()
    if body.topics:
        is_answerable = yield from _is_answerable(body.topics, request.version, current)
        if not is_answerable:
            return _refused(body.topics, request.version)
        missing = yield from _creatable(broker, request, current)
        if missing:
            return _Creation(missing)
    response = yield from _answer(broker, request, current)
    return response


async def _finish(
    broker: Broker,
    request: Request,
    work: "Coroutine[Any, Any, MetadataResponse | _Creation]",
) -> MetadataResponse:
    answer = await work
    if isinstance(answer, _Creation):
        return await _create_and_answer(broker, request, answer.names)
    return answer


class _Creation(NamedTuple):
    """Topics that are to be created before the response."""

    names: list[str]


def _is_answerable(
    topics: Iterable[MetadataRequestTopic], version: int, current: Slice
) -> Slices[bool]:
    for index, each in enumerate(topics, 1):
        has_name, has_id = each.name is not None, each.topic_id != ZERO_TOPIC_ID
        if not (has_name and not has_id if version < FIRST_BY_ID else has_name or has_id):
            return False
        if index % _NAMES_PER_UNIT == 0 and current.spend():
            yield
    return True


def _refused(topics: Iterable[MetadataRequestTopic], version: int) -> MetadataResponse:
    """Return an error for each topic and nothing else, as Kafka does."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST,
                name=each.name if version >= FIRST_BY_ID else each.name or "",
                topic_id=each.topic_id,
            )
            for each in topics
        ]
    )


# Creation on demand


def _creatable(broker: Broker, request: Request, current: Slice) -> Slices[list[str]]:
    """Return the names that are to be created before the response."""
    body: MetadataRequest = request.body
    is_enabled = broker.settings[config.AUTO_CREATE_TOPICS_ENABLE]
    if not body.topics or not body.allow_auto_topic_creation or not is_enabled:
        return []
    image = broker.image
    missing: dict[str, None] = {}
    for each in body.topics:
        if each.topic_id != ZERO_TOPIC_ID:
            return []  # a question by ids
        name = each.name
        if (
            name is not None
            and image.topic(TopicName(name)) is None
            and name not in missing
            and explain_illegal_name(name) is None
        ):
            missing[name] = None
        if current.spend(2):
            yield
    return list(missing)


async def _create_and_answer(
    broker: Broker, request: Request, names: Iterable[str]
) -> MetadataResponse:
    changes = await finish(_plan_creation(broker, names))
    if request.is_metered:
        changes = [change for change in changes if _may_create(request, change)]
    errors = await propose_each(broker, changes, CREATION_TIMEOUT_MS, request)
    for change, refused in zip(changes, errors, strict=True):
        # Another client may have been first; the answer is from the image in any case. And that
        # the disk is full is in the log already, once.
        if (
            refused is not None
            and refused.code != ErrorCode.TOPIC_ALREADY_EXISTS
            and not isinstance(refused, DiskFull)
        ):
            logger.warning("topic %s was not created on demand: %s", change.name, refused)
    return await finish(_answer(broker, request, Slice()))


def _may_create(request: Request, change: CreateTopic) -> bool:
    """Charge a topic to the client's quota; beyond it, the topic stays unknown for now."""
    try:
        request.toll.change(len(change.partitions), is_strict=True)
    except KafkaError as error:
        logger.info("topic %s is not created on demand: %s", change.name, error)
        return False
    return True


def _plan_creation(broker: Broker, names: Iterable[str]) -> Slices[list[CreateTopic]]:
    changes: list[CreateTopic] = []
    current = Slice()
    for name in names:
        try:
            change = yield from planning(broker, on_demand(broker, name), current)
            changes.append(change)
        except KafkaError as error:
            logger.info("topic %s cannot be created on demand: %s", name, error)
    return changes


# The response


def _answer(broker: Broker, request: Request, current: Slice) -> Slices[MetadataResponse]:
    body: MetadataRequest = request.body
    image = broker.image
    reach = Reach(image, request.peer.listener)
    topics = yield from _topics(broker, request, reach, current)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker_id, host=each.host, port=each.port, rack=reach.racks[broker_id]
            )
            for broker_id, each in reach.endpoints.items()
        ],
        cluster_id=image.state.cluster_id,
        controller_id=controller_id(broker),
        topics=topics,
    )
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _topics(
    broker: Broker, request: Request, reach: Reach, current: Slice
) -> Slices[list[MetadataResponseTopic]]:
    image, version = broker.image, request.version
    operations = (
        TOPIC_OPERATIONS if request.body.include_topic_authorized_operations else _NO_OPERATIONS
    )
    rows = []
    for found in _asked_topics(image, request):
        if isinstance(found, Topic):
            row = yield from _topic_row(found, reach, version, current)
        else:
            row = _unknown_name(found) if isinstance(found, str) else _unknown_id(found)
        row.topic_authorized_operations = operations
        rows.append(row)
        if current.spend(2):
            yield
    return rows


def _asked_topics(image: Image, request: Request) -> "list[Topic | str | bytes]":
    """Return the requested topics, each once; a missing one as its name or id."""
    asked: list[MetadataRequestTopic] | None = request.body.topics
    if asked is None or (not asked and request.version < FIRST_WITH_NULL_TOPICS):
        return list(image.topics())
    ids = dict.fromkeys(each.topic_id for each in asked if each.topic_id != ZERO_TOPIC_ID)
    if ids:
        return [image.topic_by_id(TopicId(topic_id)) or topic_id for topic_id in ids]
    names = dict.fromkeys(each.name or "" for each in asked)
    return [image.topic(TopicName(name)) or name for name in names]


def _topic_row(
    topic: Topic, reach: Reach, version: int, current: Slice
) -> Slices[MetadataResponseTopic]:
    rows = []
    # A copy: partitions may be added meanwhile.
    for index, row in enumerate(topic.partitions[:]):
        leader, code = reach.leader(row)
        if code == ErrorCode.LISTENER_NOT_FOUND and version < FIRST_WITH_LISTENER_ERROR:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        replicas: list[int] = [*row.replicas]
        isr: list[int] = [*row.isr]
        offline = reach.offline(replicas)
        if version == 0 and offline:
            # Clients of that time would try to connect to whoever is named.
            replicas = [each for each in replicas if each not in offline]
            isr = [each for each in isr if each not in offline]
            code = code or ErrorCode.REPLICA_NOT_AVAILABLE
        rows.append(
            MetadataResponsePartition(
                error_code=code,
                partition_index=index,
                leader_id=leader,
                leader_epoch=row.leader_epoch,
                replica_nodes=replicas,
                isr_nodes=isr,
                offline_replicas=offline,
            )
        )
        if current.spend():
            yield
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal, partitions=rows
    )


def _unknown_name(name: str) -> MetadataResponseTopic:
    is_legal = explain_illegal_name(name) is None
    return MetadataResponseTopic(
        error_code=(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        ),
        name=name,
        is_internal=name in INTERNAL_TOPICS,
    )


def _unknown_id(topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
    )
