"""Our asyncio client against aiokafka and confluent-kafka, on the same broker, in turn.

`python -m bench.client --only produce --rounds 1` measures a part. Records are of 100 bytes. A
client is a process of its own; producers ask for acks=all and are idempotent. `share` is the share
consumer against confluent-kafka's (aiokafka has none). Where aiokafka is the peer,
confluent-kafka's figure is shown beside: its work is done in C, in threads of its own.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Final

from bench.broker_loads import create_topic
from bench.broker_servers import Server, run_headrace
from bench.broker_share_loads import read_a_second, reading_topic
from bench.measure import Figure, parts_of, report

ROUNDS: Final = 3
PRODUCED: Final = 200_000
CONSUMED: Final = 400_000
PARTITIONS: Final = 3
KINDS: Final = ("headrace", "aiokafka", "confluent")
BOUNDS: Final = {"produce": 1.5, "iterate": 1.5, "poll": 1.5}
"""What our figure has to be as a multiple of aiokafka's."""
SHARE_BOUND: Final = 1.0
PARTS: Final = (*BOUNDS, "share")
RUN_SECONDS_MAX: Final = 300

Samples = dict[tuple[str, str], list[float]]


def main() -> None:
    arguments = _arguments()
    samples: Samples = defaultdict(list)
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        run_headrace(Path(folder)) as server,
    ):
        consumed = _filled_topic(server)
        shared = reading_topic(server) if "share" in arguments.only else ""
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", flush=True)
            for part in arguments.only:
                if part == "share":
                    for kind in ("confluent", "headrace"):
                        samples[part, kind].append(read_a_second(server, kind, shared))
                    continue
                for kind in KINDS:
                    is_produced = part == "produce"
                    topic = create_topic(server, PARTITIONS) if is_produced else consumed
                    records = PRODUCED if is_produced else CONSUMED
                    samples[part, kind].append(_run(server, kind, part, topic, records))
    report([_figure(part, samples) for part in arguments.only])


def _figure(part: str, samples: Samples) -> Figure:
    medians = {
        kind: statistics.median(samples[part, kind]) for kind in KINDS if samples[part, kind]
    }
    peer = "confluent" if part == "share" else "aiokafka"
    detail = ", ".join(f"{kind} {rate:,.0f} records/s" for kind, rate in medians.items())
    bound = SHARE_BOUND if part == "share" else BOUNDS[part]
    ratio = medians["headrace"] / medians[peer]
    return Figure(f"client.{part}", ratio, bound, is_upper_bound=False, detail=detail)


def _filled_topic(server: Server) -> str:
    topic = create_topic(server, PARTITIONS)
    _run(server, "confluent", "produce", topic, CONSUMED)
    return topic


def _run(server: Server, kind: str, action: str, topic: str, records: int) -> float:
    words = (kind, action, server.bootstrap, topic, str(records))
    command = [sys.executable, "-m", "bench.broker_client_workers", *words]
    done = subprocess.run(command, capture_output=True, timeout=RUN_SECONDS_MAX, check=False)
    if done.returncode:
        sys.exit(f"{kind} could not {action}: {done.stderr.decode()}")
    return float(done.stdout)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Our asyncio client against other clients")
    parser.add_argument("--only", type=parts_of(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
