"""A worker of a share group as a program of its own: one of those that press a broker at once.

    python -m bench.broker_share_workers KIND BOOTSTRAP GROUP TOPIC RECORDS SECONDS

`accept` is confluent-kafka's ShareConsumer that accepts record by record, each with a commit of its
own; `confluent` and `headrace` are consumers that only read, in implicit mode. A worker prints
`ready` when it has its first records; given a line, it goes on until it has RECORDS records or
SECONDS are over, and prints how many it had and how long that took.
"""

import asyncio
import sys
import time
from typing import Final

import uvloop
from confluent_kafka import ShareConsumer as ConfluentShareConsumer

from headrace.client import ShareConsumer

POLL_SECONDS: Final = 1.0


def main() -> None:
    kind, bootstrap, group, topic, records, seconds = sys.argv[1:]
    if kind == "headrace":
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            count, taken = runner.run(_read_with_headrace(bootstrap, group, topic, int(records)))
    else:
        consumer = ConfluentShareConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": "explicit" if kind == "accept" else "implicit",
                "log_level": 3,
            }
        )
        consumer.subscribe([topic])
        run = _accept if kind == "accept" else _read_with_confluent
        count, taken = run(consumer, int(records), float(seconds))
        if kind != "accept":  # others would still fetch what this one gives back
            consumer.close()
    print(count, taken, flush=True)


def _accept(consumer: ConfluentShareConsumer, records: int, seconds: float) -> tuple[int, float]:
    """Accept records one by one until the time is over."""
    deadline = 0.0
    begin = time.monotonic()
    count = 0
    while count < records:
        for message in consumer.poll(POLL_SECONDS):
            if message.error() is not None:
                continue
            consumer.acknowledge(message)
            outcomes = consumer.commit_sync()
            if any(outcomes.values()):
                sys.exit(f"a record was not accepted: {outcomes}")
            if not deadline:
                _get_ready()
                begin = time.monotonic()
                deadline = begin + seconds
            elif time.monotonic() >= deadline:
                return count, time.monotonic() - begin
            count += 1
    return count, time.monotonic() - begin


def _read_with_confluent(
    consumer: ConfluentShareConsumer, records: int, _: float
) -> tuple[int, float]:
    """Read a number of records after the first ones."""
    while not len(consumer.poll(POLL_SECONDS)):
        pass
    _get_ready()
    begin = time.monotonic()
    count = 0
    while count < records:
        for message in consumer.poll(POLL_SECONDS):
            count += message.value() is not None
    return count, time.monotonic() - begin


async def _read_with_headrace(
    bootstrap: str, group: str, topic: str, records: int
) -> tuple[int, float]:
    async with ShareConsumer(bootstrap, group, [topic]) as consumer:
        while not await consumer.poll(POLL_SECONDS * 1000):
            pass
        _get_ready()
        begin = time.monotonic()
        count = 0
        while count < records:
            for record in await consumer.poll(POLL_SECONDS * 1000):
                count += record.value is not None
        return count, time.monotonic() - begin


def _get_ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
