"""The five calls to the states of share partitions: the local operation and the remote request.

A node calls its own state with `operate` and another node's with a request of rows, which that node
serves with `operate`: the result does not depend on where the state is.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from headrace.coordinator.machine import Outcome, Reply
from headrace.ids import SharePartitionKey, TopicId
from headrace.share.durable import DeliveryState, DurableState, StateSummary, StateWrite
from headrace.share.state import operations
from headrace.share.state.operations import Beginning
from headrace.share.state.records import to_batches
from headrace.share.state.states import ShareStates
from headrace.wire.messages import (
    delete_share_group_state_request,
    delete_share_group_state_response,
    initialize_share_group_state_request,
    initialize_share_group_state_response,
    read_share_group_state_request,
    read_share_group_state_response,
    read_share_group_state_summary_request,
    read_share_group_state_summary_response,
    write_share_group_state_request,
    write_share_group_state_response,
)
from headrace.wire.schema import Message, Struct

P = TypeVar("P")
"""The argument of a call: what there is beside the share partition."""
A = TypeVar("A")
"""Its answer."""
_TERMINAL: Final = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


class Kind(NamedTuple, Generic[P, A]):
    """One of the calls."""

    operate: Callable[[ShareStates, SharePartitionKey, P, int, Reply[A]], Outcome]
    request: Callable[..., Message]
    asked_topic: Callable[..., Struct]
    asked_row: Callable[[int, P], Struct]
    """Returns the request row of an argument."""
    argument: Callable[[Any], P]
    """Returns the argument of such a row."""
    response: Callable[..., Message]
    answered_topic: Callable[..., Struct]
    answered_row: Callable[..., Struct]
    fields: Callable[[A], dict[str, Any]]
    """Returns the fields of a response row, besides errors, of a result."""
    answer: Callable[[Any, P], A]
    """Returns the result of such a row and the argument."""


def build_request(
    kind: Kind[P, A], group_id: str, asked: Iterable[tuple[SharePartitionKey, P]]
) -> Message:
    """Return the request for share partitions of one group."""
    topics: dict[TopicId, list[Struct]] = {}
    for key, argument in asked:
        topics.setdefault(key.topic_id, []).append(kind.asked_row(key.partition, argument))
    rows = [kind.asked_topic(topic_id=each, partitions=topics[each]) for each in topics]
    return kind.request(group_id=group_id, topics=rows)


def _read_answer(row: Any, leader_epoch: int) -> DurableState:
    batches = to_batches(row.state_batches)
    # The response has no count; it follows from the batches.
    count = sum(
        batch.last_offset - batch.first_offset + 1
        for batch in batches
        if batch.delivery_state in _TERMINAL
    )
    return DurableState(row.state_epoch, leader_epoch, row.start_offset, count, batches)


def _read_fields(state: DurableState) -> dict[str, Any]:
    batch_type = read_share_group_state_response.StateBatch
    return {
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "state_batches": [batch_type(*batch) for batch in state.batches],
    }


def _write_row(index: int, write: StateWrite) -> Struct:
    batch_type = write_share_group_state_request.StateBatch
    return write_share_group_state_request.PartitionData(
        partition=index,
        state_epoch=write.state_epoch,
        leader_epoch=write.leader_epoch,
        start_offset=write.start_offset,
        delivery_complete_count=write.delivery_complete_count,
        state_batches=[batch_type(*batch) for batch in write.batches],
    )


def _write_argument(row: write_share_group_state_request.PartitionData) -> StateWrite:
    return StateWrite(
        row.state_epoch,
        row.leader_epoch,
        row.start_offset,
        row.delivery_complete_count,
        to_batches(row.state_batches),
    )


def _no_fields(_: None) -> dict[str, Any]:
    return {}


def _no_answer(_: object, __: object) -> None:
    """Return None: success is the absence of an error."""


INITIALIZE: Final[Kind[Beginning, None]] = Kind(
    operations.initialize,
    initialize_share_group_state_request.InitializeShareGroupStateRequest,
    initialize_share_group_state_request.InitializeStateData,
    lambda index, beginning: initialize_share_group_state_request.PartitionData(index, *beginning),
    lambda row: Beginning(row.state_epoch, row.start_offset),
    initialize_share_group_state_response.InitializeShareGroupStateResponse,
    initialize_share_group_state_response.InitializeStateResult,
    initialize_share_group_state_response.PartitionResult,
    _no_fields,
    _no_answer,
)
READ: Final[Kind[int, DurableState]] = Kind(
    operations.read,
    read_share_group_state_request.ReadShareGroupStateRequest,
    read_share_group_state_request.ReadStateData,
    read_share_group_state_request.PartitionData,
    lambda row: row.leader_epoch,
    read_share_group_state_response.ReadShareGroupStateResponse,
    read_share_group_state_response.ReadStateResult,
    read_share_group_state_response.PartitionResult,
    _read_fields,
    _read_answer,
)
WRITE: Final[Kind[StateWrite, None]] = Kind(
    operations.write,
    write_share_group_state_request.WriteShareGroupStateRequest,
    write_share_group_state_request.WriteStateData,
    _write_row,
    _write_argument,
    write_share_group_state_response.WriteShareGroupStateResponse,
    write_share_group_state_response.WriteStateResult,
    write_share_group_state_response.PartitionResult,
    _no_fields,
    _no_answer,
)
READ_SUMMARY: Final[Kind[int, StateSummary]] = Kind(
    lambda states, key, leader_epoch, now_ms, reply: operations.read_summary(states, key, reply),
    read_share_group_state_summary_request.ReadShareGroupStateSummaryRequest,
    read_share_group_state_summary_request.ReadStateSummaryData,
    read_share_group_state_summary_request.PartitionData,
    lambda row: row.leader_epoch,
    read_share_group_state_summary_response.ReadShareGroupStateSummaryResponse,
    read_share_group_state_summary_response.ReadStateSummaryResult,
    read_share_group_state_summary_response.PartitionResult,
    StateSummary._asdict,
    lambda row, _: StateSummary(
        row.state_epoch, row.leader_epoch, row.start_offset, row.delivery_complete_count
    ),
)
DELETE: Final[Kind[None, None]] = Kind(
    lambda states, key, argument, now_ms, reply: operations.delete(states, key, reply),
    delete_share_group_state_request.DeleteShareGroupStateRequest,
    delete_share_group_state_request.DeleteStateData,
    lambda index, _: delete_share_group_state_request.PartitionData(index),
    lambda row: None,
    delete_share_group_state_response.DeleteShareGroupStateResponse,
    delete_share_group_state_response.DeleteStateResult,
    delete_share_group_state_response.PartitionResult,
    _no_fields,
    _no_answer,
)
