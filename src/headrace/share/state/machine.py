"""The machine of one partition of `__share_group_state`: records, deadlines, and the start."""

from collections.abc import Iterable

from headrace.coordinator.machine import NOTHING, OnError, Outcome
from headrace.coordinator.records import CoordinatorRecord
from headrace.share.durable import StateWrite
from headrace.share.state.operations import ANY_EPOCH
from headrace.share.state.records import to_batches, to_key, to_state
from headrace.share.state.states import ShareStates, merged
from headrace.share.state.upkeep import on_due, schedule
from headrace.wire.messages.share_snapshot_key import ShareSnapshotKey
from headrace.wire.messages.share_snapshot_value import ShareSnapshotValue
from headrace.wire.messages.share_update_key import ShareUpdateKey
from headrace.wire.messages.share_update_value import ShareUpdateValue
from headrace.wire.schema import Message


class ShareStatesMachine:
    """The states of share partitions, fed by their records."""

    def __init__(self, state: ShareStates) -> None:
        self.state = state

    def replay(self, record: CoordinatorRecord) -> None:
        self.state.end_offset = record.offset + 1
        if isinstance(record.key, ShareSnapshotKey):
            self._replay_snapshot(record.key, record)
        else:
            assert isinstance(record.key, ShareUpdateKey)
            if record.value is None:
                return  # never written: a state is deleted by the tombstone of its snapshot
            assert isinstance(record.value, ShareUpdateValue)
            self._replay_update(record.key, record.value)

    def _replay_snapshot(self, row: ShareSnapshotKey, record: CoordinatorRecord) -> None:
        state, key = self.state, to_key(row)
        if record.value is None:
            for table in (state.states, state.update_counts, state.snapshot_offsets):
                table.pop(key, None)
            keys = state.keys_of.get(key.topic_id, {})
            keys.pop(key, None)
            if not keys:
                state.keys_of.pop(key.topic_id, None)
            return
        assert isinstance(record.value, ShareSnapshotValue)
        state.states[key] = to_state(record.value)
        state.keys_of.setdefault(key.topic_id, {})[key] = None
        state.update_counts[key] = 0
        state.snapshot_offsets[key] = record.offset

    def _replay_update(self, row: ShareUpdateKey, value: ShareUpdateValue) -> None:
        state, key = self.state, to_key(row)
        former = state.states.get(key)
        if former is None:
            return  # its snapshot was deleted, as there is a later one, or a tombstone
        change = StateWrite(
            ANY_EPOCH,
            value.leader_epoch,
            value.start_offset,
            value.delivery_complete_count,
            to_batches(value.state_batches),
        )
        state.states[key] = merged(former, change)
        state.update_counts[key] += 1

    def id_of(self, key: Message) -> str | None:
        """Return None: a missing update damages its state, which requests do not name."""
        return None

    def set_aside(self, id_: str) -> None:
        """Do nothing: no id is known."""

    def end_transaction(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """Change nothing: records of this topic are not part of transactions."""

    def on_loaded(self, now_ms: int) -> Outcome:
        schedule(self.state, now_ms)
        return NOTHING

    def next_deadline_ms(self) -> int | None:
        return self.state.deadlines.next_ms()

    def on_deadline(self, now_ms: int) -> Outcome:
        return on_due(self.state, now_ms)

    def on_deadline_unmet(self, now_ms: int) -> None:
        self.state.deadlines.put_back(now_ms)

    def waiting(self) -> Iterable[OnError]:
        """Return nothing: no request waits."""
        return ()
