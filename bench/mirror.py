"""A mirror against a copy with librdkafka, which reads every record and produces it again.

Both go from one node to another on this machine. The mirror moves whole batches with their offsets
and waits for acks=all; the copy gives records new offsets.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import uvloop
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.broker_servers import Server, run_headrace
from bench.measure import Figure, report
from headrace.client.mirror.choice import Choice
from headrace.client.mirror.mirror import Mirror, MirrorOptions

PARTITIONS: Final = 4
RECORD_BYTES: Final = 1000
RECORDS_AT_ONCE: Final = 1000
CODECS: Final = ("none", "lz4")
WAIT_SECONDS: Final = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=64, help="how much is copied in a round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    report([_figure(codec, options.mib, options.rounds) for codec in CODECS])


def _figure(codec: str, mib: int, rounds: int) -> Figure:
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            places = [Path(folder) / f"{number} {name}" for name in ("source", "target")]
            for place in places:
                place.mkdir()
            with run_headrace(places[0]) as source, run_headrace(places[1]) as target:
                records = mib * 1024 * 1024 // RECORD_BYTES
                _fill(source, codec, records)
                ours.append(_mirror(source, target))
                theirs.append(_copy(source, target, codec, records))
    mine, peer = statistics.median(ours), statistics.median(theirs)
    detail = f"mirror {mib / mine:.0f} MiB/s, librdkafka {mib / peer:.0f} MiB/s"
    return Figure(f"mirror, {codec}, against a copy", peer / mine, 1.0, False, detail)


def _fill(source: Server, codec: str, records: int) -> None:
    _create(source, "records")
    producer = Producer(_settings(source, codec))
    body = (b"0123456789abcdef" * 64)[: RECORD_BYTES - 10]
    for number in range(records):
        producer.produce("records", b"%09d " % number + body, partition=number % PARTITIONS)
        if number % RECORDS_AT_ONCE == 0:
            producer.poll(0)
    assert producer.flush(WAIT_SECONDS) == 0


def _mirror(source: Server, target: Server) -> float:
    async def work() -> None:
        options = MirrorOptions(topics=Choice(("records",)))
        async with Mirror(source.bootstrap, target.bootstrap, options) as mirror:
            await mirror.run_once()
            assert not any(copy.problem for copy in mirror.copies)

    begun = time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())
    return time.perf_counter() - begun


def _copy(source: Server, target: Server, codec: str, records: int) -> float:
    """Return how long a plain copy takes, in the largest steps that the client has."""
    _create(target, "copied")
    begun = time.perf_counter()
    consumer = Consumer({"bootstrap.servers": source.bootstrap, "group.id": "copy"})
    producer = Producer(_settings(target, codec))
    consumer.assign([TopicPartition("records", each, 0) for each in range(PARTITIONS)])
    copied = 0
    while copied < records:
        messages = consumer.consume(RECORDS_AT_ONCE, 1.0)
        for message in messages:
            producer.produce("copied", message.value(), partition=message.partition())
        copied += len(messages)
        producer.poll(0)
    assert producer.flush(WAIT_SECONDS) == 0
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


def _create(server: Server, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        future.result(WAIT_SECONDS)


def _settings(server: Server, codec: str) -> dict[str, str | int]:
    return {
        "bootstrap.servers": server.bootstrap,
        "compression.type": codec,
        "enable.idempotence": "true",
        "linger.ms": 20,
        "queue.buffering.max.messages": 1_000_000,
    }


if __name__ == "__main__":
    main()
