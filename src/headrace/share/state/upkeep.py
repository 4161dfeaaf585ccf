"""Keeping the state log short: snapshots of quiet share partitions, pruning, deletions.

A record is needed until its share partition has a later snapshot, so a quiet share partition would
retain the log of all others. Every share.coordinator.cold.partition.snapshot.interval.ms those with
an older snapshot get a new one, unless all are quiet. Every
share.coordinator.state.topic.prune.interval.ms the log is pruned to the first needed offset.
"""

from itertools import islice
from typing import Final

import msgspec

from headrace import config
from headrace.coordinator.machine import NOTHING, Outcome, effect
from headrace.coordinator.records import CoordinatorRecord
from headrace.ids import TopicId
from headrace.share.state.records import snapshot, tombstone
from headrace.share.state.states import ShareStates

COLD_SNAPSHOTS: Final = "cold snapshots"
PRUNING: Final = "pruning"
"""Names of deadlines; a topic's deletion uses the topic's id."""
BATCHES_AT_ONCE_MAX: Final = 10_000
"""How many state batches one run of cold snapshots writes; the rest follows at once."""
RECORDS_AT_ONCE_MAX: Final = 500


def schedule(states: ShareStates, now_ms: int) -> None:
    """Schedule snapshots and pruning."""
    for word, setting in _INTERVALS.items():
        states.deadlines.set(word, now_ms + states.settings[setting])


def on_due(states: ShareStates, now_ms: int) -> Outcome:
    """Run the first due work."""
    due = states.deadlines.take_due(now_ms)
    if due is None:
        return NOTHING
    if isinstance(due, bytes):
        return forget_topic(states, TopicId(due), now_ms)
    states.deadlines.set(due, now_ms + states.settings[_INTERVALS[due]])
    if due == COLD_SNAPSHOTS:
        return _snapshot_cold(states, now_ms)
    # Pruned when everything the machine has seen is committed: an uncommitted snapshot could be
    # lost, and the records it supersedes would be needed again.
    return Outcome(replies=(effect(states.prune, states.redundant_offset),))


def forget_topic(states: ShareStates, topic_id: TopicId, now_ms: int) -> Outcome:
    """Delete the states of a deleted topic, a bounded part at once."""
    gone = islice(states.keys_of.get(topic_id, ()), RECORDS_AT_ONCE_MAX)
    records = tuple(tombstone(key) for key in gone)
    if len(records) == RECORDS_AT_ONCE_MAX:
        states.deadlines.set(topic_id, now_ms)
    return Outcome(records, is_divisible=True)


def _snapshot_cold(states: ShareStates, now_ms: int) -> Outcome:
    """Rewrite states whose last snapshot is old; delete those of deleted topics."""
    if all(state.is_cold for state in states.states.values()):
        return NOTHING  # all are quiet, so nothing is gained
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
