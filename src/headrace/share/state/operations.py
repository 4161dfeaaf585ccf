"""Operations on the states of share partitions (KIP-932): initialize, read, write, summary, delete.

The leader of a share partition writes its state with its leader epoch. A read with a higher epoch
is persisted, which fences the previous leader's writes. The order of the checks is Kafka's: of
several errors a caller gets the same one.
"""

from typing import Final, NamedTuple

from headrace import config
from headrace.coordinator.machine import Outcome, Reply, told
from headrace.coordinator.records import CoordinatorRecord
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import UNKNOWN_OFFSET, SharePartitionKey
from headrace.share.durable import UNKNOWN_COUNT, DurableState, StateSummary, StateWrite
from headrace.share.state.merging import merge_batches
from headrace.share.state.records import snapshot, tombstone, update
from headrace.share.state.states import ShareState, ShareStates, merged, snapshotted

ANY_EPOCH: Final = -1
"""The epoch of a caller that does not know it."""
FIRST_EPOCH: Final = 0

UNINITIALIZED: Final = StateSummary(
    state_epoch=FIRST_EPOCH,
    leader_epoch=FIRST_EPOCH,
    start_offset=UNKNOWN_OFFSET,
    delivery_complete_count=UNKNOWN_COUNT,
)
"""The summary of a share partition that was never initialized."""


class Beginning(NamedTuple):
    """The start of a share partition, and its state epoch."""

    state_epoch: int
    start_offset: int
    """UNKNOWN_OFFSET leaves it to the leader of the share partition."""


def initialize(
    states: ShareStates,
    key: SharePartitionKey,
    beginning: Beginning,
    now_ms: int,
    reply: Reply[None],
) -> Outcome:
    """Initialize a share partition, discarding its previous state.

    Raise FENCED_STATE_EPOCH if it was initialized with a higher epoch. The same epoch is allowed
    again: a caller that missed the response retries.
    """
    _check_partition(key)
    former = states.states.get(key)
    if former is not None:
        _check_state_epoch(key, former, beginning.state_epoch)
    _check_exists(states, key)
    begun = ShareState(
        FIRST_EPOCH if former is None else former.snapshot_epoch + 1,
        beginning.state_epoch,
        FIRST_EPOCH,
        beginning.start_offset,
        UNKNOWN_COUNT if beginning.start_offset == UNKNOWN_OFFSET else 0,
        created_ms=now_ms,
        written_ms=now_ms,
    )
    return Outcome((snapshot(key, begun),), (told(reply, None),))


def read(
    states: ShareStates,
    key: SharePartitionKey,
    leader_epoch: int,
    now_ms: int,
    reply: Reply[DurableState],
) -> Outcome:
    """Return the DurableState; a higher leader epoch than the known one is persisted first.

    Raise INVALID_REQUEST if the share partition was never initialized: treating that as a state
    would deliver everything again.
    """
    _check_partition(key)
    found = _find(states, key)
    _check_leader_epoch(key, found, leader_epoch)
    _check_exists(states, key)
    if leader_epoch <= found.leader_epoch:
        return Outcome(replies=(told(reply, found.durable),))
    taken_over = StateWrite(
        ANY_EPOCH, leader_epoch, found.start_offset, found.delivery_complete_count, ()
    )
    record = _record(states, key, found, taken_over, now_ms)
    return Outcome((record,), (told(reply, found.durable._replace(leader_epoch=leader_epoch)),))


def write(
    states: ShareStates,
    key: SharePartitionKey,
    asked: StateWrite,
    now_ms: int,
    reply: Reply[None],
) -> Outcome:
    """Merge a change into the state; return None.

    Raise INVALID_REQUEST if the share partition was never initialized, FENCED_LEADER_EPOCH and
    FENCED_STATE_EPOCH if the epochs differ. Only a read changes the leader epoch, and only
    `initialize` the state epoch.
    """
    _check_partition(key)
    found = _find(states, key)
    _check_leader_epoch(key, found, asked.leader_epoch)
    _check_state_epoch(key, found, asked.state_epoch)
    _check_exists(states, key)
    known = asked._replace(leader_epoch=found.leader_epoch)
    return Outcome((_record(states, key, found, known, now_ms),), (told(reply, None),))


def read_summary(
    states: ShareStates, key: SharePartitionKey, reply: Reply[StateSummary]
) -> Outcome:
    """Reply the StateSummary; `UNINITIALIZED` if the share partition was never initialized."""
    _check_partition(key)
    _check_exists(states, key)
    found = states.states.get(key)
    return Outcome(replies=(told(reply, UNINITIALIZED if found is None else found.summary),))


def delete(states: ShareStates, key: SharePartitionKey, reply: Reply[None]) -> Outcome:
    """Delete a share partition; reply None, also if there is none."""
    _check_partition(key)
    _check_exists(states, key)
    records = (tombstone(key),) if key in states.states else ()
    return Outcome(records, (told(reply, None),))


def _record(
    states: ShareStates, key: SharePartitionKey, found: ShareState, asked: StateWrite, now_ms: int
) -> CoordinatorRecord:
    """Return the record of a change: an update, or a snapshot after many of them."""
    updates_max: int = states.settings[
        config.SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT
    ]
    if states.update_counts.get(key, 0) < updates_max:
        batches = merge_batches((), asked.batches, asked.start_offset)
        return update(key, found.snapshot_epoch, asked._replace(batches=batches))
    return snapshot(key, snapshotted(merged(found, asked), now_ms))


def _find(states: ShareStates, key: SharePartitionKey) -> ShareState:
    found = states.states.get(key)
    if found is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"share partition {key.text} has not been initialized"
        )
    return found


def _check_partition(key: SharePartitionKey) -> None:
    if key.partition < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key.partition} is no partition")


def _check_leader_epoch(key: SharePartitionKey, found: ShareState, leader_epoch: int) -> None:
    if ANY_EPOCH != leader_epoch < found.leader_epoch:
        raise _fenced(ErrorCode.FENCED_LEADER_EPOCH, key, found.leader_epoch)


def _check_state_epoch(key: SharePartitionKey, found: ShareState, state_epoch: int) -> None:
    if ANY_EPOCH != state_epoch < found.state_epoch:
        raise _fenced(ErrorCode.FENCED_STATE_EPOCH, key, found.state_epoch)


def _check_exists(states: ShareStates, key: SharePartitionKey) -> None:
    if not states.exists(key):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition for {key.text}"
        )


def _fenced(code: ErrorCode, key: SharePartitionKey, known_epoch: int) -> KafkaError:
    return KafkaError(code, f"share partition {key.text} is at epoch {known_epoch} by now")
