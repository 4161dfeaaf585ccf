"""Whatever bytes come, each peer gets what Kafka gives or a closed connection with one log line."""

import logging
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headrace.testing.broker import TestBroker
from tests.broker.peers import MIB, is_served, memory_bytes, wait_until
from tests.differential.connection import Connection, Ending

CONNECTIONS = 1000
TOPIC = "orders"


@pytest.fixture
def broker(headrace: TestBroker, caplog: pytest.LogCaptureFixture) -> Iterator[TestBroker]:
    headrace.create_topic(TOPIC)
    caplog.set_level(logging.INFO, "headrace.server")
    caplog.clear()
    yield headrace
    assert is_served(headrace.bootstrap, TOPIC)


def closing_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if "closed:" in line or "refused:" in line]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00" * 64, "holds no header"),
        (b"\x00\x00\x00\x20" + b"garbage " * 4, "there is no API"),
        (b"GET /metrics HTTP/1.1\r\nHost: broker:9092\r\n\r\n", "an HTTP request"),
        (struct.pack(">i", 2**31 - 1) + b"x" * 100, "a frame of 2147483647 bytes"),
        (struct.pack(">i", -1), "a frame of -1 bytes"),
        (b"\x00\x00\x00\x0d\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff\x00\x20a", "ApiVersions"),
    ],
    ids=["zeros", "letters", "http", "two gigabytes", "negative", "a body cut short"],
)
def test_bytes_that_are_no_request_end_the_connection_with_one_line(
    broker: TestBroker, data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = memory_bytes()
    with Connection(broker.bootstrap) as connection:
        connection.send_bytes(data)
        assert connection.receive() is Ending.CLOSED
    [line] = closing_lines(caplog)
    assert reason in line
    assert "127.0.0.1" in line
    assert memory_bytes() - before < 16 * MIB


def test_tls_to_a_plain_port_fails_at_the_client_and_is_named_in_the_log(
    broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    context = ssl.create_default_context()
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(plain, server_hostname="localhost")
    wait_until(lambda: len(closing_lines(caplog)) == 1, "a line in the log")
    assert "a TLS handshake on a listener without TLS" in closing_lines(caplog)[0]


def test_a_thousand_silent_connections_leave_room_for_others(broker: TestBroker) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    before = memory_bytes()
    traffic = broker.node.traffic
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection((host, int(port)), 10))
        wait_until(lambda: len(traffic.connections) >= CONNECTIONS, "all are connected")
        assert is_served(broker.bootstrap, TOPIC)
        assert memory_bytes() - before < 32 * MIB
    wait_until(lambda: not traffic.connections, "all are forgotten")


def test_a_thousand_halves_of_a_frame_take_little_memory(broker: TestBroker) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    half = struct.pack(">i", 50 * MIB) + b"x" * 1000
    before = memory_bytes()
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            each = stack.enter_context(socket.create_connection((host, int(port)), 10))
            each.sendall(half)
        traffic = broker.node.traffic
        wait_until(lambda: len(traffic.connections) >= CONNECTIONS, "all are connected")
        assert is_served(broker.bootstrap, TOPIC)
        assert memory_bytes() - before < 128 * MIB


class TestLimits:
    @pytest.fixture
    def headrace_settings(self) -> dict[str, str]:
        return {"connections.max.idle.ms": "300", "max.connections.per.ip": "20"}

    def test_half_a_frame_and_silence_end_after_a_while(
        self, broker: TestBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Connection(broker.bootstrap) as connection:
            connection.send_bytes(b"\x00\x00\x01\x00half")
            assert connection.receive() is Ending.CLOSED
        wait_until(lambda: "idle" in "".join(closing_lines(caplog)), "a line in the log")
        assert broker.node.counters.connections_idle_closed >= 1

    def test_connections_over_the_limit_of_an_address_are_closed(
        self, broker: TestBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        traffic = broker.node.traffic
        wait_until(lambda: not traffic.connections, "those of the set-up are gone")
        with ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(Connection(broker.bootstrap))
            wait_until(lambda: len(traffic.connections) == 20, "twenty are connected")
            with Connection(broker.bootstrap) as one_more:
                assert one_more.receive() is Ending.CLOSED
            assert "max.connections.per.ip" in closing_lines(caplog)[0]
        wait_until(lambda: not traffic.connections, "all are forgotten")


class TestFewConnections:
    @pytest.fixture
    def headrace_settings(self) -> dict[str, str]:
        return {"max.connections": "5"}

    def test_connections_over_the_limit_are_closed_and_later_ones_are_not(
        self, broker: TestBroker
    ) -> None:
        traffic = broker.node.traffic
        wait_until(lambda: not traffic.connections, "those of the set-up are gone")
        with ExitStack() as stack:
            for _ in range(5):
                stack.enter_context(Connection(broker.bootstrap))
            wait_until(lambda: len(traffic.connections) == 5, "five are connected")
            with Connection(broker.bootstrap) as one_more:
                assert one_more.receive() is Ending.CLOSED
            assert broker.node.counters.connections_refused == 1
        wait_until(lambda: not traffic.connections, "all are forgotten")
        assert is_served(broker.bootstrap, TOPIC)
