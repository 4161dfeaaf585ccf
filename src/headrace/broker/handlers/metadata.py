"""Metadata, versions 0 to 13.

KIP-4 (null for all topics, an empty list for none; in version 0 the empty list is all), KIP-361
(creation on demand, which the client may forbid), KIP-320 (leader epochs), KIP-430 (authorised
operations), KIP-516 (topic ids: in the answer from 10, in the question from 12), KIP-1102 (the
error code of version 13, always none here). One topic asked for by id makes this a question by ids,
and names without an id are passed over. Brokers are named by their address on the listener that the
request came through; one that has none, or is fenced, is not reachable: its replicas are offline,
and partitions that it leads have no leader. The controller is the leader of
the metadata log, which alone takes changes. Without an authorizer a client may do everything.

A topic created on demand is in the answer at once; Kafka answers UNKNOWN_TOPIC_OR_PARTITION first
and creates it behind the client's back. An element with neither name nor id is INVALID_REQUEST,
where Kafka fails.
"""

import logging
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from headrace import config
from headrace.broker.broker import Broker
from headrace.broker.handlers.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from headrace.broker.handlers.reach import Reach
from headrace.broker.handlers.topic_creation import on_demand, plan_topic
from headrace.broker.handlers.topic_validation import (
    INTERNAL_TOPICS,
    Collisions,
    explain_illegal_name,
)
from headrace.broker.live_brokers import controller_id
from headrace.broker.proposals import propose_each
from headrace.broker.request import Handler, Request
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import ZERO_TOPIC_ID, TopicId, TopicName
from headrace.metadata.ddl import CreateTopic
from headrace.metadata.state import Topic
from headrace.raft.errors import DiskFull
from headrace.wire import ApiKey
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
"""How long an answer waits for a topic created on demand: half of what clients wait for."""

logger = logging.getLogger(__name__)


def handle_metadata(
    broker: Broker, request: Request
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    body: MetadataRequest = request.body
    if body.topics and not _is_answerable(body.topics, request.version):
        return _refused(body.topics, request.version)
    if missing := _creatable(broker, request):
        return _create_and_answer(broker, request, missing)
    return _answer(broker, request)


def _is_answerable(topics: Iterable[MetadataRequestTopic], version: int) -> bool:
    if version < FIRST_BY_ID:
        return all(each.name is not None and each.topic_id == ZERO_TOPIC_ID for each in topics)
    return all(each.name is not None or each.topic_id != ZERO_TOPIC_ID for each in topics)


def _refused(topics: Iterable[MetadataRequestTopic], version: int) -> MetadataResponse:
    """Say of each topic that it cannot be asked for like this; no more than that, as Kafka."""
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


def _creatable(broker: Broker, request: Request) -> list[str]:
    """Give the names that are to be created before the answer."""
    body: MetadataRequest = request.body
    if not body.topics or not body.allow_auto_topic_creation:
        return []
    image = broker.image
    missing = [
        each.name
        for each in body.topics
        if each.topic_id == ZERO_TOPIC_ID
        and each.name is not None
        and image.topic(TopicName(each.name)) is None
        and explain_illegal_name(each.name) is None
    ]
    if not missing or not broker.settings[config.AUTO_CREATE_TOPICS_ENABLE]:
        return []
    asks_by_id = any(each.topic_id != ZERO_TOPIC_ID for each in body.topics)
    return [] if asks_by_id else list(dict.fromkeys(missing))


async def _create_and_answer(
    broker: Broker, request: Request, names: Iterable[str]
) -> MetadataResponse:
    collisions = Collisions(broker.image)
    changes: list[CreateTopic] = []
    for name in names:
        try:
            changes.append(plan_topic(broker, on_demand(broker, name), collisions))
        except KafkaError as error:
            logger.info("topic %s cannot be created on demand: %s", name, error)
    errors = await propose_each(broker, changes, CREATION_TIMEOUT_MS)
    for change, refused in zip(changes, errors, strict=True):
        # Another client may have been first; the answer is from the image in any case. And that
        # the disk is full is in the log already, once.
        if (
            refused is not None
            and refused.code != ErrorCode.TOPIC_ALREADY_EXISTS
            and not isinstance(refused, DiskFull)
        ):
            logger.warning("topic %s was not created on demand: %s", change.name, refused)
    return _answer(broker, request)


# The answer


def _answer(broker: Broker, request: Request) -> MetadataResponse:
    body: MetadataRequest = request.body
    image = broker.image
    reach = Reach(image, request.peer.listener)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker_id, host=each.host, port=each.port, rack=reach.racks[broker_id]
            )
            for broker_id, each in reach.endpoints.items()
        ],
        cluster_id=image.state.cluster_id,
        controller_id=controller_id(broker),
        topics=_topics(broker, request, reach),
    )
    if body.include_topic_authorized_operations:
        for topic in response.topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _topics(broker: Broker, request: Request, reach: Reach) -> list[MetadataResponseTopic]:
    asked: list[MetadataRequestTopic] | None = request.body.topics
    image, version = broker.image, request.version
    if asked is None or (not asked and version < FIRST_WITH_NULL_TOPICS):
        return [_topic_row(topic, reach, version) for topic in image.topics()]
    ids = dict.fromkeys(each.topic_id for each in asked if each.topic_id != ZERO_TOPIC_ID)
    rows = []
    for topic_id in ids:
        topic = image.topic_by_id(TopicId(topic_id))
        rows.append(_unknown_id(topic_id) if topic is None else _topic_row(topic, reach, version))
    if ids:
        return rows
    for name in dict.fromkeys(each.name or "" for each in asked):
        topic = image.topic(TopicName(name))
        rows.append(_unknown_name(name) if topic is None else _topic_row(topic, reach, version))
    return rows


def _topic_row(topic: Topic, reach: Reach, version: int) -> MetadataResponseTopic:
    rows = []
    for index, row in enumerate(topic.partitions):
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


HANDLERS: Final[dict[ApiKey, Handler]] = {ApiKey.METADATA: handle_metadata}
