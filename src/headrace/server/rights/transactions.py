"""What requests about transactions and producer ids need."""

from typing import Any, Final

from headrace.errors import ErrorCode
from headrace.loop.slices import Slices
from headrace.security.acls import Operation, Resource
from headrace.server.request import Request
from headrace.server.rights.checks import Amend, Check, Outcome, both, divide, each, take_out
from headrace.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from headrace.wire.schema import Message

FIRST_OF_NODES: Final = 4
"""From this version on, AddPartitionsToTxn is for nodes."""


def init_producer_id(check: Check, request: Request) -> None:
    """WRITE on the transactional id; without one IDEMPOTENT_WRITE, or WRITE on any topic."""
    body = request.body
    if body.transactional_id:
        check.require(Operation.WRITE, Resource.TRANSACTIONAL_ID, body.transactional_id)
        if body.enable2_pc:
            check.require(
                Operation.TWO_PHASE_COMMIT, Resource.TRANSACTIONAL_ID, body.transactional_id
            )
    elif not check.may_cluster(Operation.IDEMPOTENT_WRITE) and not check.may_some(
        Operation.WRITE, Resource.TOPIC
    ):
        raise check.refusal(Resource.CLUSTER)


def add_partitions(check: Check, request: Request) -> "Slices[Outcome]":
    """WRITE on the transactional id and each topic; from version 4 on CLUSTER_ACTION.

    One topic that is denied keeps the others from being added.
    """
    body = request.body
    if request.version >= FIRST_OF_NODES:
        check.require_cluster(Operation.CLUSTER_ACTION)
        return None
    check.require(Operation.WRITE, Resource.TRANSACTIONAL_ID, body.v3_and_below_transactional_id)
    allowed, denied = yield from divide(
        body.v3_and_below_topics, lambda row: check.may_topic(Operation.WRITE, row.name)
    )
    if not denied:
        return None
    check.refusal(Resource.TOPIC)
    rows: list[AddPartitionsToTxnTopicResult] = []
    yield from each(
        denied, lambda row: rows.append(_topic(row, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    )
    yield from each(
        allowed, lambda row: rows.append(_topic(row, ErrorCode.OPERATION_NOT_ATTEMPTED))
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)


def _topic(row: Any, code: ErrorCode) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=row.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            for index in row.partitions
        ],
    )


def add_offsets(check: Check, request: Request) -> None:
    """WRITE on the transactional id, READ on the group."""
    body = request.body
    check.require(Operation.WRITE, Resource.TRANSACTIONAL_ID, body.transactional_id)
    check.require_group(Operation.READ, body.group_id)


def end(check: Check, request: Request) -> None:
    """WRITE on the transactional id."""
    check.require(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.body.transactional_id)


def write_markers(check: Check, request: Request) -> None:
    """ALTER on the cluster, as an operator who ends a hanging transaction, or CLUSTER_ACTION."""
    if not check.may_cluster(Operation.ALTER):
        check.require_cluster(Operation.CLUSTER_ACTION)


def commit_offsets(check: Check, request: Request) -> "Slices[Outcome]":
    """WRITE on the transactional id, READ on the group and on each topic."""
    add_offsets(check, request)
    return take_out(
        check,
        request,
        ("topics", "topics"),
        lambda row: check.may_topic(Operation.READ, row.name),
    )


def describe(check: Check, request: Request) -> "Slices[Outcome]":
    """DESCRIBE on each transactional id; topics that the client may not describe are left out."""
    outcome = yield from take_out(
        check,
        request,
        ("transactional_ids", "transaction_states"),
        lambda name: check.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, name),
        Resource.TRANSACTIONAL_ID,
    )
    if isinstance(outcome, Message):
        return outcome

    def amend(response: Any) -> Slices[Any]:
        for row in response.transaction_states:
            row.topics, _ = yield from divide(
                row.topics, lambda topic: check.may_topic(Operation.DESCRIBE, topic.topic)
            )
        return response

    return both(amend, outcome)


def list_all(check: Check, request: Request) -> "Amend | None":
    """DESCRIBE on each transactional id; others are left out."""

    def may(row: Any) -> bool:
        return check.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, row.transactional_id)

    def amend(response: Any) -> Slices[Any]:
        response.transaction_states, _ = yield from divide(response.transaction_states, may)
        return response

    return amend
