"""A partition in the tier against a plain list of its records.

Whatever is produced, copied, expired and deleted, with a store that fails, nodes that die at any
moment and leaders that lost records: each record from the log's start on reads the same as in the
list, and once everything is settled the store has what the metadata says and nothing else.
"""

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from headrace.log.cutting import apply_retention, delete_records, truncate
from headrace.records.header import read_headers
from headrace.records.reader import read_records
from headrace.remote.layout import ObjectKind, object_key
from headrace.remote.segments import SegmentState
from tests.unit.log.logs import records_of
from tests.unit.tier.tier_nodes import (
    HOUR_MS,
    ORDERS,
    LoopWithThreads,
    TierNode,
    World,
    segment_objects,
)


class TieredLogMachine(RuleBasedStateMachine):
    """One partition, its leaders one after the other, and its store."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=LoopWithThreads)
        self.world = World(seed=1)
        self.values: list[bytes] = []
        """The value of each offset."""
        self.epoch = 0
        self.highest_start = 0
        """Where the log has ever started: what is before may be gone."""
        self.node = TierNode(self.world)
        self.run(self.node.start())

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.world.store.heal()
        self.run(self.node.stop())
        self.runner.close()

    # What clients and operators do

    @rule(count=st.integers(1, 12))
    def produce(self, count: int) -> None:
        for _ in range(count):
            self.values.append(b"%d" % self.node.log.end_offset + b"/%d" % self.epoch)
            self.run(self._append(self.values[-1]))

    async def _append(self, value: bytes) -> None:
        self.node.produce(value=value)

    @rule(hours=st.integers(1, 6))
    def pass_time(self, hours: int) -> None:
        self.world.now_ms += hours * HOUR_MS

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        log = self.node.log
        offset = log.start_offset + int((log.high_watermark - log.start_offset) * part)
        self.node.checkpoints.append(offset)  # files may be gone for good before the next one
        delete_records(log, offset)

    @rule(limit=st.sampled_from([-1, 600, 1500]))
    def change_retention(self, limit: int) -> None:
        log = self.node.log
        log.change_settings(replace(log.settings, retention_bytes=limit))

    # What a node does by itself

    @rule()
    def flush(self) -> None:
        self.run(self.node.log.flush())

    @rule()
    def look(self) -> None:
        self.run(self.node.run())

    @rule()
    def local_retention(self) -> None:
        while apply_retention(self.node.log, self.world.now_ms):
            pass

    # What goes wrong

    @rule(probability=st.sampled_from([0.0, 0.2, 0.5]))
    def let_the_store_fail(self, probability: float) -> None:
        self.world.store.fail_randomly(probability)

    @rule()
    def let_the_store_go(self) -> None:
        self.world.store.go_away()

    @rule()
    def heal_the_store(self) -> None:
        self.world.store.heal()

    @rule(turns=st.integers(0, 60), loses_power=st.booleans())
    def die_while_looking(self, turns: int, loses_power: bool) -> None:
        async def die() -> None:
            await self.node.tier.look()
            for _ in range(turns):
                await asyncio.sleep(0)
            await self.node.stop()

        self.run(die())
        self._restart(loses_power=loses_power)

    @rule(part=st.floats(0, 1))
    @precondition(lambda self: self.node.log.end_offset > self.node.log.local_start_offset)
    def elect_one_that_lost_records(self, part: float) -> None:
        self.run(self.node.stop())
        log = self.node.log
        kept = log.local_start_offset + int((log.end_offset - log.local_start_offset) * part)
        self._restart(loses_power=False, kept=kept)

    def _restart(self, *, loses_power: bool, kept: int | None = None) -> None:
        old = self.node
        if loses_power:
            old.disk.crash()
        else:
            old.disk.end_process()
        starts = [0, *old.checkpoints] if loses_power else [old.log.start_offset]
        self.node = TierNode(
            self.world,
            disk=old.disk,
            settings=old.log.settings,
            start_offset=starts[-1],
            is_clean=False,
            recovery_point=old.log.recovery_point if loses_power else 0,
        )
        self.node.checkpoints = starts
        log = self.node.log
        log.high_watermark = log.end_offset
        # One that has nothing of the log is another story: it takes over what the tier has.
        if kept is not None and log.local_start_offset < kept < log.end_offset:
            truncate(log, kept)
        del self.values[log.end_offset :]
        self.highest_start = min(self.highest_start, log.end_offset)
        assert len(self.values) == log.end_offset
        self.epoch += 1
        self.run(self.node.start(epoch=self.epoch))
        log.release()  # it is empty, and so is the tier

    # What must hold

    @invariant()
    def every_record_is_there(self) -> None:
        log, metadata = self.node.log, self.node.metadata
        if not metadata.is_ready(ORDERS.key):
            return
        self.highest_start = max(self.highest_start, log.start_offset)
        self._check_from(self.highest_start)

    def _check_from(self, start: int) -> None:
        log, metadata = self.node.log, self.node.metadata
        local = log.local_start_offset
        known: dict[bytes, dict[int, bytes]] = {}
        for offset in range(start, local):
            epoch = log.epochs.epoch_for_offset(offset)
            assert epoch is not None
            segment = metadata.find(ORDERS.key, epoch, offset)
            assert segment is not None, offset
            if segment.id not in known:
                data = self.world.store.objects[object_key(segment, ObjectKind.LOG)]
                known[segment.id] = values_in(data)
            assert known[segment.id][offset] == self.values[offset]
        values = {record.offset: record.value for record in records_of(log, max(local, start))}
        for offset in range(max(local, start), log.end_offset):
            assert values[offset] == self.values[offset]

    @rule()
    def settle(self) -> None:
        """Let everything come to rest: then nothing has leaked."""
        self.world.store.heal()

        async def rest() -> None:
            for _ in range(4):
                await self.node.run()
                await asyncio.sleep(120)
                await self.node.settle()

        self.run(rest())
        assert {segment.state for segment in self.node.segments} <= {SegmentState.COPY_FINISHED}
        self._check_from(self.node.log.start_offset)
        stored = segment_objects(self.world)
        assert len(stored) == len(self.node.segments)
        assert all(len(kinds) >= 5 for kinds in stored.values())
        log = self.node.log
        last = log.segments[-1].base_offset
        assert last <= log.start_offset or last <= log.remote_end_offset <= log.end_offset


def values_in(data: bytes) -> dict[int, bytes]:
    """Return the values of a segment by offset."""
    view = memoryview(data)
    return {
        record.offset: record.value or b""
        for position, header in read_headers(view)
        for record in read_records(view[position : position + header.size_bytes], header)
    }


TieredLogMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None
)
TestTieredLog = TieredLogMachine.TestCase
