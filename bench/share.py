"""Share groups against Apache Kafka 4.3.1, and our client against confluent-kafka's, in turn.

`python -m bench.share --only tool,accept --rounds 1` measures a part. With `--profile FOLDER`
Headrace runs under cProfile (its figures are of no use then) and leaves a file a round, for
`python -m pstats`.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from bench.broker_servers import Server, run_headrace, run_kafka
from bench.broker_share_loads import (
    accepts_a_second,
    performance_topic,
    read_a_second,
    reading_topic,
    records_a_second,
    windowed_group,
)
from bench.broker_share_windows import hold_windows
from bench.measure import Figure, parts_of, report

ROUNDS: Final = 3
PARTS: Final = ("tool", "accept", "clients", "windows")
TOOL_RUNS: Final = 2
"""The first one warms the broker up and does not count."""
CLIENT_RUNS: Final = 3

Samples = dict[str, list[float]]


class Bound(NamedTuple):
    """What a ratio of Headrace's figure to its peer's has to be."""

    bound: float
    unit: str


BOUNDS: Final = {
    "share consumer performance": Bound(1.0, "records/s"),
    "accepts of 8 workers": Bound(1.0, "records/s"),
}
CLIENT_RATIO_MIN: Final = 1.0
NOTED: Final = {
    "cpu of a record read": "us",
    "cpu of an accept": "us",
    "memory of 1,000 windows": "MiB",
    "more for 100 scattered windows": "MiB",
}


def main() -> None:
    arguments = _arguments()
    samples: dict[str, Samples] = {"Headrace": defaultdict(list), "Kafka": defaultdict(list)}
    for number in range(arguments.rounds):
        profile = arguments.profile and arguments.profile / f"share-{number}.prof"
        run = partial(run_headrace, profile=profile)
        _round(samples["Headrace"], arguments.only, run, is_ours=True)
        if arguments.only != ["clients"]:
            _round(samples["Kafka"], arguments.only, run_kafka, is_ours=False)
    ours, theirs = samples["Headrace"], samples["Kafka"]
    for name, unit in NOTED.items():
        if ours[name]:
            mine, peers = statistics.median(ours[name]), statistics.median(theirs[name])
            print(f"share.{name}: {mine:.4g} {unit}, Kafka {peers:.4g} {unit}", flush=True)
    figures = [
        _figure(name, bound.bound, ours[name], theirs[name], f"{bound.unit}, Kafka")
        for name, bound in BOUNDS.items()
        if ours[name]
    ]
    if ours["our client"]:
        clients = ours["our client"], ours["confluent client"]
        words = "records/s, confluent-kafka"
        figures.append(_figure("our client", CLIENT_RATIO_MIN, *clients, words))
    report(figures)


def _figure(name: str, bound: float, ours: list[float], theirs: list[float], words: str) -> Figure:
    mine, peers = statistics.median(ours), statistics.median(theirs)
    detail = f"{mine:.4g} {words} {peers:.4g}"
    return Figure(f"share.{name}", mine / peers, bound, is_upper_bound=False, detail=detail)


def _round(
    samples: Samples,
    parts: list[str],
    run: Callable[[Path], AbstractContextManager[Server]],
    *,
    is_ours: bool,
) -> None:
    os.sync()  # what the last one wrote is not written on this one's time
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        run(Path(folder)) as server,
    ):
        if "tool" in parts:
            topic = performance_topic(server)
            for number in range(TOOL_RUNS):
                rate, cpu = records_a_second(server, topic)
                if number > 0:
                    samples["share consumer performance"].append(rate)
                    samples["cpu of a record read"].append(cpu)
        if "accept" in parts:
            rate, cpu = accepts_a_second(server)
            samples["accepts of 8 workers"].append(rate)
            samples["cpu of an accept"].append(cpu)
        if "clients" in parts and is_ours:
            topic = reading_topic(server)
            for _ in range(CLIENT_RUNS):
                for kind in ("confluent", "headrace"):
                    name = "our client" if kind == "headrace" else "confluent client"
                    samples[name].append(read_a_second(server, kind, topic))
        if "windows" in parts:
            windows = asyncio.run(hold_windows(server, *windowed_group(server)))
            samples["memory of 1,000 windows"].append(windows.acquired)
            samples["more for 100 scattered windows"].append(windows.scattered)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Share groups of Headrace against Apache Kafka's")
    parser.add_argument("--only", type=parts_of(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--profile", type=Path, help="a folder for the profiles of Headrace")
    return parser.parse_args()


if __name__ == "__main__":
    main()
