"""Lives of coordinators by seed: what clients did to a shard, and what it knew after each batch.

A life is a `Life`: the log that it left, and for each end of a batch what the machine said that it
knew then. Only what is written counts; who waits, and what a rebalance has prepared, does not.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, Final, Generic, TypeVar

from headrace.coordinator.machine import Machine, Operation, Outcome
from headrace.coordinator.records import RecordTypes
from headrace.coordinator.shard import Shard
from headrace.errors import KafkaError
from headrace.log.log import Appended
from headrace.log.opening import open_log
from headrace.log.settings import LogSettings
from headrace.records.control import build_end_transaction_marker
from headrace.records.header import read_header
from headrace.testing.disk import SimulatedDisk
from headrace.testing.virtual_loop import run_virtual

START_MS: Final = 1_700_000_000_000
SETTINGS: Final = LogSettings(
    is_compacted=True, segment_bytes=3000, index_interval_bytes=500, delete_retention_ms=0
)
ACTS: Final = 250

M = TypeVar("M", bound=Machine)
Known = dict[str, Any]
"""What a machine knows, in plain values that compare."""


class Life(ABC, Generic[M]):
    """One life of a shard; `play` lives it."""

    types: RecordTypes

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log = open_log(SimulatedDisk(seed), "journal-0", SETTINGS, is_clean=True)
        self.name = "journal"
        self.produce_waiters: dict[Any, int | None] = {}
        self.is_leader = True
        self.leader_epoch = 0
        self.has_enough_replicas = True
        self.known: dict[int, Known] = {0: {}}
        """By the end of the log: what was known there."""
        self._numbers = count(1)

    @abstractmethod
    def make(self) -> M:
        """Give an empty machine."""

    @abstractmethod
    def tell(self, machine: M, before: Known) -> Known:
        """Say what of a machine is written; `before` is what was said last."""

    @abstractmethod
    def act(self) -> None:
        """Do something that clients do."""

    def play(self) -> None:
        run_virtual(self._play())

    async def _play(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.shard: Shard[M] = Shard(self, self.make, self.types, self)
        self.shard.start()
        await self.shard.loaded()
        for _ in range(ACTS):
            self.act()
            await asyncio.sleep(self.random.choice((0.001, 0.001, 0.01, 1.0, 7.0)))
        self.shard.close()

    # What a shard is set among

    def now_ms(self) -> int:
        return START_MS + round(self.loop.time() * 1000)

    def append_own(self, batch: memoryview, *, transaction_version: int = 0) -> Appended:
        appended = self.log.append_own(
            batch, leader_epoch=0, transaction_version=transaction_version
        )
        self.log.advance_high_watermark(self.log.end_offset)
        if read_header(batch).producer_id < 0:
            self._note()  # else it is replayed when it is appended, not before
        return appended

    def _note(self) -> None:
        before = self.known[max(self.known)]
        self.known[self.log.end_offset] = self.tell(self.shard.machine, before)

    # For those who act

    def number(self) -> int:
        return next(self._numbers)

    def do(self, operation: Callable[..., Outcome], *request: Any, **options: Any) -> None:
        """Ask the shard; who wants to know the answer says `on_answer`."""
        on_answer: Callable[[Any], None] = options.pop("on_answer", _ignore)

        def reply(answer: object) -> None:
            # Later, so that what follows is a turn of its own.
            if not isinstance(answer, KafkaError):
                self.loop.call_later(0.0001, on_answer, answer)

        def ask(machine: Any, now_ms: int) -> Outcome:
            times = () if options.get("is_timeless") else (now_ms,)
            return operation(machine.state, *request, *times, reply)

        self.write(ask, reply, **{k: v for k, v in options.items() if k.startswith("producer")})

    def write(self, ask: Operation[M], reply: Callable[[Any], None], **producer: int) -> None:
        if producer:
            self.shard.write_transactional(
                ask,
                reply,
                producer_id=producer["producer_id"],
                producer_epoch=producer["producer_epoch"],
            )
            self._note()
        else:
            self.shard.write(ask, reply)

    def mark(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """Write the end of a producer's transaction."""
        marker = build_end_transaction_marker(
            self.now_ms(),
            is_commit=is_commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=0,
        )
        self.shard.end_transaction(memoryview(marker), transaction_version=0)
        self._note()


def _ignore(_: object) -> None:
    """Nobody waits."""
