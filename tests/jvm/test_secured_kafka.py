"""Our clients, commands and Spark source on Apache Kafka 4.3.1 behind TLS and SASL."""

import asyncio
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from headrace.client import (
    Admin,
    AuthenticationFailed,
    ClientSecurity,
    Consumer,
    KafkaError,
    NotReachable,
    Producer,
    Resource,
    ResourceType,
    ShareConsumer,
    Start,
    TlsFailed,
)
from headrace.client.connection import Connection
from headrace.client.security.settings import SecurityLike
from headrace.spark import session
from headrace.spark.blocking import close_clusters
from tests.certificates import make_ca, make_identity, trust_store, write
from tests.jvm.secured_kafka import PASSWORD, USER, Secured, secured_kafka

T = TypeVar("T")
Loops = Callable[[], asyncio.AbstractEventLoop]
DEADLINE_SECONDS = 60
RECORDS = 200
RENEWALS = 2


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as found:
        yield found


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def loops(request: pytest.FixtureRequest) -> Any:
    """The loops: each has a TLS of its own."""
    return request.param


def run(work: Coroutine[Any, Any, T], loops: Loops = uvloop.new_event_loop) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await work

    with asyncio.Runner(loop_factory=loops) as runner:
        return runner.run(bounded())


async def connect(address: str, security: SecurityLike | None) -> str:
    async with Admin(address, security=security) as admin:
        return (await admin.describe_cluster()).cluster_id


def test_all_clients_work_over_sasl_ssl_with_scram(broker: Secured, loops: Loops) -> None:
    topic, security = f"all-{time.monotonic_ns()}", ClientSecurity.of(broker.scram())
    where = broker.sasl_ssl

    async def work() -> list[set[bytes | None]]:
        async with Admin(where, security=security) as admin:
            await admin.create_topic(topic, partitions=2)
            group = Resource(ResourceType.GROUP, f"{topic}-queue")
            await admin.alter_configs(group, set={"share.auto.offset.reset": "earliest"})
        async with (
            Producer(where, security=security, transactional_id=topic) as producer,
            producer.transaction(),
        ):
            for number in range(RECORDS):
                await producer.send(topic, str(number))
        async with Consumer(
            where, security=security, group=topic, reset=Start.BEGINNING, read_committed=True
        ) as consumer:
            await consumer.subscribe([topic])
            consumed: set[bytes | None] = set()
            async for record in consumer:
                consumed.add(record.value)
                if len(consumed) == RECORDS:
                    break
        shared: set[bytes | None] = set()
        async with ShareConsumer(where, f"{topic}-queue", [topic], security=security) as queue:
            while len(shared) < RECORDS:
                shared |= {record.value for record in await queue.poll(1000)}
        return [consumed, shared]

    sent = {str(number).encode() for number in range(RECORDS)}
    assert run(work(), loops) == [sent, sent]


def test_every_mechanism_and_every_kind_of_key_store_connects(broker: Secured) -> None:
    scram, folder = broker.scram(), broker.folder
    (folder / "trust.p12").write_bytes(trust_store(broker.ca, "changeit"))
    (folder / "client.p12").write_bytes(broker.client.store("changeit"))
    write(folder / "client.pem", broker.client.key_pem("pw"), broker.client.certificate_pem())
    trusting = {
        "ssl.truststore.location": str(folder / "trust.p12"),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": "changeit",
    }
    untrusting = {name: value for name, value in scram.items() if not name.startswith("ssl.")}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    line = f'{module} required username="{USER}" password="{PASSWORD}";'
    oauth = trusting | {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    mutual = trusting | {"security.protocol": "SSL"}
    older = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    store = str(folder / "client.p12")
    cases: list[tuple[str, SecurityLike]] = [
        (broker.sasl_ssl, untrusting | trusting | {"sasl.mechanism": "SCRAM-SHA-256"}),
        (broker.sasl_ssl, scram | {"ssl.cipher.suites": older}),
        (broker.sasl_ssl, trusting | _plain() | {"sasl.jaas.config": line}),
        (broker.sasl_ssl, oauth | {"sasl.oauthbearer.token": broker.token()}),
        (broker.sasl_ssl, ClientSecurity.of(oauth, token=broker.token)),
        (
            broker.sasl_plaintext,
            untrusting | {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"},
        ),
        (
            broker.ssl,
            mutual | {"ssl.keystore.location": store, "ssl.keystore.password": "changeit"},
        ),
        (
            broker.ssl,
            mutual
            | {"ssl.keystore.location": str(folder / "client.pem"), "ssl.key.password": "pw"},
        ),
        (
            broker.ssl,
            mutual
            | {
                "ssl.certificate.pem": broker.client.certificate_pem(),
                "ssl.key.pem": broker.client.key_pem(),
            },
        ),
        (
            broker.sasl_ssl.replace("127.0.0.1", "localhost"),
            scram | {"ssl.endpoint.identification.algorithm": ""},
        ),
    ]

    async def work() -> set[str]:
        return {await connect(address, security) for address, security in cases}

    assert len(run(work())) == 1


def _plain() -> dict[str, str]:
    return {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}


def test_what_is_wrong_is_said_with_the_way_out_and_without_a_secret(
    broker: Secured, loops: Loops, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    scram, folder = broker.scram(), broker.folder
    other = make_ca("Other CA")
    other_path = write(folder / "other.pem", other.certificate_pem())
    stranger = make_identity(other, "stranger")
    ssl = {"security.protocol": "SSL", "ssl.ca.location": str(broker.ca_path)}
    unsecured = {name: value for name, value in scram.items() if not name.startswith("ssl.")} | {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
    }
    foreign = ssl | {
        "ssl.certificate.pem": stranger.certificate_pem(),
        "ssl.key.pem": stranger.key_pem(),
    }
    oauth = ssl | {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    elsewhere = broker.sasl_ssl.replace("127.0.0.1", "localhost")
    cases: list[tuple[str, dict[str, str] | None, type[Exception], str]] = [
        (
            broker.sasl_ssl,
            scram | {"sasl.password": f"{PASSWORD}x"},
            AuthenticationFailed,
            "'ann' failed .* check sasl.username",
        ),
        (
            broker.sasl_ssl,
            scram | {"sasl.mechanism": "PLAIN", "sasl.password": f"{PASSWORD}x"},
            AuthenticationFailed,
            "Invalid username or password; check sasl",
        ),
        (
            broker.sasl_ssl,
            oauth | {"sasl.oauthbearer.token": broker.token(-600)},
            AuthenticationFailed,
            "invalid_token; is the token valid",
        ),
        (
            broker.sasl_plaintext,
            unsecured | {"sasl.mechanism": "PLAIN"},
            AuthenticationFailed,
            "it has SCRAM-SHA-256",
        ),
        (broker.plaintext, unsecured, AuthenticationFailed, "does not expect SASL"),
        (
            broker.sasl_ssl,
            scram | {"ssl.ca.location": str(other_path)},
            TlsFailed,
            "is not trusted .* ssl.ca.location",
        ),
        (elsewhere, scram, TlsFailed, "for another host .* not valid for 'localhost'"),
        (broker.ssl, ssl, TlsFailed, "wants a certificate of ours .* ssl.keystore.location"),
        (broker.ssl, foreign, TlsFailed, "wants a certificate of ours that it trusts"),
        (broker.sasl_ssl, None, NotReachable, "set security.protocol=SSL or SASL_SSL"),
        (broker.plaintext, scram, NotReachable, "set security.protocol=PLAINTEXT"),
        (broker.sasl_plaintext, None, NotReachable, "set security.protocol=SASL_PLAINTEXT"),
        (broker.sasl_ssl, ssl, NotReachable, "set security.protocol=SASL_SSL"),
    ]

    async def work() -> str:
        said = ""
        for address, security, kind, words in cases:
            with pytest.raises(kind) as failed:
                await connect(address, security)
            assert re.search(words, str(failed.value)), str(failed.value)
            assert not isinstance(failed.value, KafkaError) or not failed.value.is_retriable
            said += f"{failed.value!r}{failed.value}"
        return said

    assert PASSWORD not in run(work(), loops) + caplog.text


def test_sessions_are_renewed_while_requests_are_in_flight(
    broker: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"sessions-{time.monotonic_ns()}"
    security = broker.scram(sasl_mechanism="PLAIN")
    renewed: list[Connection] = []
    release = Connection.release

    def count(connection: Connection) -> None:
        renewed.append(connection)
        release(connection)

    monkeypatch.setattr(Connection, "release", count)

    async def work() -> tuple[int, int]:
        sent = received = 0
        async with (
            Producer(broker.sasl_ssl, security=security) as producer,
            Consumer(producer.cluster, reset=Start.BEGINNING) as consumer,
        ):
            async with Admin(producer.cluster) as admin:
                await admin.create_topic(topic)
            await consumer.assign(topic)
            while len(renewed) < RENEWALS or received < sent:
                # A fetch is in flight most of the time.
                records = asyncio.ensure_future(consumer.poll(1000))
                await producer.deliver(topic, b"x")
                sent, received = sent + 1, received + len(await records)
                if len(renewed) >= RENEWALS:
                    received += len(await consumer.poll(1000))
        return sent, received

    sent, received = run(work())
    assert sent == received > 0


def test_commands_connect_by_a_file_or_the_environment(broker: Secured, tmp_path: Path) -> None:
    topic = f"commands-{time.monotonic_ns()}"
    config = tmp_path / "client.properties"
    lines = {"bootstrap.servers": broker.sasl_ssl} | broker.scram()
    config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(config.read_text().replace(PASSWORD, "wrong"))
    created = _command("topics", "create", topic, "--command-config", str(config))
    assert created.returncode == 0, created.stderr
    sent = _command("produce", topic, "--config", str(config), stdin="one\ntwo\n")
    assert sent.returncode == 0, sent.stderr
    read = _command("consume", topic, "--from-beginning", config=config)
    assert (read.returncode, read.stdout) == (0, "one\ntwo\n"), read.stderr
    refused = _command("topics", "list", config=wrong)
    assert refused.returncode == 1
    assert "check sasl.username and sasl.password" in refused.stderr
    assert PASSWORD not in created.stderr + sent.stderr + read.stderr + refused.stderr


def _command(
    *words: str, stdin: str = "", config: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "headrace", *words],
        input=stdin,
        env=os.environ | ({} if config is None else {"HEADRACE_CLIENT_CONFIG": str(config)}),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.mark.exhaustive
def test_spark_reads_and_writes_over_sasl_ssl_with_scram(broker: Secured) -> None:
    topic = f"spark-{time.monotonic_ns()}"
    options = {f"kafka.{name}": value for name, value in broker.scram().items()}
    options |= {"kafka.bootstrap.servers": broker.sasl_ssl}
    run(_create(broker, topic))
    spark = session("local[2]", banner=False)
    try:
        rows = spark.range(RECORDS).selectExpr("cast(id as string) as value")
        rows.write.format("headrace").options(topic=topic, **options).mode("append").save()
        frame = spark.read.format("headrace").options(subscribe=topic, **options).load()
        found = {bytes(row.value) for row in frame.select("value").collect()}
    finally:
        spark.stop()
        close_clusters()
    assert found == {str(number).encode() for number in range(RECORDS)}


async def _create(broker: Secured, topic: str) -> None:
    async with Admin(broker.sasl_ssl, security=broker.scram()) as admin:
        await admin.create_topic(topic, partitions=2)
