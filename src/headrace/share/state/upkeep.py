"""What keeps the log of states short: snapshots of quiet share partitions, pruning, deletions.

A record is needed until its share partition has a later snapshot, so one that is quiet would keep
the log of all others. Every share.coordinator.cold.partition.snapshot.interval.ms those whose
snapshot is older than that get a new one, unless all are quiet. Every
share.coordinator.state.topic.prune.interval.ms the log is told from where on it is needed.
"""

from itertools import islice
from typing import Final

import msgspec

from headrace import config
from headrace.coordinator.machine import NOTHING, Outcome, told
from headrace.coordinator.records import CoordinatorRecord
from headrace.ids import TopicId
from headrace.share.state.records import snapshot, tombstone
from headrace.share.state.states import ShareStates

COLD_SNAPSHOTS: Final = "cold snapshots"
PRUNING: Final = "pruning"
"""The words of deadlines; the id of a topic is that of its deletion."""
BATCHES_AT_ONCE_MAX: Final = 10_000
"""How many batches of offsets cold snapshots have together; the rest follows at once."""
RECORDS_AT_ONCE_MAX: Final = 500


def schedule(states: ShareStates, now_ms: int) -> None:
    """Have snapshots and pruning done when their time has come."""
    for word, setting in _INTERVALS.items():
        states.deadlines.set(word, now_ms + states.settings[setting])


def on_due(states: ShareStates, now_ms: int) -> Outcome:
    """Do what is due first."""
    due = states.deadlines.take_due(now_ms)
    if due is None:
        return NOTHING
    if isinstance(due, bytes):
        return forget_topic(states, TopicId(due), now_ms)
    states.deadlines.set(due, now_ms + states.settings[_INTERVALS[due]])
    if due == COLD_SNAPSHOTS:
        return _snapshot_cold(states, now_ms)
    # Told when all that the machine has seen is committed: a snapshot that is not could be lost,
    # and what it replaces would be needed again.
    return Outcome(replies=(told(states.prune, states.redundant_offset),))


def forget_topic(states: ShareStates, topic_id: TopicId, now_ms: int) -> Outcome:
    """Delete the states of a topic that was deleted, a bounded part at once."""
    gone = islice(states.keys_of.get(topic_id, ()), RECORDS_AT_ONCE_MAX)
    records = tuple(tombstone(key) for key in gone)
    if len(records) == RECORDS_AT_ONCE_MAX:
        states.deadlines.set(topic_id, now_ms)
    return Outcome(records, is_divisible=True)


def _snapshot_cold(states: ShareStates, now_ms: int) -> Outcome:
    """Write the states anew whose last snapshot is old; of topics that are gone, delete them."""
    if all(state.is_cold for state in states.states.values()):
        return NOTHING  # nobody writes, so nothing is gained
    interval_ms = states.settings[_INTERVALS[COLD_SNAPSHOTS]]
    records: list[CoordinatorRecord] = []
    batch_count = 0
    for key, state in states.states.items():
        if now_ms - state.written_ms < interval_ms:
            continue
        if not states.exists(key):
            records.append(tombstone(key))
        else:
            epoch = state.snapshot_epoch + 1
            rewritten = msgspec.structs.replace(state, snapshot_epoch=epoch, written_ms=now_ms)
            records.append(snapshot(key, rewritten))
            batch_count += len(state.batches)
        if len(records) == RECORDS_AT_ONCE_MAX or batch_count >= BATCHES_AT_ONCE_MAX:
            states.deadlines.set(COLD_SNAPSHOTS, now_ms)
            break
    return Outcome(tuple(records))


_INTERVALS: Final = {
    COLD_SNAPSHOTS: config.SHARE_COORDINATOR_COLD_PARTITION_SNAPSHOT_INTERVAL_MS,
    PRUNING: config.SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS,
}
