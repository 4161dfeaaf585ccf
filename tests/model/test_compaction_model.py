"""Random histories of a compacted log, compared with a list of everything that was written."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.log import Log
from headrace.log.settings import LogSettings
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.keyed import DELETE_RETENTION_MS, headers_of, put, run, table_of
from tests.unit.log.logs import NOW_MS, end_transaction, open_simulated

KEYS = [b"a", b"b", b"c", b"d", b"long key " * 3, b""]
PRODUCERS = [1, 2]
SETTINGS = LogSettings(
    is_compacted=True,
    segment_bytes=600,
    index_interval_bytes=150,
    delete_retention_ms=DELETE_RETENTION_MS,
)


@dataclass
class Written:
    """A record that was appended, and what became of it."""

    batch_offset: int
    key: bytes
    value: bytes | None
    is_committed: bool = True
    horizon_ms: int | None = None
    """When it may go, if it is a tombstone that a pass has met."""


@dataclass
class Model:
    """Everything that was written, by offset."""

    written: dict[int, Written] = field(default_factory=dict)
    open: dict[int, list[int]] = field(default_factory=dict)
    """Offsets in the open transaction of each producer."""
    clean_offset: int = 0
    now_ms: int = NOW_MS

    def latest(self, end_offset: int) -> dict[bytes, int]:
        """The last committed offset of each key before an end."""
        return {
            record.key: offset
            for offset, record in self.written.items()
            if record.is_committed and offset < end_offset
        }

    def on_compacted(self, clean_offset: int) -> None:
        self.clean_offset = clean_offset
        latest = set(self.latest(clean_offset).values())
        for offset, record in self.written.items():
            is_kept = offset in latest or offset >= clean_offset
            is_met = record.batch_offset < clean_offset
            if is_kept and is_met and record.value is None and record.horizon_ms is None:
                record.horizon_ms = self.now_ms + DELETE_RETENTION_MS


class Play:
    """A log and its model, one action after the other."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.log: Log = open_simulated(self.disk, SETTINGS)
        self.model = Model()
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.count = 0

    def put(self, pairs: list[tuple[int, bool]], producer_id: int | None) -> None:
        model = self.model
        self.count += 1
        records = [
            (KEYS[key], None if is_tombstone else b"%d" % self.count) for key, is_tombstone in pairs
        ]
        fields: dict[str, Any] = {}
        if producer_id is not None:
            fields = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": self.sequences[producer_id],
                "is_transactional": True,
            }
            self.sequences[producer_id] += len(records)
        base_offset = put(self.log, *records, **fields).base_offset
        for offset, (key, value) in enumerate(records, base_offset):
            is_committed = producer_id is None
            model.written[offset] = Written(base_offset, key, value, is_committed=is_committed)
            if producer_id is not None:
                model.open.setdefault(producer_id, []).append(offset)

    def end(self, producer_id: int, is_commit: bool) -> None:
        if producer_id not in self.model.open:
            return
        end_transaction(self.log, producer_id, is_commit=is_commit)
        for offset in self.model.open.pop(producer_id):
            self.model.written[offset].is_committed = is_commit

    def compact(self, after_ms: int, map_keys: int) -> None:
        model = self.model
        model.now_ms += after_ms
        self.log.roll(self.log.end_offset)
        self.log.advance_high_watermark(self.log.end_offset)
        had_dirty = self.log.first_dirty_offset
        compacted = run(self.log, model.now_ms, map_bytes=24 * (map_keys + 1) * 4 // 3)
        assert compacted.first_dirty_offset == self.log.first_dirty_offset
        if compacted.first_dirty_offset > had_dirty:
            expired = {
                offset
                for offset, record in model.written.items()
                if record.horizon_ms is not None and record.horizon_ms <= model.now_ms
            }
            model.on_compacted(compacted.first_dirty_offset)
            self.check(expired)

    def check(self, expired: set[int]) -> None:
        model = self.model
        table = table_of(self.log)
        offsets = [offset for offset, _, _ in table]
        assert offsets == sorted(set(offsets))
        for offset, key, value in table:
            assert (key, value) == (model.written[offset].key, model.written[offset].value)
        latest = set(model.latest(model.clean_offset).values())
        clean = {offset for offset in offsets if offset < model.clean_offset}
        assert clean == latest - expired
        dirty = {offset for offset in offsets if offset >= model.clean_offset}
        assert dirty == {offset for offset in model.written if offset >= model.clean_offset}
        bases = [header.base_offset for header in headers_of(self.log)]
        assert bases == sorted(set(bases))
        self.check_reopened()

    def check_reopened(self) -> None:
        """The same log is there after a crash; nothing of it may hang on memory."""
        asyncio.run(self.log.flush())
        twin = self.disk.clone()
        twin.crash()
        again = open_simulated(
            twin, SETTINGS, is_clean=False, recovery_point=self.log.recovery_point
        )
        assert table_of(again) == table_of(self.log)
        assert {state.producer_id: state.last_sequence for state in again.producers} == {
            state.producer_id: state.last_sequence for state in self.log.producers
        }


PAIRS = st.lists(
    st.tuples(st.integers(0, len(KEYS) - 1), st.integers(0, 4).map(lambda number: number == 0)),
    min_size=1,
    max_size=4,
)
ACTIONS = st.one_of(
    st.tuples(st.just("put"), PAIRS, st.sampled_from([None, None, *PRODUCERS])),
    st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
    st.tuples(
        st.just("compact"),
        st.sampled_from([1, DELETE_RETENTION_MS - 1, DELETE_RETENTION_MS]),
        st.sampled_from([2, 100]),
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ACTIONS, max_size=40))
def test_every_key_has_its_latest_value_and_nothing_else_below_the_clean_offset(
    actions: list[tuple[str, object, object]],
) -> None:
    play = Play()
    for name, *arguments in [*actions, ("compact", 1, 100), ("compact", DELETE_RETENTION_MS, 100)]:
        getattr(play, name)(*arguments)
