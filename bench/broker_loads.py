"""What is done to a broker while it is measured. Every load gets the same clients and settings."""

import re
import statistics
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.broker_servers import CLIENT_HEAP, Server, java
from headrace.records.builder import BatchBuilder
from headrace.wire import ApiKey, request_parts
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.request_header import RequestHeader
from tools.jvm.harness import HERE, compile_java

RECORD_BYTES: Final = 1000
PRODUCED_RECORDS: Final = 250_000
PRODUCER_WARM_UP_RECORDS: Final = 60_000
"""Of those, the ones that do not count for the rate."""
CONSUMER_PASSES: Final = 4
"""How often the consumer reads the topic; the first time does not count for the rate."""
SYNC_BYTES: Final = 100
SYNC_RECORDS: Final = 3000
SYNC_WARM_UP_RECORDS: Final = 500
CLIENT_PROCESSES: Final = 8
CLIENT_SECONDS: Final = 3.0
LOAD_SECONDS_MAX: Final = 120
_PRODUCE_VERSION: Final = 9
_TOPICS: Final = count()


class Measured(Protocol):
    """A broker, or several, under load."""

    @property
    def bootstrap(self) -> str: ...

    def cpu_seconds(self) -> float:
        """Return what all of its processes have used."""


class Transfer(NamedTuple):
    """Bytes that went through, how fast, and what the broker spent on them."""

    mb_a_second: float
    gigabytes: float
    cpu_seconds: float


class Latency(NamedTuple):
    median_us: float
    p99_us: float


def create_topic(
    server: Measured, partitions: int, replicas: int = 1, *, authority: Path | None = None
) -> str:
    """Create a topic; `authority` signs the certificate of a server that has TLS."""
    name = f"bench-{next(_TOPICS)}"
    tls = {"security.protocol": "ssl", "ssl.ca.location": str(authority)} if authority else {}
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3, **tls})
    admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(LOAD_SECONDS_MAX)
    return name


def produce(
    server: Measured, topic: str, *, batch_bytes: int, acks: str, authority: Path | None = None
) -> Transfer:
    """Kafka's producer performance tool; its rate after its own warm-up."""
    before = server.cpu_seconds()
    printed = _run_java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", server.bootstrap, "--topic", topic),
        *("--num-records", str(PRODUCED_RECORDS)),
        *("--warmup-records", str(PRODUCER_WARM_UP_RECORDS)),
        *("--record-size", str(RECORD_BYTES), "--throughput", "-1"),
        *("--command-property", f"batch.size={batch_bytes}", f"acks={acks}"),
        *_tls_of_java(authority),
    )
    spent = server.cpu_seconds() - before
    steady = printed.splitlines()[-1]
    rate = re.search(r"\(([\d.]+) MB/sec\)", steady)
    if rate is None or "steady state" not in steady:
        sys.exit(f"the performance tool printed no rate of a steady state:\n{printed}")
    gigabytes = PRODUCED_RECORDS * RECORD_BYTES / 1e9
    return Transfer(float(rate[1]), gigabytes, spent)


def consume(
    server: Server, topic: str, partitions: int, *, authority: Path | None = None
) -> Transfer:
    """Read, with Kafka's consumer, a topic that one call of `produce` has filled."""
    before = server.cpu_seconds()
    printed = _run_java(
        "AssignedConsumer",
        *(server.bootstrap, topic, str(partitions)),
        *(str(PRODUCED_RECORDS), str(CONSUMER_PASSES)),
        *_tls_of_java(authority),
        is_ours=True,
    )
    spent = server.cpu_seconds() - before
    size, seconds = printed.split()
    gigabytes = CONSUMER_PASSES * PRODUCED_RECORDS * RECORD_BYTES / 1e9
    return Transfer(int(size) / 2**20 / float(seconds), gigabytes, spent)


def produce_one_by_one(server: Measured, replicas: int = 1) -> Latency:
    """Records of 100 bytes by confluent-kafka, each sent when the last one was acknowledged."""
    topic = create_topic(server, 1, replicas)
    settings = {"bootstrap.servers": server.bootstrap, "linger.ms": 0, "log_level": 3}
    producer = Producer(settings)
    value = b"x" * SYNC_BYTES
    taken: list[float] = []
    for _ in range(SYNC_WARM_UP_RECORDS + SYNC_RECORDS):
        begin = time.perf_counter()
        producer.produce(topic, value, partition=0)
        if producer.flush(LOAD_SECONDS_MAX):
            sys.exit("a record was not acknowledged")
        taken.append(time.perf_counter() - begin)
    measured = sorted(taken[SYNC_WARM_UP_RECORDS:])
    p99 = measured[len(measured) * 99 // 100]
    return Latency(statistics.median(measured) * 1e6, p99 * 1e6)


def request_from_many(server: Server) -> float:
    """Produce requests of one record a second, from processes that each have one in flight."""
    topic = create_topic(server, CLIENT_PROCESSES)
    command = [sys.executable, "-m", "bench.broker_requests"]
    clients = [
        subprocess.Popen(
            [*command, str(server.port), str(CLIENT_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(CLIENT_PROCESSES)
    ]
    try:
        for partition, client in enumerate(clients):
            _tell(client, _one_record(topic, partition).hex())
        for client in clients:
            if _line(client) != "ready":
                sys.exit("a client did not get ready")
        for client in clients:
            _tell(client, "go")
        return sum(int(_line(client)) for client in clients) / CLIENT_SECONDS
    finally:
        for client in clients:
            client.kill()
            client.communicate()


def _tls_of_java(authority: Path | None) -> tuple[str, ...]:
    """Return the settings with which a client of Kafka's trusts an authority."""
    if authority is None:
        return ()
    return (
        *("security.protocol=SSL", "ssl.truststore.type=PEM"),
        f"ssl.truststore.location={authority}",
    )


def _one_record(topic: str, partition: int) -> bytes:
    builder = BatchBuilder()
    builder.append(time.time_ns() // 1_000_000, None, b"x" * SYNC_BYTES)
    data = PartitionProduceData(index=partition, records=bytes(builder.build()))
    body = ProduceRequest(
        acks=1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    header = RequestHeader(ApiKey.PRODUCE, _PRODUCE_VERSION, 1, "bench")
    return b"".join(request_parts(header, body))


def _tell(client: "subprocess.Popen[str]", line: str) -> None:
    assert client.stdin is not None
    client.stdin.write(line + "\n")
    client.stdin.flush()


def _line(client: "subprocess.Popen[str]") -> str:
    assert client.stdout is not None
    return client.stdout.readline().strip()


def _run_java(main: str, *arguments: str, is_ours: bool = False) -> str:
    classes = compile_java(HERE / f"{main}.java") if is_ours else None
    done = subprocess.run(
        java(CLIENT_HEAP, main, *arguments, classes=classes),
        capture_output=True,
        text=True,
        timeout=LOAD_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{main} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()
