"""Encryption and rights against Apache Kafka 4.3.1, and against doing without.

`python -m bench.security --only tls --rounds 1` measures a part:

tls         Kafka's producer and consumer over TLS 1.3, and what the broker spends on them
handshakes  what the broker spends on connections that end after their handshake
acls        what ten thousand ACLs cost a producer, against the same node without an authorizer
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
from typing import Final

from bench.broker_loads import Transfer, consume, create_topic, produce
from bench.broker_servers import Certified, Server, connect, run_headrace, run_kafka
from bench.measure import Figure, parts_of, report
from headrace.client import Admin
from headrace.client.acls import AccessRule, AclOperation, AclResource
from headrace.config import STANDARD_AUTHORIZER
from tests.node_certificates import write_node

ROUNDS: Final = 3
PARTS: Final = ("tls", "handshakes", "acls")
PARTITIONS: Final = 6
BATCH_BYTES: Final = 128 * 1024
HANDSHAKES: Final = 1000
ACLS: Final = 10_000
ACLS_AT_ONCE: Final = 500
ACL_PASSES: Final = 5

Samples = dict[str, list[float]]
Run = Callable[[Path], AbstractContextManager[Server]]


def main() -> None:
    arguments = _arguments()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        write_node(Path(folder))
        certified = Certified(Path(folder, "node.pem"), Path(folder, "ca.pem"))
        ours: Run = partial(run_headrace, certified=certified)
        theirs: Run = partial(run_kafka, certified=certified)
        samples: dict[str, Samples] = {"Headrace": defaultdict(list), "Kafka": defaultdict(list)}
        for _ in range(arguments.rounds):
            _round(samples["Headrace"], arguments.only, ours, certified)
            _round(samples["Kafka"], arguments.only, theirs, certified)
        figures += _figures(samples["Headrace"], samples["Kafka"])
    if "acls" in arguments.only:
        figures.append(_cost_of_acls(arguments.rounds))
    report(figures)


def _round(samples: Samples, parts: list[str], run: Run, certified: Certified) -> None:
    if not {"tls", "handshakes"} & set(parts):
        return
    os.sync()  # what the last one wrote is not written on this one's time
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        run(Path(folder)) as server,
    ):
        if "tls" in parts:
            _transfer(server, samples, certified)
        if "handshakes" in parts:
            samples["handshakes"].append(_handshakes(server, certified))


def _transfer(server: Server, samples: Samples, certified: Certified) -> None:
    def fill() -> tuple[str, Transfer]:
        topic = create_topic(server, PARTITIONS, authority=certified.authority)
        done = produce(
            *(server, topic), batch_bytes=BATCH_BYTES, acks="1", authority=certified.authority
        )
        return topic, done

    fill()
    topic, written = fill()
    read = consume(server, topic, PARTITIONS, authority=certified.authority)
    samples["produce"].append(written.mb_a_second)
    samples["consume"].append(read.mb_a_second)
    spent, size = written.cpu_seconds + read.cpu_seconds, written.gigabytes + read.gigabytes
    samples["cpu"].append(spent / size)


def _handshakes(server: Server, certified: Certified) -> float:
    """Return the milliseconds of CPU that a handshake takes the broker."""
    for _ in range(HANDSHAKES):  # for warmth
        connect(server.port, certified).close()
    before = server.cpu_seconds()
    for _ in range(HANDSHAKES):
        connect(server.port, certified).close()
    return (server.cpu_seconds() - before) / HANDSHAKES * 1000


def _figures(ours: Samples, theirs: Samples) -> list[Figure]:
    bounds = {
        "produce": (1.1, False, "MB/s"),
        "consume": (1.0, False, "MB/s"),
        "cpu": (0.6, True, "s/GB"),
        "handshakes": (1.0, True, "ms of CPU each"),
    }
    figures = []
    for name, (bound, is_upper, unit) in bounds.items():
        if name in ours:
            mine, peers = statistics.median(ours[name]), statistics.median(theirs[name])
            detail = f"{mine:.4g} {unit}, Kafka {peers:.4g} {unit}"
            figures.append(Figure(f"security.tls {name}", mine / peers, bound, is_upper, detail))
    return figures


def _cost_of_acls(rounds: int) -> Figure:
    """Compare a node with many ACLs with one that has no authorizer, in turn."""
    ratios: list[float] = []
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "allow.everyone.if.no.acl.found": "true",  # to add ACLs, and to create topics
    }
    for _ in range(rounds):
        os.sync()
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
            Path(folder, "with").mkdir()
            Path(folder, "without").mkdir()
            with (
                run_headrace(Path(folder, "without")) as plain,
                run_headrace(Path(folder, "with"), settings=settings) as guarded,
            ):
                asyncio.run(_add_acls(guarded.bootstrap))
                rates: dict[Server, list[float]] = {plain: [], guarded: []}
                for _ in range(ACL_PASSES):
                    for server, samples in rates.items():
                        topic = create_topic(server, PARTITIONS)
                        done = produce(server, topic, batch_bytes=16 * 1024, acks="1")
                        samples.append(done.mb_a_second)
                with_acls, without = (
                    statistics.median(rates[server]) for server in (guarded, plain)
                )
                ratios.append(with_acls / without)
    detail = f"of the rate without an authorizer, with {ACLS} ACLs"
    return Figure("security.acls", statistics.median(ratios), 0.97, False, detail)


async def _add_acls(bootstrap: str) -> None:
    """Allow what the producers do, and ten thousand things that nobody does here."""
    rules = [
        AccessRule(
            principal="User:ANONYMOUS",
            operation=AclOperation.ALL,
            resource=AclResource.TOPIC,
            name="bench-",
            is_prefixed=True,
        )
    ]
    rules += (
        AccessRule(
            principal=f"User:user-{number % 100}",
            operation=AclOperation.WRITE,
            resource=AclResource.TOPIC,
            name=f"topic-{number}",
            is_prefixed=number % 10 == 0,
        )
        for number in range(ACLS)
    )
    async with Admin(bootstrap) as admin:
        for first in range(0, len(rules), ACLS_AT_ONCE):
            await admin.create_acls(rules[first : first + ACLS_AT_ONCE])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="TLS and ACLs against Apache Kafka")
    parser.add_argument("--only", type=parts_of(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
