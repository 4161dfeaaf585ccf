"""The broker against Apache Kafka 4.3.1: the same clients, on the same machine, in turn.

`python -m bench.broker --only produce,sync --rounds 1` measures a part. A round starts one broker
on an empty folder, warms it up, measures, and stops it; then the other. With `--profile FOLDER`
Headrace runs under cProfile (its figures are of no use then) and leaves a file a round, for
`python -m pstats`; where a start spends its time, `python -X importtime -m headrace version` shows.
"""

import argparse
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from bench.broker_loads import (
    Transfer,
    consume,
    create_topic,
    produce,
    produce_one_by_one,
    request_from_many,
)
from bench.broker_servers import Server, run_headrace, run_kafka
from bench.measure import Figure, parts_of, report

ROUNDS: Final = 3
PARTS: Final = ("start", "produce", "consume", "sync", "requests", "memory")
DEFAULT_BATCH_BYTES: Final = 16 * 1024
LARGE_BATCH_BYTES: Final = 128 * 1024
PARTITIONS: Final = (1, 6)
CONSUMED_PARTITIONS: Final = 6
REPEATED_LOADS: Final = 3

Samples = dict[str, list[float]]


class Bound(NamedTuple):
    """What a ratio of Headrace's figure to Kafka's has to be."""

    bound: float
    is_upper_bound: bool
    unit: str


BOUNDS: Final[dict[str, Bound]] = {
    "produce 16 KB": Bound(1.15, False, "MB/s"),
    "produce 128 KB": Bound(1.1, False, "MB/s"),
    "cpu of producing": Bound(0.5, True, "s/GB"),
    "cpu of consuming": Bound(0.5, True, "s/GB"),
    "consume": Bound(1.0, False, "MB/s"),
    "sync produce, median": Bound(0.8, True, "us"),
    "sync produce, p99": Bound(0.7, True, "us"),
    "requests of one record": Bound(2.0, False, "/s"),
    "start to first answer": Bound(0.15, True, "s"),
    "memory after start": Bound(0.2, True, "MiB"),
    "memory after load": Bound(0.15, True, "MiB"),
}
FLAT_RATIO_MAX: Final = 1.1


def main() -> None:
    arguments = _arguments()
    samples: dict[str, Samples] = {"Headrace": defaultdict(list), "Kafka": defaultdict(list)}
    for number in range(arguments.rounds):
        profile = arguments.profile and arguments.profile / f"broker-{number}.prof"
        _round(samples["Headrace"], arguments.only, partial(run_headrace, profile=profile))
        _round(samples["Kafka"], arguments.only, run_kafka)
    report(_figures(samples["Headrace"], samples["Kafka"]))


def _round(
    samples: Samples,
    parts: list[str],
    run: Callable[[Path], AbstractContextManager[Server]],
) -> None:
    os.sync()  # what the last one wrote is not written on this one's time
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        run(Path(folder)) as server,
    ):
        samples["start to first answer"].append(server.start_seconds)
        samples["memory after start"].append(server.resident_mib())
        if parts != ["start"]:
            _measure(server, parts, samples)


def _measure(server: Server, parts: list[str], samples: Samples) -> None:
    warm = create_topic(server, CONSUMED_PARTITIONS)
    _load(server, warm)
    consume(server, warm, CONSUMED_PARTITIONS)
    if "produce" in parts:
        _produce(server, samples)
    if "consume" in parts:
        read = consume(server, warm, CONSUMED_PARTITIONS)
        samples["consume"].append(read.mb_a_second)
        samples["cpu of consuming"].append(read.cpu_seconds / read.gigabytes)
    if "sync" in parts:
        latency = produce_one_by_one(server)
        samples["sync produce, median"].append(latency.median_us)
        samples["sync produce, p99"].append(latency.p99_us)
    if "requests" in parts:
        samples["requests of one record"].append(request_from_many(server))
    if "memory" in parts:
        samples["memory after load"].append(server.resident_mib())
        for _ in range(REPEATED_LOADS):
            _load(server, create_topic(server, CONSUMED_PARTITIONS))
        samples["memory after more loads"].append(server.resident_mib())


def _load(server: Server, topic: str) -> Transfer:
    return produce(server, topic, batch_bytes=DEFAULT_BATCH_BYTES, acks="1")


def _produce(server: Server, samples: Samples) -> None:
    transfers = []
    for batch_bytes in (DEFAULT_BATCH_BYTES, LARGE_BATCH_BYTES):
        for partitions in PARTITIONS:
            for acks in ("1", "all"):
                topic = create_topic(server, partitions)
                done = produce(server, topic, batch_bytes=batch_bytes, acks=acks)
                name = f"produce {batch_bytes // 1024} KB, {partitions} parts, acks={acks}"
                samples[name].append(done.mb_a_second)
                transfers.append(done)
    spent = sum(transfer.cpu_seconds for transfer in transfers)
    samples["cpu of producing"].append(spent / sum(transfer.gigabytes for transfer in transfers))


def _figures(ours: Samples, theirs: Samples) -> list[Figure]:
    figures = []
    for name, values in ours.items():
        if (bound := BOUNDS.get(name.partition(", ")[0]) or BOUNDS.get(name)) is None:
            continue
        mine, peers = statistics.median(values), statistics.median(theirs[name])
        detail = f"{mine:.4g} {bound.unit}, Kafka {peers:.4g} {bound.unit}"
        figures.append(
            Figure(f"broker.{name}", mine / peers, bound.bound, bound.is_upper_bound, detail)
        )
    if again := ours.get("memory after more loads"):
        once, more = statistics.median(ours["memory after load"]), statistics.median(again)
        detail = f"{more:.4g} MiB after {REPEATED_LOADS} more loads, {once:.4g} MiB before them"
        figures.append(
            Figure("broker.memory stays flat", more / once, FLAT_RATIO_MAX, True, detail)
        )
    return figures


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Headrace against Apache Kafka")
    parser.add_argument("--only", type=parts_of(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--profile", type=Path, help="a folder for Headrace's profiles")
    return parser.parse_args()


if __name__ == "__main__":
    main()
