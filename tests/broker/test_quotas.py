"""Quotas hold real clients back: librdkafka's, our own, and bytes on a connection."""

import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from headrace.client import Admin
from headrace.client.quotas import QuotaEntity
from headrace.client.settings import ClientSettings
from headrace.errors import ErrorCode
from headrace.metadata.ddl import SetQuota
from headrace.security.quotas.entities import quota_entity
from headrace.testing.broker import TestBroker
from headrace.wire import ApiKey, request_parts
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.list_groups_response import ListGroupsResponse
from headrace.wire.messages.request_header import RequestHeader
from tests.broker.peers import DEADLINE_SECONDS, ask, wait_until
from tests.broker.test_secured_listeners import USERS, Wire
from tests.broker.two_nodes import A, B, C, run, two_nodes, unsynced
from tests.differential.connection import CLIENT_ID, Connection, Ending
from tests.differential.requests import Topic, batch, produce
from tests.secured_broker import (
    ADMIN,
    ADMIN_PASSWORD,
    PASSWORD,
    USER,
    secured_broker,
    security,
)

__all__ = ["unsynced"]
TOPIC = "orders"


def limit(broker: TestBroker, names: Mapping[str, str | None], **limits: float) -> None:
    """Set quotas without a connection, which quotas could hold back."""

    async def propose() -> None:
        for key, value in limits.items():
            change = SetQuota(quota_entity(names.items()), key, value)
            await broker.node.broker.quorum.propose(change)

    broker.run(propose())


def throttled(broker: TestBroker, quota: str) -> int:
    return broker.node.counters.quotas[quota].throttled


def throttle_ms_max(statistics: list[dict[str, Any]]) -> int:
    """Return the longest throttle time that librdkafka has heard of."""
    return max(
        (each["throttle"]["max"] for row in statistics for each in row["brokers"].values()),
        default=0,
    )


def test_librdkafka_produces_no_faster_than_its_quota_and_loses_nothing(
    headrace: TestBroker,
) -> None:
    headrace.create_topic(TOPIC)
    limit(headrace, {"client-id": "fast"}, producer_byte_rate=40_000)
    statistics: list[dict[str, Any]] = []
    producer = Producer(
        {
            "bootstrap.servers": headrace.bootstrap,
            "client.id": "fast",
            "statistics.interval.ms": 50,
            "stats_cb": lambda text: statistics.append(json.loads(text)),
        }
    )
    begun = time.monotonic()
    for number in range(5):
        producer.produce(TOPIC, bytes([number]) * 100_000)
        assert producer.flush(DEADLINE_SECONDS) == 0
    # 500 kB, of which 400 kB may go at once, and the last wait is behind the last batch.
    wait_until(
        lambda: producer.poll(0.05) >= 0 and throttle_ms_max(statistics) > 1000,
        "the producer hears that it is held back",
    )
    assert throttled(headrace, "produce") >= 1
    assert time.monotonic() - begun < DEADLINE_SECONDS
    assert [(each.value or b"")[0] for each in headrace.consume(TOPIC)] == [*range(5)]


def test_a_connection_that_is_held_back_is_not_read_from(headrace: TestBroker) -> None:
    headrace.create_topic(TOPIC)
    limit(headrace, {"client-id": CLIENT_ID}, producer_byte_rate=1000)
    with Connection(headrace.bootstrap) as held, Connection(headrace.bootstrap) as other:
        begun = time.monotonic()
        held.send_all([(record_of(11_000), 9), (record_of(10), 9)])
        first = held.answer(type(record_of(1)), 9)
        assert not isinstance(first, Ending)
        throttle_ms = first[1].throttle_time_ms  # type: ignore[attr-defined]
        assert throttle_ms > 1000
        # Its response is there at once, and the next request is handled when the time is over.
        second = held.answer(type(record_of(1)), 9)
        assert not isinstance(second, Ending)
        assert time.monotonic() - begun >= throttle_ms / 1000
        other.send(ListGroupsRequest(), 3)
        assert not isinstance(other.answer(ListGroupsRequest, 3), Ending)


def record_of(size: int) -> Any:
    return produce(Topic(TOPIC), batch(b"x" * size))


def test_a_muted_connection_can_be_closed_and_the_node_stops_at_once() -> None:
    with TestBroker() as broker:
        broker.create_topic(TOPIC)
        limit(broker, {"client-id": None}, producer_byte_rate=1)
        connections = [Connection(broker.bootstrap) for _ in range(3)]
        for each in connections:
            each.send_all([(record_of(5000), 9), (record_of(10), 9)])
            assert not isinstance(each.answer(type(record_of(1)), 9), Ending)
        connections.pop().close()
        traffic = broker.node.traffic
        assert len(traffic.connections) >= 2
    for each in connections:
        each.close()


def test_a_client_that_goes_while_it_is_held_back_leaves_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.server.connection.MUTED_LOOK_SECONDS", 0.02)
    with TestBroker(settings={"max.connections.per.ip": "3"}) as broker:
        broker.create_topic(TOPIC)
        limit(broker, {"client-id": CLIENT_ID}, producer_byte_rate=1)
        wait_until(lambda: not broker.node.traffic.connections, "nobody is connected")
        for _ in range(6):
            with Connection(broker.bootstrap) as held:
                held.send(record_of(5000), 9)
                assert not isinstance(held.answer(type(record_of(1)), 9), Ending)
            wait_until(lambda: not broker.node.traffic.connections, "its place is free")
        # A request that it has sent in part can never be done.
        begun = socket.create_connection(address_of(broker))
        header = RequestHeader(
            request_api_key=ApiKey.PRODUCE, request_api_version=9, client_id=CLIENT_ID
        )
        data = b"".join(request_parts(header, record_of(5000)))
        begun.sendall(data + data[:-100])
        assert begun.recv(1)
        begun.close()
        wait_until(lambda: not broker.node.traffic.connections, "its place is free")
        with Connection(broker.bootstrap) as held:
            held.send_all([(record_of(5000), 9), (record_of(10), 9)])
            assert not isinstance(held.answer(type(record_of(1)), 9), Ending)
        # What it has sent before it went is still done, once a quota no longer keeps it.
        limit(broker, {"client-id": CLIENT_ID}, producer_byte_rate=10**9)
        wait_until(lambda: len(broker.consume(TOPIC)) == 9, "its second record is there")
        assert ask(broker.bootstrap, ListGroupsRequest(), 3) is not None


def test_a_client_is_held_back_no_longer_than_its_quotas_say_now(
    headrace: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.server.connection.MUTED_LOOK_SECONDS", 0.02)
    headrace.create_topic(TOPIC)
    limit(headrace, {"client-id": CLIENT_ID}, producer_byte_rate=1)
    with Connection(headrace.bootstrap) as held:
        held.patience_seconds = DEADLINE_SECONDS
        held.send_all([(record_of(5000), 9), (record_of(10), 9)])
        first = held.answer(type(record_of(1)), 9)
        assert not isinstance(first, Ending)
        assert first[1].throttle_time_ms > 1_000_000  # type: ignore[attr-defined]
        limit(headrace, {"client-id": CLIENT_ID}, producer_byte_rate=10_000)
        assert not isinstance(held.answer(type(record_of(1)), 9), Ending)


def test_librdkafka_consumes_no_faster_than_its_quota_and_gets_all(headrace: TestBroker) -> None:
    headrace.create_topic(TOPIC)
    for number in range(6):
        headrace.produce(TOPIC, bytes([number]) * 100_000)
    limit(headrace, {"client-id": "reader"}, consumer_byte_rate=55_000)
    consumer = Consumer(
        {
            "bootstrap.servers": headrace.bootstrap,
            "client.id": "reader",
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "max.partition.fetch.bytes": 250_000,
        }
    )
    consumer.subscribe([TOPIC])
    found: list[int] = []

    def poll(wanted: int) -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value()[0])
        return len(found) >= wanted

    # 600 kB, of which 550 kB may go at once.
    wait_until(lambda: poll(6), "it reads on when it may")
    consumer.close()
    assert found == [*range(6)]
    assert throttled(headrace, "fetch") >= 1


def test_a_user_is_limited_by_its_name_whatever_its_client_is_called(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker:
        limit(broker, {"user": USER}, request_percentage=0.0001)

        def list_groups(user: str, password: str, client_id: str) -> None:
            async def ask_as_user() -> None:
                settings = ClientSettings(client_id=client_id)
                who = security(tmp_path, user, password)
                async with Admin(broker.bootstrap, settings, security=who) as admin:
                    await admin.list_groups()

            broker.run(ask_as_user())

        list_groups(ADMIN, ADMIN_PASSWORD, "headrace-node-7")
        assert throttled(broker, "request") == 0
        list_groups(USER, PASSWORD, "headrace-node-7")
        assert throttled(broker, "request") >= 1
        assert broker.node.quotas.clients.meter_count == 1


def test_a_quota_holds_on_every_node_once_it_is_set_on_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as world:
            async with Admin(f"127.0.0.1:{world.nodes[A].listeners[0].port}") as admin:
                await admin.alter_quotas(
                    QuotaEntity.of(client_id=None), set={"request_percentage": 1e-9}
                )
            await world.settle()
            for node_id in (A, B, C):
                assert world.nodes[node_id].quotas.clients.is_active
                answer = await world.ask(node_id, ListGroupsRequest(), 3)
                assert isinstance(answer, ListGroupsResponse)
                assert answer.throttle_time_ms > 0
            await world.stop_node(B)
            await world.start_node(B)
            assert world.nodes[B].quotas.clients.is_active

    run(scenario())


# Connections


def closes_at_once_without_service(address: str) -> bool:
    """Return whether a new connection is closed without a response to its first request."""
    with Connection(address) as connection:
        connection.patience_seconds = DEADLINE_SECONDS
        connection.send(ApiVersionsRequest(), 0)
        return connection.answer(ApiVersionsRequest, 0) is Ending.CLOSED


def test_an_address_that_connects_too_often_is_not_served_until_it_is_slower(
    headrace: TestBroker,
) -> None:
    limit(headrace, {"ip": None}, connection_creation_rate=1)
    address = headrace.bootstrap
    wait_until(lambda: closes_at_once_without_service(address), "a connection is not served")
    assert throttled(headrace, "connection_of_ip") >= 1
    limit(headrace, {"ip": "127.0.0.1"}, connection_creation_rate=1000)
    assert not closes_at_once_without_service(address)


@pytest.mark.parametrize(
    "name", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
def test_connections_beyond_the_rate_of_a_node_or_listener_are_served_later(name: str) -> None:
    with TestBroker(settings={name: "2"}) as broker:
        sockets = [socket.create_connection(address_of(broker)) for _ in range(24)]
        for each in sockets:
            each.close()
        # Those that come now wait for their turn, and are served.
        assert ask(broker.bootstrap, ListGroupsRequest(), 3) is not None
        assert throttled(broker, "connection") >= 1
        assert throttled(broker, "connection_of_ip") == 0


def test_tls_connections_wait_before_their_handshake_or_are_not_served(tmp_path: Path) -> None:
    settings = {"listener.name.sasl_ssl.max.connection.creation.rate": "2"}
    with secured_broker(tmp_path, **settings) as broker:
        who = security(tmp_path)

        async def list_groups() -> None:
            async with Admin(broker.bootstrap, security=who) as admin:
                await admin.list_groups()

        for _ in range(24):
            socket.create_connection(address_of(broker)).close()
        broker.run(list_groups())
        assert throttled(broker, "connection") >= 1
        limit(broker, {"ip": None}, connection_creation_rate=1)
        refused = [socket.create_connection(address_of(broker)) for _ in range(12)]
        refused[-1].settimeout(DEADLINE_SECONDS)
        assert refused[-1].recv(1) == b""
        assert throttled(broker, "connection_of_ip") >= 1
        for each in refused:
            each.close()
        limit(broker, {"ip": None}, connection_creation_rate=1000)
        broker.run(list_groups())


def test_the_time_to_authenticate_begins_when_it_is_a_connections_turn(tmp_path: Path) -> None:
    settings = {
        **USERS,
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "listener.name.sasl_plaintext.max.connection.creation.rate": "5",
        "headrace.authentication.timeout.ms": "1000",
        "headrace.handshakes.max": "10",
        "quota.window.num": "2",
    }
    with TestBroker(tmp_path / "data", settings) as broker:
        # Five come at once, the others five in a second: longer than they have to authenticate.
        clients = [Wire(broker.bootstrap) for _ in range(18)]
        for each in clients:
            answer = each.log_in()
            assert answer is not None
            assert answer.error_code == ErrorCode.NONE
            each.socket.close()
        assert throttled(broker, "connection") >= 1
        assert broker.node.counters.authentications_failed == 0


def address_of(broker: TestBroker) -> tuple[str, int]:
    host, _, port = broker.bootstrap.rpartition(":")
    return host, int(port)
