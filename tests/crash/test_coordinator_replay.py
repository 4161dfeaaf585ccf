"""A coordinator that ends after any batch of its log knows again what it knew then."""

import asyncio
from typing import Any

import pytest

from headrace.coordinator.loading import replay_log
from headrace.coordinator.machine import NOTHING
from headrace.coordinator.shard import Shard, State
from headrace.log.compaction import compact
from headrace.log.cutting import delete_records, truncate
from headrace.log.log import Log
from headrace.log.opening import open_log
from headrace.records.header import read_headers
from headrace.testing.disk import SimulatedDisk
from headrace.testing.virtual_loop import run_virtual
from tests.crash.coordinator_histories import SETTINGS, Known, Life
from tests.crash.group_histories import GroupsLife
from tests.crash.share_group_histories import ShareGroupsLife
from tests.crash.share_state_histories import ShareStatesLife
from tests.crash.transaction_histories import TransactionsLife

COMPACTED_LIVES = [GroupsLife, ShareGroupsLife, TransactionsLife]
LIVES = [*COMPACTED_LIVES, ShareStatesLife]
some_seeds = pytest.mark.parametrize(
    "seed",
    [*range(8), *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(8, 25))],
)
CUTS = 12
"""How many of the ends a whole shard is started at; the machine itself is asked at all."""


def lived(kind: type[Life[Any]], seed: int) -> Life[Any]:
    life = kind(seed)
    life.play()
    return life


def batches(log: Log) -> list[memoryview]:
    found = []
    for segment in log.segments:
        chunk = memoryview(segment.file.read(0, segment.size_bytes))
        for position, header in read_headers(chunk):
            found.append(chunk[position : position + header.size_bytes])
    return found


def copy_of(log: Log, count: int | None = None) -> Log:
    """Give a log with the first batches of another."""
    copy = open_log(SimulatedDisk(), "copy-0", SETTINGS, is_clean=True)
    for batch in batches(log)[:count]:
        copy.append_replicated(batch)
    copy.advance_high_watermark(copy.end_offset)
    return copy


def known(life: Life[Any], machine: Any, before: Known) -> Known:
    told: Known = life.tell(machine, before)
    return told


@pytest.mark.parametrize("kind", LIVES)
@some_seeds
def test_replay_up_to_any_batch_gives_what_was_known_then(kind: type[Life[Any]], seed: int) -> None:
    life = lived(kind, seed)
    assert len(life.known) > 60
    machine = life.make()
    for batch in batches(life.log):
        alone = open_log(SimulatedDisk(), "alone-0", SETTINGS, is_clean=True)
        alone.append_replicated(batch)
        asyncio.run(replay_log(alone, machine, life.types))
        assert known(life, machine, {}) == life.known[alone.end_offset]


@pytest.mark.parametrize("kind", LIVES)
def test_a_shard_that_starts_on_a_log_cut_anywhere_knows_what_was_known_there(
    kind: type[Life[Any]],
) -> None:
    life = lived(kind, 1)
    ends = life.random.sample(sorted(life.known), CUTS)

    async def load(log: Log) -> Any:
        life.log = log
        life.loop = asyncio.get_running_loop()
        shard = Shard(life, lambda: _Quiet(life.make()), life.types, life)
        shard.start()
        await shard.loaded()
        assert shard.state is State.ACTIVE
        machine = shard.machine.machine
        shard.close()
        return machine

    origin = life.log
    for end in ends:
        log = copy_of(origin)
        truncate(log, end)
        assert log.end_offset == end
        assert known(life, run_virtual(load(log)), {}) == life.known[end]


@pytest.mark.parametrize("kind", COMPACTED_LIVES)
@some_seeds
def test_a_compacted_log_gives_what_was_known_at_its_end(kind: type[Life[Any]], seed: int) -> None:
    life = lived(kind, seed)
    expected = life.known[life.log.end_offset]

    async def compacted() -> Any:
        log = copy_of(life.log)
        before = log.size_bytes
        # Twice: tombstones and markers go when a pass has seen that nothing is left before them.
        for _ in range(2):
            await compact(log, life.now_ms())
        assert log.size_bytes < before
        machine = life.make()
        await replay_log(log, machine, life.types)
        return machine

    assert known(life, asyncio.run(compacted()), {}) == expected


@some_seeds
def test_a_log_that_was_pruned_gives_what_was_known_at_its_end(seed: int) -> None:
    life = ShareStatesLife(seed)
    life.play()
    assert life.redundant[-1][1] > 0
    for end, needed_from in life.redundant:
        log = copy_of(life.log)
        truncate(log, end)
        log.advance_high_watermark(log.end_offset)
        delete_records(log, needed_from)
        machine = life.make()
        asyncio.run(replay_log(log, machine, life.types))
        assert known(life, machine, {}) == life.known[end]


class _Quiet:
    """A machine that does nothing when it is loaded, so that it can be looked at as it is."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.machine, name)

    def on_loaded(self, now_ms: int) -> Any:
        return NOTHING
