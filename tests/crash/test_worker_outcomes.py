"""Workers whose handlers do anything, and a broker that comes and goes: every record ends as said.

Handlers return, raise, retry, block the loop, outlive their lock, are cancelled, and run in
threads. The broker is killed and restarted meanwhile. Rejected and given up records go to a
dead-letter topic, so the end of each record can be seen: it has a letter, or it is accepted.
"""

import asyncio
import logging
import os
import random
import re
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.client import Admin, Consumer, Producer, Retry, ShareRecord, Start, share_worker
from headrace.client.configs import Resource, ResourceType
from headrace.client.settings import ClientSettings
from headrace.client.share.offsets import ShareStart, describe_share_offsets
from headrace.errors import HeadraceError
from tests.headrace_process import HeadraceProcess

SECONDS = float(os.environ.get("HEADRACE_WORKER_SECONDS", "12"))
LONG_SECONDS = 600.0
SEED = int(os.environ.get("HEADRACE_WORKER_SEED", "932"))
DEADLINE_SECONDS = 150.0
PARTITIONS = 2
LOCK_SECONDS = 1.5
DELIVERIES_MAX = 10
TOPIC, GROUP, LETTERS = "jobs", "workers", "dlq.jobs"
RECORDS_A_FEED = 40
FEED_SECONDS = 1.0
SETTINGS = {
    "group.share.heartbeat.interval.ms": "250",
    "group.share.min.heartbeat.interval.ms": "250",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.assignment.interval.ms": "100",
    "group.share.record.lock.duration.ms": str(int(LOCK_SECONDS * 1000)),
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": str(DELIVERIES_MAX),
}
ACCEPTED, RELEASED, REJECTED = "accepted", "released", "rejected"
UNHANDLED = "no slot was free"

Delivery = tuple[int, int, int]
"""A partition, an offset, and the how many-th delivery."""


class Said(NamedTuple):
    """What the log says of a delivery."""

    delivery: Delivery
    word: str
    how: str
    """`confirmed` by the broker, `unknown` if no answer came, `dropped` if the lock was lost."""


class Worst:
    """A handler with a mind of its own, and a memory of what it did with each delivery."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.is_calm = False
        self.done: dict[int, tuple[ShareRecord, str]] = {}
        """By the identity of a record, which is the same in all attempts of a delivery."""

    async def handle(self, record: ShareRecord) -> None:
        self._note(record, RELEASED)  # so it is if it is cancelled
        choice = self._choose(record)
        if choice == "block":
            time.sleep(LOCK_SECONDS * self._random.uniform(0.1, 1.3))
        elif choice == "outlive":
            await asyncio.sleep(LOCK_SECONDS * self._random.uniform(0.5, 2))
        elif choice == "cancel":
            waited_for = asyncio.create_task(asyncio.sleep(10))
            waited_for.cancel()
            await waited_for
        else:
            await asyncio.sleep(self._random.choice([0, 0, 0.01]))
        self._finish(record, choice)

    def handle_in_thread(self, record: ShareRecord) -> None:
        self._note(record, RELEASED)
        choice = self._choose(record)
        if choice in ("block", "outlive"):
            time.sleep(LOCK_SECONDS * self._random.uniform(0.1, 1.5))
        self._finish(record, choice)

    def _choose(self, record: ShareRecord) -> str:
        number = int(record.value or b"")
        if number % 23 == 0:
            return "retry"  # always, until it is given up
        if number % 17 == 0:
            return "reject"
        if self.is_calm:
            return "return"
        kinds = ["return", "retry", "reset", "outlive", "cancel", "reject", "block"]
        return self._random.choices(kinds, [60, 8, 8, 4, 4, 4, 1])[0]

    def _finish(self, record: ShareRecord, choice: str) -> None:
        if choice == "retry":
            raise Retry("not now")
        if choice == "reset":
            raise ConnectionResetError("the database is away")
        if choice == "reject":
            self._note(record, REJECTED)
            raise ValueError("never")
        self._note(record, ACCEPTED)

    def _note(self, record: ShareRecord, word: str) -> None:
        self.done[id(record)] = (record, word)


class Log(logging.Handler):
    """What workers log of the records that they held."""

    LINE = re.compile(
        r"^jobs-(\d+) offset (\d+), delivery (\d+)(?: of \d+)?"
        r"(?: is (accepted|released|rejected|given up)"
        r"|: that it is (\w+) did not arrive"
        r"|: its lock was lost before the handler was done, so it is not (\w+))"
    )

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.said: list[Said] = []
        self.given_up: set[tuple[int, int]] = set()
        self.unhandled: set[Delivery] = set()
        """What a worker gave back that had no free slot when it ended."""

    def emit(self, record: logging.LogRecord) -> None:
        found = self.LINE.match(record.getMessage())
        if found is None:
            return
        partition, offset, count, confirmed, unknown, dropped = found.groups()
        if confirmed == "given up":
            self.given_up.add((int(partition), int(offset)))
            confirmed = RELEASED
        how = "confirmed" if confirmed else "unknown" if unknown else "dropped"
        delivery = int(partition), int(offset), int(count)
        if UNHANDLED in record.getMessage():
            self.unhandled.add(delivery)
            return
        self.said.append(Said(delivery, confirmed or unknown or dropped or "", how))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 400)
def test_every_record_ends_as_its_handler_said(tmp_path: Path) -> None:
    play(tmp_path, SECONDS)


@pytest.mark.exhaustive
@pytest.mark.timeout(LONG_SECONDS + 600)
def test_every_record_ends_as_its_handler_said_for_ten_minutes(tmp_path: Path) -> None:
    play(tmp_path, LONG_SECONDS)


def play(folder: Path, seconds: float) -> None:
    logger = logging.getLogger("headrace.client.share.leased")
    log, level = Log(), logger.level
    logger.addHandler(log)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    nodes = [HeadraceProcess(folder / "data", SETTINGS)]
    worst = Worst(SEED)
    try:
        fed, letters = asyncio.run(_play(folder, nodes, worst, seconds))
        check(worst, log, fed, letters)
    finally:
        nodes[-1].kill()
        logger.removeHandler(log)
        logger.setLevel(level)
        logger.propagate = True


async def _play(
    folder: Path, nodes: list[HeadraceProcess], worst: Worst, seconds: float
) -> tuple[int, set[int]]:
    """Let it all go on, then until nothing is left; return how much there was, and the letters."""
    bootstrap = nodes[0].bootstrap
    await set_up(bootstrap)
    choose = random.Random(SEED + 1)
    is_over = asyncio.Event()
    workers = [
        asyncio.create_task(work(bootstrap, handler, concurrency, choose, is_over))
        for handler, concurrency in (
            (worst.handle, 1),
            (worst.handle, 12),
            (worst.handle_in_thread, 6),
        )
    ]
    feeding = asyncio.create_task(feed(bootstrap, seconds))
    try:
        await disturb(folder, nodes, choose, seconds)
        fed = await feeding
        worst.is_calm = True
        await until(lambda: nothing_is_left(bootstrap), workers)
        letters = await read_letters(bootstrap)
    finally:
        is_over.set()
        feeding.cancel()
        await asyncio.gather(*workers, feeding, return_exceptions=True)
    for worker in workers:
        worker.result()
    return fed, letters


async def set_up(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(TOPIC, PARTITIONS, 1)
        group = Resource(ResourceType.GROUP, GROUP)
        configs = {"errors.deadletterqueue.topic.name": LETTERS}
        await admin.alter_configs(group, set=configs)


async def feed(bootstrap: str, seconds: float) -> int:
    """Produce numbers for so long; return how many there are."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    fed = 0
    async with Producer(bootstrap) as producer:
        while loop.time() < end:
            sent = [
                await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                for number in range(fed, fed + RECORDS_A_FEED)
            ]
            for delivery in sent:
                await delivery
            fed += RECORDS_A_FEED
            await asyncio.sleep(FEED_SECONDS)  # the pace of the feed
    return fed


async def work(
    bootstrap: str,
    handler: Callable[[ShareRecord], object],
    concurrency: int,
    choose: random.Random,
    is_over: asyncio.Event,
) -> None:
    """Run workers one after the other, each for a while; some end with handlers at work."""
    is_plain = not asyncio.iscoroutinefunction(handler)
    while not is_over.is_set():
        try:
            async with share_worker(
                bootstrap,
                GROUP,
                [TOPIC],
                handler,
                concurrency=concurrency,
                start="earliest",
                retry_backoff_ms=20,
                retry_timeout_ms=300,
                settings=ClientSettings(api_timeout_ms=5000, retry_backoff_ms=20),
                # A thread cannot be cancelled, so it would have more to say than is heard.
                drain_timeout_ms=60_000 if is_plain else choose.choice([50, 1000, 10_000]),
            ):
                try:
                    async with asyncio.timeout(choose.uniform(3, 12)):
                        await is_over.wait()
                except TimeoutError:
                    pass
        except HeadraceError:  # the broker was away when it began
            await asyncio.sleep(0.1)


async def disturb(
    folder: Path, nodes: list[HeadraceProcess], choose: random.Random, seconds: float
) -> None:
    """Kill or stop the broker now and then, and start it again at the same address."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        await asyncio.sleep(min(choose.uniform(2, 8), seconds / 3))  # the pace of the restarts
        node = nodes[-1]
        if choose.randrange(2):
            with suppress(subprocess.TimeoutExpired):  # then it is killed, which is as good
                await asyncio.to_thread(node.stop)
        await asyncio.to_thread(node.kill)
        nodes.append(
            await asyncio.to_thread(HeadraceProcess, folder / "data", SETTINGS, port=node.port)
        )


async def nothing_is_left(bootstrap: str) -> bool:
    try:
        async with Admin(bootstrap) as admin:
            starts = await describe_share_offsets(admin.cluster, GROUP)
    except HeadraceError:
        return False
    rows = [row for row in starts.values() if isinstance(row, ShareStart)]
    return len(rows) == PARTITIONS and all(row.lag == 0 for row in rows)


async def until(is_so: "Callable[[], object]", workers: "list[asyncio.Task[None]]") -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE_SECONDS
    while not await is_so():  # type: ignore[misc]
        assert loop.time() < deadline, "records are left"
        for worker in workers:
            assert not worker.done(), worker
        await asyncio.sleep(0.1)  # polls, up to the deadline


async def read_letters(bootstrap: str) -> set[int]:
    """Return the numbers that have a letter; a record is not done with before it has its own."""
    async with asyncio.timeout(DEADLINE_SECONDS), Consumer(bootstrap) as consumer:
        await consumer.assign(LETTERS, Start.BEGINNING, until_end=True)
        return {int(record.value or b"") async for record in consumer}


# What must hold


def check(worst: Worst, log: Log, fed: int, letters: set[int]) -> None:
    numbers: dict[tuple[int, int], int] = {}
    handled: dict[Delivery, Counter[str]] = defaultdict(Counter)
    for record, word in worst.done.values():
        numbers[record.partition, record.offset] = int(record.value or b"")
        handled[record.partition, record.offset, record.delivery_count][word] += 1
    logged: dict[Delivery, Counter[str]] = defaultdict(Counter)
    of_place: dict[tuple[int, int], list[Said]] = defaultdict(list)
    for said in log.said:
        logged[said.delivery][said.word] += 1
        of_place[said.delivery[:2]].append(said)
    hows = Counter((said.word, said.how) for said in log.said)
    print(f"{fed} records, {len(worst.done)} deliveries, {len(letters)} letters: {dict(hows)}")

    # The log has one line for each delivery, and it is what the handler did.
    assert logged == handled
    assert log.unhandled.isdisjoint(handled)
    # Nothing is lost: each record came to a handler.
    assert sorted(numbers.values()) == list(range(fed))
    for place, number in numbers.items():
        check_record(number, of_place[place], place in log.given_up, number in letters)
    assert {how for _, how in hows} & {"unknown", "dropped"}, "nothing went wrong"


def check_record(number: int, said: list[Said], is_given_up: bool, has_letter: bool) -> None:
    """It ends as was confirmed, else as was said without an answer; never as what was dropped."""
    confirmed = [each.word for each in said if each.how == "confirmed" and each.word != RELEASED]
    if is_given_up:
        confirmed.append("given up")
    told = f"number {number}, letter: {has_letter}: {said}"
    assert len(confirmed) <= 1, told
    is_accepted = not has_letter
    if confirmed:
        assert is_accepted == (confirmed == [ACCEPTED]), told
    else:
        unknown = {each.word for each in said if each.how == "unknown"}
        assert (ACCEPTED if is_accepted else REJECTED) in unknown or (
            has_letter and any(each.delivery[2] >= DELIVERIES_MAX - 1 for each in said)
        ), told
    assert has_letter or (number % 23 != 0 and number % 17 != 0), told
