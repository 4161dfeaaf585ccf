"""What requests about topics and their records need."""

from functools import partial
from typing import Any, Final

from headrace.errors import ErrorCode
from headrace.ids import ZERO_TOPIC_ID
from headrace.loop.slices import Slices
from headrace.security.acls import Operation, Resource
from headrace.server.request import SMALL_REQUEST_BYTES, Request
from headrace.server.rights.checks import Check, Outcome, Rule, both, divide, each, take_out
from headrace.wire.messages.create_topics_response import CreateTopicsResponse
from headrace.wire.messages.describe_topic_partitions_request import TopicRequest
from headrace.wire.messages.describe_topic_partitions_response import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from headrace.wire.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from headrace.wire.messages.produce_request import ProduceRequest
from headrace.wire.mirror_records import ACKS_KEEP_OFFSETS
from headrace.wire.schema import Message

TOPICS_AT_ONCE: Final = 250
"""How many topics of a produce are checked at once."""
BITS_UNITS: Final = 24
"""How long it takes to find out all that somebody may do with a resource."""
_ATTRIBUTES_AT: Final = 22
"""Where the low byte of the attributes of a record batch is."""
_TRANSACTIONAL: Final = 0x10
_UNKNOWN_COUNT: Final = -1


def each_topic(
    operation: Operation, asked: str = "topics", answered: str = "topics", name: str = "name"
) -> Rule:
    """Return the rule of requests whose topics each need an operation."""

    def rule(check: Check, request: Request) -> "Slices[Outcome]":
        return take_out(
            check,
            request,
            (asked, answered),
            lambda row: check.may_topic(operation, getattr(row, name)),
        )

    return rule


def produce(check: Check, request: Request) -> "Outcome | Slices[Outcome]":
    """WRITE on each topic, and on the transactional id if any record is transactional.

    By the records and not by the id alone: a request that leaves it out must not pass (CVE-2018-
    17196). Batches of a mirror keep their producers, so a mirror also needs ALTER on the topic.
    """
    body: ProduceRequest = request.body
    if body.acks == ACKS_KEEP_OFFSETS:
        return take_out(
            check, request, ("topic_data", "responses"), lambda row: _may_mirror(check, row)
        )
    if request.size_bytes > SMALL_REQUEST_BYTES and len(body.topic_data) > TOPICS_AT_ONCE:
        return _produce_many(check, request)
    is_transactional, may_all = False, True
    for topic in body.topic_data:
        is_transactional = _is_transactional(topic) or is_transactional
        may_all = _may_write(check, topic) and may_all
    return _judge_produce(check, request, is_transactional, may_all)


def _produce_many(check: Check, request: Request) -> "Slices[Outcome]":
    is_transactional, may_all = False, True

    def look(topic: Any) -> None:
        nonlocal is_transactional, may_all
        is_transactional = _is_transactional(topic) or is_transactional
        may_all = _may_write(check, topic) and may_all

    yield from each(request.body.topic_data, look)
    outcome = _judge_produce(check, request, is_transactional, may_all)
    return None if outcome is None else (yield from outcome)


def _is_transactional(topic: Any) -> bool:
    for partition in topic.partition_data:
        records = partition.records
        if (
            records is not None
            and len(records) > _ATTRIBUTES_AT
            and records[_ATTRIBUTES_AT] & _TRANSACTIONAL
        ):
            return True
    return False


def _judge_produce(
    check: Check, request: Request, is_transactional: bool, may_all: bool
) -> "Slices[Outcome] | None":
    body: ProduceRequest = request.body
    if is_transactional:
        transactional_id = body.transactional_id
        if transactional_id is None or not check.may(
            Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id
        ):
            raise check.refusal(Resource.TRANSACTIONAL_ID)
    if may_all:
        return None
    if body.acks == 0:
        # There is no response to have rows in: the connection is closed, as in Kafka.
        raise check.refusal(Resource.TOPIC)
    fields = "topic_data", "responses"
    return take_out(check, request, fields, lambda row: _may_write(check, row))


def _may_write(check: Check, row: Any) -> bool:
    name = check.topic_name(row.name, row.topic_id)
    return name is None or check.may_topic(Operation.WRITE, name)


def _may_mirror(check: Check, row: Any) -> bool:
    name = check.topic_name(row.name, row.topic_id)
    return name is None or (
        check.may_topic(Operation.WRITE, name) and check.may_topic(Operation.ALTER, name)
    )


def metadata(check: Check, request: Request) -> "Slices[Outcome]":
    """DESCRIBE on each topic, and CREATE on one that the request would create.

    Without it a topic that is asked for by its name has an error, one that is asked for by its id
    is unknown, and others are left out.
    """
    body = request.body
    is_of_all = body.topics is None or (request.version == 0 and not body.topics)
    by_name: list[Any] = []
    by_id: list[Any] = []
    if not is_of_all:
        allowed, denied = yield from divide(
            body.topics, lambda row: _may_describe(check, row, body.allow_auto_topic_creation)
        )
        by_id, by_name = yield from divide(denied, lambda row: row.topic_id != ZERO_TOPIC_ID)
        if denied:
            check.refusal(Resource.TOPIC)
        if denied and not allowed and request.version == 0:
            # An empty list would mean every topic; what is asked for then there is none of.
            is_of_all, by_name = True, denied
        body.topics = allowed or ([] if request.version else None)
    rows: list[MetadataResponseTopic] = []
    yield from each(
        by_name, lambda row: rows.append(_hidden(row, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    )
    yield from each(by_id, lambda row: rows.append(_hidden(row, ErrorCode.UNKNOWN_TOPIC_ID)))
    leaves_out_all = is_of_all and bool(by_name)
    operations = body.include_topic_authorized_operations
    needs_cluster = body.include_cluster_authorized_operations
    if not (is_of_all or rows or operations or needs_cluster):
        return None

    def amend(response: MetadataResponse) -> Slices[MetadataResponse]:
        if leaves_out_all:
            response.topics = []
        elif is_of_all:
            response.topics, _ = yield from divide(
                response.topics, lambda row: check.may_topic(Operation.DESCRIBE, row.name or "")
            )
        if operations:
            yield from each(response.topics, partial(_show_operations, check), BITS_UNITS)
        if needs_cluster:
            response.cluster_authorized_operations = check.cluster_bits()
        response.topics.extend(rows)
        return response

    return amend


def _show_operations(check: Check, row: Any) -> None:
    if row.error_code == ErrorCode.NONE:
        row.topic_authorized_operations = check.bits(Resource.TOPIC, row.name or "")


def _may_describe(check: Check, row: Any, may_create: bool) -> bool:
    name = check.topic_name(row.name, row.topic_id)
    if name is None:
        return True  # an id that there is not
    if not check.may_topic(Operation.DESCRIBE, name):
        return False
    if not may_create or check.has_topic(name):
        return True
    return check.may_cluster(Operation.CREATE) or check.may_topic(Operation.CREATE, name)


def _hidden(row: Any, code: ErrorCode) -> MetadataResponseTopic:
    name = row.name if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else None
    return MetadataResponseTopic(error_code=code, name=name, topic_id=row.topic_id, partitions=[])


def describe_topic_partitions(check: Check, request: Request) -> "Slices[Outcome]":
    """DESCRIBE on each topic; of all topics those that the client may describe."""
    body = request.body
    is_of_all = not body.topics
    names = tuple(check.topic_names() if is_of_all else (row.name for row in body.topics))
    allowed, denied = yield from divide(
        names, lambda name: check.may_topic(Operation.DESCRIBE, name)
    )
    rows = []
    if not is_of_all and denied:
        check.refusal(Resource.TOPIC)
        rows = [
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, partitions=[]
            )
            for name in denied
        ]
    if not allowed:
        return DescribeTopicPartitionsResponse(topics=rows, next_cursor=None)
    body.topics = [TopicRequest(name=name) for name in sorted(allowed)]

    def amend(
        response: DescribeTopicPartitionsResponse,
    ) -> Slices[DescribeTopicPartitionsResponse]:
        yield from each(response.topics, partial(_show_operations, check), BITS_UNITS)
        response.topics.extend(rows)
        return response

    return amend


def create_topics(check: Check, request: Request) -> "Slices[Outcome]":
    """CREATE on the cluster or on each topic; the configs in the response need DESCRIBE_CONFIGS."""
    outcome = None
    if not check.may_cluster(Operation.CREATE):
        outcome = yield from take_out(
            check,
            request,
            ("topics", "topics"),
            lambda row: check.may_topic(Operation.CREATE, row.name),
        )
    if isinstance(outcome, Message):
        return outcome

    def hide(row: Any) -> None:
        is_created = row.error_code == ErrorCode.NONE
        if is_created and not check.may_topic(Operation.DESCRIBE_CONFIGS, row.name):
            row.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            row.num_partitions = row.replication_factor = _UNKNOWN_COUNT
            row.configs = None if request.version >= 5 else []

    def amend(response: CreateTopicsResponse) -> Slices[CreateTopicsResponse]:
        yield from each(response.topics, hide)
        return response

    return both(amend, outcome)


def delete_topics(check: Check, request: Request) -> "Outcome | Slices[Outcome]":
    """DELETE on the cluster or on each topic."""
    if check.may_cluster(Operation.DELETE):
        return None
    body = request.body
    if body.topic_names:  # up to version 5
        return take_out(
            check,
            request,
            ("topic_names", "responses"),
            lambda name: check.may_topic(Operation.DELETE, name),
        )

    def may_delete(row: Any) -> bool:
        name = check.topic_name(row.name, row.topic_id)
        return name is None or check.may_topic(Operation.DELETE, name)

    return take_out(check, request, ("topics", "responses"), may_delete)


def offset_for_leader_epoch(check: Check, request: Request) -> "Outcome | Slices[Outcome]":
    """CLUSTER_ACTION, as nodes have it, or DESCRIBE on each topic."""
    if check.may_cluster(Operation.CLUSTER_ACTION):
        return None
    return each_topic(Operation.DESCRIBE, name="topic")(check, request)
