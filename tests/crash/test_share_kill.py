"""Workers of a queue and their broker, killed at random: nothing is lost or shared."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client import Admin
from headrace.client.configs import Resource, ResourceType
from headrace.client.share.offsets import ShareStart, describe_share_offsets
from tests.crash.queue_worker import (
    ACCEPTED,
    ACCEPTING,
    DELIVERED,
    RELEASED,
    RELEASING,
    Note,
    read_notes,
)
from tests.headrace_process import HeadraceProcess

KILLS = int(os.environ.get("HEADRACE_SHARE_KILLS", "30"))
KILLING_SECONDS = float(os.environ.get("HEADRACE_SHARE_SECONDS", "40"))
"""No kill begins later than that; the rest of what was produced is worked on."""
WORKERS = ("headrace", "headrace", "headrace", "confluent")
PARTITIONS = 2
RECORDS_A_KILL = 60
DEADLINE_SECONDS = 90
POLL_SECONDS = 0.02
LOCK_SECONDS = 3.0
DELIVERIES_MAX = 10
TOPIC, GROUP = "jobs", "workers"
SETTINGS = {
    "group.share.heartbeat.interval.ms": "250",
    "group.share.min.heartbeat.interval.ms": "250",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.assignment.interval.ms": "200",
    "group.share.record.lock.duration.ms": str(int(LOCK_SECONDS * 1000)),
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": str(DELIVERIES_MAX),
}

Place = tuple[int, int]
"""A partition and an offset."""


class Life(NamedTuple):
    """One process of a worker: what it noted, and from when on it may be dead."""

    notes: list[Note]
    ended_at: float


class Worker:
    """A worker's process, which is started again whenever it has ended."""

    def __init__(self, kind: str, bootstrap: str, folder: Path) -> None:
        self._kind = kind
        self._bootstrap = bootstrap
        self._folder = folder
        self._past: list[Life] = []
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        arguments = (self._kind, self._bootstrap, GROUP, TOPIC, str(self.notes_path))
        with (self._folder / "workers.out").open("ab") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.crash.queue_worker", *arguments],
                stdout=file,
                stderr=file,
                cwd=Path(__file__).parents[2],
            )

    @property
    def notes_path(self) -> Path:
        """Where it writes in this life."""
        return self._folder / f"{len(self._past)}.notes"

    def keep_running(self) -> None:
        status = self._process.poll()
        if status is not None:
            notes = self._read()
            # Killed by itself after its last note; or there was no broker to begin with.
            assert status == -signal.SIGKILL or not notes, f"it ended with {status}:\n{self.said()}"
            self._go_on(notes[-1].at if notes else time.monotonic())

    def said(self) -> str:
        return (self._folder / "workers.out").read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        self.keep_running()
        now = time.monotonic()
        self.end()
        self._go_on(now)

    def end(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_SECONDS)

    def _go_on(self, ended_at: float) -> None:
        self._past.append(Life(self._read(), ended_at))
        self._process = self._start()

    def lives(self) -> list[Life]:
        """Give what it noted in each of its lives; the last one has not ended."""
        return [*self._past, Life(self._read(), float("inf"))]

    def _read(self) -> list[Note]:
        return read_notes(self.notes_path.read_text()) if self.notes_path.exists() else []


@pytest.mark.slow
@pytest.mark.timeout(KILLING_SECONDS + 240)
@pytest.mark.parametrize("kills_max", [10, pytest.param(KILLS, marks=pytest.mark.exhaustive)])
def test_every_record_is_accepted_and_only_ended_leases_are_given_again(
    tmp_path: Path, kills_max: int
) -> None:
    choose = random.Random(932)
    node = HeadraceProcess(tmp_path / "data", SETTINGS)
    port, bootstrap = node.port, node.bootstrap
    node_kills: list[float] = []
    workers: list[Worker] = []
    try:
        set_up(bootstrap)
        for number, kind in enumerate(WORKERS):
            folder = tmp_path / f"{kind}-{number}"
            folder.mkdir()
            workers.append(Worker(kind, bootstrap, folder))
        source = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        fed = kills = 0
        end = time.monotonic() + KILLING_SECONDS
        while kills < kills_max and time.monotonic() < end:
            fed = feed(source, fed)
            wait_for_accepted(workers, fed - choose.randrange(2 * RECORDS_A_KILL), source)
            is_node = choose.randrange(3) == 0
            for worker in choose.sample(workers, choose.randrange(0 if is_node else 1, 3)):
                worker.kill()
                kills += 1
            if is_node:
                node_kills.append(time.monotonic())
                node.kill()
                node = HeadraceProcess(tmp_path / "data", SETTINGS, port=port)
                kills += 1
        print(f"{kills} kills, {len(node_kills)} of them of the node; {fed} records")
        wait_for_accepted(workers, fed, source)
        assert source.flush(DEADLINE_SECONDS) == 0
        wait_until_nothing_is_left(bootstrap, workers)
        for worker in workers:
            worker.end()
        lives = [life for worker in workers for life in worker.lives()]
        check_all_accepted(lives, fed)
        check_leases(lives, node_kills)
        check_counts(lives, node_kills)
        assert node.stop() == 0
    finally:
        for worker in workers:
            worker.end()
        node.kill()


def set_up(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(DEADLINE_SECONDS)

    async def read_from_the_beginning() -> None:
        async with Admin(bootstrap) as ours:
            group = Resource(ResourceType.GROUP, GROUP)
            await ours.alter_configs(group, set={"share.auto.offset.reset": "earliest"})

    asyncio.run(read_from_the_beginning())


def feed(source: Producer, fed: int) -> int:
    """Have more numbers produced, whoever is killed meanwhile; give how many there are in all."""
    for number in range(fed, fed + RECORDS_A_KILL):
        source.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    return fed + RECORDS_A_KILL


def wait_for_accepted(workers: list[Worker], count: int, source: Producer) -> None:
    """Wait until workers have said of so many records that they are done."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        source.poll(POLL_SECONDS)
        done = {
            note.number
            for worker in workers
            for life in worker.lives()
            for note in life.notes
            if note.what == ACCEPTING
        }
        if len(done) >= count:
            return
        assert time.monotonic() < deadline, f"{len(done)} of {count} records were accepted"
        for worker in workers:
            worker.keep_running()
        time.sleep(POLL_SECONDS)  # polls, up to the deadline


def wait_until_nothing_is_left(bootstrap: str, workers: list[Worker]) -> None:
    """Wait until the group is done with every record."""

    async def lag() -> int:
        async with Admin(bootstrap) as admin:
            starts = await describe_share_offsets(admin.cluster, GROUP)
            rows = [row for row in starts.values() if isinstance(row, ShareStart)]
            lags = [row.lag for row in rows if row.lag is not None and row.lag >= 0]
            return sum(lags) if len(lags) == PARTITIONS else -1

    deadline = time.monotonic() + DEADLINE_SECONDS
    while (left := asyncio.run(lag())) != 0:
        assert time.monotonic() < deadline, f"{left} records are left"
        for worker in workers:
            worker.keep_running()
        time.sleep(POLL_SECONDS)  # polls, up to the deadline


# What must hold


def check_all_accepted(lives: Iterable[Life], fed: int) -> None:
    """Nothing is lost: somebody accepted each record, as it was never given up."""
    notes = [note for life in lives for note in life.notes]
    assert {note.number for note in notes if note.what == ACCEPTING} == set(range(fed))
    delivered = [note for note in notes if note.what == DELIVERED]
    assert {(note.partition, note.offset) for note in delivered} == {
        (index, offset) for index in range(PARTITIONS) for offset in range(fed // PARTITIONS)
    }
    assert max(note.delivery for note in delivered) < DELIVERIES_MAX


def check_leases(lives: Iterable[Life], node_kills: list[float]) -> None:
    """Who gets a record that another had gets it because that one's lease had ended.

    And what a broker confirmed as accepted is not given to anybody again.
    """
    deliveries: dict[Place, list[tuple[Note, float]]] = defaultdict(list)
    confirmed: dict[Place, float] = {}
    for life in lives:
        for place, notes in by_place(life.notes).items():
            ends = lease_ends(notes, life.ended_at)
            deliveries[place] += [pair for pair in ends if pair[0].what == DELIVERED]
            for note in notes:
                if note.what == ACCEPTED:
                    confirmed[place] = min(note.at, confirmed.get(place, note.at))
    repeated = 0
    for place, held in deliveries.items():
        held.sort(key=lambda pair: pair[0].at)
        for (former, ended_at), (later, _) in pairwise(held):
            repeated += 1
            is_over = later.at >= ended_at or later.at >= former.asked_at + LOCK_SECONDS
            assert is_over or any(former.asked_at <= at <= later.at for at in node_kills), (
                f"{later} was delivered while {former} was held"
            )
        if place in confirmed:
            for note, _ in held:
                assert note.asked_at <= confirmed[place], f"{note} was accepted before"
    print(f"{repeated} deliveries were repeated")
    assert repeated, "no record was delivered twice: nobody was killed at the right moment"


def check_counts(lives: list[Life], node_kills: list[float]) -> None:
    """The count of a delivery is that of those before it, as far as they were persisted."""
    ends = sorted(life.ended_at for life in lives)
    kills = sorted([*ends, *node_kills])
    notes = by_place(note for life in lives for note in life.notes)
    for of_place in notes.values():
        seen = 0
        counts = {note.delivery for note in of_place if note.what == DELIVERED}
        released: Note | None = None
        for note in sorted(of_place, key=lambda note: note.at):
            if note.what == RELEASED:
                released = note
            if note.what != DELIVERED:
                continue
            # A worker that was killed may have had it and noted nothing.
            assert note.delivery <= 1 + seen + bisect_left(ends, note.at), f"{note}: too many"
            seen += 1
            if released is not None and note.asked_at > released.at:
                assert note.delivery > released.delivery, f"{note}: forgotten since {released}"
                is_quiet = bisect_left(kills, released.asked_at) == bisect_left(kills, note.at)
                if is_quiet and note.at < released.at + LOCK_SECONDS:
                    # Somebody had it each time, if only between the release and its answer.
                    assert note.delivery - 1 in counts, f"{note} after {released}"
                released = None


def by_place(notes: Iterable[Note]) -> dict[Place, list[Note]]:
    found: dict[Place, list[Note]] = defaultdict(list)
    for note in notes:
        found[note.partition, note.offset].append(note)
    return found


def lease_ends(notes: list[Note], ended_at: float) -> list[tuple[Note, float]]:
    """Give each note of a worker about a record, and when the worker's lease of it could end.

    It ends when the worker says that it gives the record back, and with the worker.
    """
    ends: list[tuple[Note, float]] = []
    for note in notes:
        given_back = [
            each.at for each in notes if each.what == RELEASING and each.asked_at == note.asked_at
        ]
        ends.append((note, min([ended_at, *given_back])))
    return ends
