"""Bugs planted into the product, each of which the simulation of a whole node must notice."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.groups.offsets.store import Offsets
from headrace.log import log as log_module
from headrace.log.folder import LogFolder
from headrace.log.log import Appended
from headrace.log.producers import ProducerStates, RecordedBatch
from headrace.node.upkeep import Upkeep
from headrace.raft.storage import RaftStorage
from headrace.replication.partition import Partition
from headrace.server.request import Request
from headrace.server.traffic import Traffic
from headrace.share.durable import DurableState
from headrace.share.partition.machine import SharePartition
from headrace.wire import ApiKey
from tests.sim.node_checks import Violation
from tests.sim.test_whole_node import play

SEEDS_MAX = 40
Patch = pytest.MonkeyPatch


def answer_before_the_disk(patch: Patch) -> None:
    """Acknowledge records although flush.messages says that they are to be synced first."""
    patch.setattr(Partition, "is_flush_awaited", False)


def answer_repeated_records_before_the_disk(patch: Patch) -> None:
    """Take a record that is there for one that is on disk."""

    def duplicate(batch: RecordedBatch) -> Appended:
        return Appended(batch.base_offset, batch.last_offset, batch.timestamp, False)

    patch.setattr(log_module, "_duplicate", duplicate)


def show_before_the_disk(patch: Patch) -> None:
    """Let readers and coordinators have what is not synced yet."""
    real = Partition.on_appended

    def on_appended(self: Partition, byte_count: int) -> None:
        wanted, self.log.wants_flush = self.log.wants_flush, False
        real(self, byte_count)
        self.log.wants_flush = wanted

    patch.setattr(Partition, "on_appended", on_appended)


def leave_the_topic_id_to_the_one_who_wrote_it(patch: Patch) -> None:
    """Sync the file with a topic's id in the life of the process that made it, or never."""
    real = LogFolder._open_all

    def open_all(self: LogFolder, is_clean: bool) -> None:
        real(self, is_clean)
        for log in self.logs.values():
            log.flusher._new_files.clear()

    patch.setattr(LogFolder, "_open_all", open_all)


def forget_what_queues_were_told(patch: Patch) -> None:
    """Load the state of a share partition without what was acknowledged in it."""
    real = SharePartition.load

    def load(self: SharePartition, durable: DurableState, **options: Any) -> None:
        start_offset = max(0, durable.start_offset - 5)
        forgotten = DurableState(durable.state_epoch, durable.leader_epoch, start_offset, 0)
        real(self, forgotten, **options)

    patch.setattr(SharePartition, "load", load)


def skip_the_sync_of_metadata(patch: Patch) -> None:
    def sync(self: RaftStorage) -> None:
        assert self._file is not None
        self._synced_bytes = self._file.size

    patch.setattr(RaftStorage, "sync", sync)


def lose_responses(patch: Patch) -> None:
    real = Request.answer

    def answer(self: Request, body: Any, **options: Any) -> None:
        if self.api_key != ApiKey.LIST_GROUPS or self.correlation_id % 2:
            real(self, body, **options)

    patch.setattr(Request, "answer", answer)


def keep_count_of_what_is_gone(patch: Patch) -> None:
    """Forget a connection, but not the bytes of its requests."""
    real = Traffic.forget
    patch.setattr(Traffic, "forget", lambda self, connection, unanswered: real(self, connection, 0))


def leave_tasks_behind(patch: Patch) -> None:
    async def stop(self: Upkeep) -> None:
        await self._compactor.stop()

    patch.setattr(Upkeep, "stop", stop)


def forget_offsets(patch: Patch) -> None:
    real = Offsets.put

    def put(self: Offsets, group_id: str, place: Any, offset: Any, **options: Any) -> None:
        if offset.offset % 7:
            real(self, group_id, place, offset, **options)

    patch.setattr(Offsets, "put", put)


def append_what_is_repeated(patch: Patch) -> None:
    real = ProducerStates.check

    def check(self: ProducerStates, *arguments: Any) -> None:
        real(self, *arguments)

    patch.setattr(ProducerStates, "check", check)


BUGS: list[tuple[Callable[[Patch], None], int]] = [
    (answer_before_the_disk, 4),
    (answer_repeated_records_before_the_disk, 0),
    (show_before_the_disk, 4),
    (leave_the_topic_id_to_the_one_who_wrote_it, 0),
    (forget_what_queues_were_told, 4),
    (skip_the_sync_of_metadata, 1),
    (lose_responses, 0),
    (keep_count_of_what_is_gone, 0),
    (leave_tasks_behind, 0),
    (forget_offsets, 2),
    (append_what_is_repeated, 4),
]
"""Each with a seed at which it was noticed."""


@pytest.mark.parametrize(("plant", "first"), BUGS, ids=[plant.__name__ for plant, _ in BUGS])
def test_a_planted_bug_is_noticed(
    plant: Callable[[Patch], None], first: int, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    for seed in range(first, first + SEEDS_MAX):
        try:
            play(seed)
        except Violation:
            return
    pytest.fail(f"{SEEDS_MAX} seeds, and nobody noticed")
