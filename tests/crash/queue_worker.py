"""A worker of a share group that accepts and releases, and notes what it does as it does it.

It is started as a program and killed at any moment; now and then it kills itself while it holds
records. What it notes is in its file whatever becomes of it, as nothing is buffered: each delivery
with when the poll began that gave it, what is about to be said of a record, and what a broker
confirmed.
"""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import AcknowledgeType as ConfluentType
from confluent_kafka import KafkaException
from confluent_kafka import ShareConsumer as ConfluentShareConsumer

from headrace.client import AcknowledgeType, AcquireMode, ShareConsumer

POLL_RECORDS = 10
POLL_SECONDS = 0.5
RELEASES_IN = 6
"""One of so many records is released, unless it was before."""
DEATHS_IN = 60
"""After one of so many polls with records the worker ends, and says nothing of them."""
DELIVERIES_MAX_TO_PLAY = 3
"""Records that came more often are accepted: none is to be given up."""
DELIVERED, ACCEPTING, RELEASING = "delivered", "accepting", "releasing"
ACCEPTED, RELEASED = "accepted", "released"


class Note(NamedTuple):
    """What a worker noted of a record."""

    what: str
    partition: int
    offset: int
    delivery: int
    """The how many-th delivery the broker said it is."""
    number: int
    """The record's value."""
    at: float
    """Of the system's monotonic clock, which all processes share."""
    asked_at: float
    """When the poll began that gave the record."""


class Held(NamedTuple):
    partition: int
    offset: int
    delivery: int
    number: int


class Notebook:
    """A file of notes; every batch of them is one write."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, records: Iterable[Held], asked_at: float) -> None:
        now = time.monotonic()
        lines = [" ".join(map(str, (what, *held, now, asked_at))) for held in records]
        if lines:
            os.write(self._file, "".join(f"{line}\n" for line in lines).encode())


def read_notes(text: str) -> list[Note]:
    """Give the notes of a file; one that a kill cut off was not noted."""
    notes = []
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            what, partition, offset, delivery, number, at, asked_at = line.split()
            place = int(partition), int(offset), int(delivery), int(number)
            notes.append(Note(what, *place, float(at), float(asked_at)))
    return notes


class Mind:
    """What a worker decides by chance."""

    def __init__(self, seed: str) -> None:
        self._choose = random.Random(seed)

    def split(self, records: list[Held]) -> tuple[list[Held], list[Held]]:
        """Give the records to accept and those to release, or end with all of them in hand."""
        may_play = all(held.delivery <= DELIVERIES_MAX_TO_PLAY for held in records)
        if may_play and self._choose.randrange(DEATHS_IN) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        back = [held for held in records if self._is_released(held)]
        return [held for held in records if held not in back], back

    def _is_released(self, held: Held) -> bool:
        return held.delivery < DELIVERIES_MAX_TO_PLAY and self._choose.randrange(RELEASES_IN) == 0


def note_outcomes(
    notes: Notebook, asked_at: float, confirmed: set[int], *parts: tuple[str, list[Held]]
) -> None:
    """Note of records in confirmed partitions what became of them."""
    for what, records in parts:
        notes.write(what, [held for held in records if held.partition in confirmed], asked_at)


async def work(bootstrap: str, group: str, topic: str, notes: Notebook, mind: Mind) -> None:
    """Work with our own client until something ends it."""
    async with ShareConsumer(
        bootstrap,
        group,
        [topic],
        mode="explicit",
        max_poll_records=POLL_RECORDS,
        acquire_mode=AcquireMode.RECORD_LIMIT,
    ) as consumer:
        while True:
            asked_at = time.monotonic()
            polled = await consumer.poll(POLL_SECONDS * 1000)
            rows = {
                Held(row.partition, row.offset, row.delivery_count, int(row.value or b"")): row
                for row in polled
            }
            notes.write(DELIVERED, rows, asked_at)
            if not rows:
                continue
            accepted, released = mind.split(list(rows))
            notes.write(ACCEPTING, accepted, asked_at)
            notes.write(RELEASING, released, asked_at)
            for held in accepted:
                consumer.acknowledge(rows[held], AcknowledgeType.ACCEPT)
            for held in released:
                consumer.acknowledge(rows[held], AcknowledgeType.RELEASE)
            outcomes = await consumer.commit()
            confirmed = {place.partition for place, error in outcomes.items() if error is None}
            parts = (ACCEPTED, accepted), (RELEASED, released)
            note_outcomes(notes, asked_at, confirmed, *parts)


def work_with_confluent(
    bootstrap: str, group: str, topic: str, notes: Notebook, mind: Mind
) -> None:
    """Work with confluent-kafka's client until something ends it."""
    consumer = ConfluentShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": POLL_RECORDS,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    while True:
        asked_at = time.monotonic()
        rows = {
            Held(row.partition(), row.offset(), row.delivery_count(), int(row.value())): row
            for row in consumer.poll(POLL_SECONDS)
            if row.error() is None
        }
        notes.write(DELIVERED, rows, asked_at)
        if not rows:
            continue
        accepted, released = mind.split(list(rows))
        notes.write(ACCEPTING, accepted, asked_at)
        notes.write(RELEASING, released, asked_at)
        for held in accepted:
            consumer.acknowledge(rows[held], ConfluentType.ACCEPT)
        for held in released:
            consumer.acknowledge(rows[held], ConfluentType.RELEASE)
        try:
            outcomes = consumer.commit_sync(10)
        except KafkaException as error:
            print(f"not committed: {error}", file=sys.stderr, flush=True)
            continue
        confirmed = {place.partition for place, error in outcomes.items() if error is None}
        parts = (ACCEPTED, accepted), (RELEASED, released)
        note_outcomes(notes, asked_at, confirmed, *parts)


def main(kind: str, bootstrap: str, group: str, topic: str, path: str) -> None:
    notes, mind = Notebook(path), Mind(path)
    if kind == "confluent":
        work_with_confluent(bootstrap, group, topic, notes, mind)
    else:
        asyncio.run(work(bootstrap, group, topic, notes, mind))


if __name__ == "__main__":
    main(*sys.argv[1:])
