"""Bugs planted into the product, each of which the simulation of a whole node must notice."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.share.member import Member
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
from tests.sim.node_world import Retries, World
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


def believe_that_every_response_arrives(patch: Patch) -> None:
    """Have a member of a queue say no more than usual after a response that was lost."""
    patch.setattr(Member, "miss", lambda self: None)


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


BUGS: list[tuple[Callable[[Patch], None], type[World], int]] = [
    (answer_before_the_disk, World, 4),
    (answer_repeated_records_before_the_disk, Retries, 1),
    (show_before_the_disk, World, 4),
    (leave_the_topic_id_to_the_one_who_wrote_it, World, 0),
    (forget_what_queues_were_told, World, 4),
    (skip_the_sync_of_metadata, World, 1),
    (lose_responses, World, 1),
    (keep_count_of_what_is_gone, World, 0),
    (believe_that_every_response_arrives, Retries, 1),
    (leave_tasks_behind, World, 0),
    (forget_offsets, World, 2),
    (append_what_is_repeated, World, 4),
]
"""Each with the scenario that notices it, and a seed at which that was so."""


@pytest.mark.parametrize(
    ("plant", "scenario", "first"), BUGS, ids=[plant.__name__ for plant, _, _ in BUGS]
)
def test_a_planted_bug_is_noticed(
    plant: Callable[[Patch], None], scenario: type[World], first: int, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    for seed in range(first, first + SEEDS_MAX):
        try:
            play(seed, scenario)
        except Violation:
            return
    pytest.fail(f"{SEEDS_MAX} seeds, and nobody noticed")
