"""The HTTP port of a node: health, readiness, metrics."""

import contextlib
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from headrace.testing.broker import TestBroker
from headrace.web import server
from headrace.web.server import CONNECTIONS_MAX, WebServer
from tests.broker.peers import wait_until

LOAD_SECONDS_MAX = 60


class Pages:
    """A client of the HTTP port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def get(self, path: str) -> tuple[int, str]:
        """The status and the text of a page."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}{path}", timeout=LOAD_SECONDS_MAX
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def headrace_settings() -> dict[str, str]:
    # With small buffers a client that does not read is soon noticed.
    return {"http.listen": "127.0.0.1:0", "socket.send.buffer.bytes": "16384"}


@pytest.fixture
def pages(headrace: TestBroker) -> Iterator[Pages]:
    web = WebServer(headrace.node)
    yield Pages(headrace.run(web.start()))
    headrace.run(web.stop())


def test_a_node_that_runs_is_healthy_and_ready(pages: Pages) -> None:
    assert pages.get("/healthz") == (200, "the loop turns\n")
    assert pages.get("/readyz") == (200, "ready\n")
    assert pages.get("/nothing")[0] == 404


def test_a_node_that_stops_is_not_ready_and_says_why(pages: Pages, headrace: TestBroker) -> None:
    headrace.node.is_ready = False
    status, reason = pages.get("/readyz")
    assert status == 503
    assert "listeners do not serve" in reason


def test_a_node_without_a_metadata_leader_is_not_ready_and_says_why(
    pages: Pages, headrace: TestBroker
) -> None:
    headrace.run(headrace.node.broker.quorum.stop())
    status, reason = pages.get("/readyz")
    assert status == 503
    assert "the metadata log has stopped" in reason
    assert pages.get("/healthz")[0] == 200


def test_metrics_count_what_clients_did(pages: Pages, headrace: TestBroker) -> None:
    headrace.create_topic("orders", partitions=2)
    headrace.produce("orders", b"one", b"two", b"three")
    assert len(headrace.consume("orders")) == 3
    status, text = pages.get("/metrics")
    assert status == 200
    lines = text.splitlines()
    assert 'headrace_topic_messages_in_total{topic="orders"} 3.0' in lines
    assert 'headrace_topic_partitions{topic="orders"} 2.0' in lines
    assert 'headrace_requests_total{api="CreateTopics"} 1.0' in lines
    assert "headrace_partitions 2.0" in lines
    assert "headrace_under_min_isr_partitions 0.0" in lines
    assert "headrace_metadata_leader 1.0" in lines
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)


def test_a_port_that_is_taken_is_named_with_its_holder(headrace: TestBroker) -> None:
    headrace._settings["http.listen"] = headrace.bootstrap
    headrace.restart()
    web = WebServer(headrace.node)
    with pytest.raises(Exception, match=r"is in use by process .* --set http.listen=HOST:PORT"):
        headrace.run(web.start())


def test_connections_that_say_nothing_make_room_for_others(pages: Pages) -> None:
    assert _is_healthy(pages)
    silent = [pages.connect() for _ in range(CONNECTIONS_MAX + 16)]
    try:
        wait_until(lambda: all(map(_is_closed, silent[:16])), "the oldest make room")
        assert pages.get("/healthz")[0] == 200
        assert not any(map(_is_closed, silent[17:]))
    finally:
        for each in silent:
            each.close()


@pytest.mark.parametrize(
    "start",
    [
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HT",
        b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx",
    ],
)
def test_whoever_sends_a_byte_now_and_then_is_closed(
    pages: Pages, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _is_healthy(pages)  # while it may still take its time
    monkeypatch.setitem(server.SECONDS_MAX, server.Phase.ASKING, 0.3)
    dripping = pages.connect()
    dripping.sendall(start)

    def is_closed() -> bool:
        with contextlib.suppress(OSError):
            dripping.send(b"a")
        return _is_closed(dripping)

    wait_until(is_closed, "it is closed although it never was silent")
    dripping.close()


def test_slow_requests_do_not_keep_others_out(pages: Pages) -> None:
    dripping = [pages.connect() for _ in range(CONNECTIONS_MAX)]
    for each in dripping:
        each.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")
    for _ in range(CONNECTIONS_MAX):
        for each in dripping:
            with contextlib.suppress(OSError):
                each.send(b"a")
        assert pages.get("/healthz") == (200, "the loop turns\n")
    for each in dripping:
        each.close()


def test_whoever_does_not_read_is_closed(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, headrace: TestBroker
) -> None:
    assert _is_healthy(pages)  # while it may still take its time
    monkeypatch.setitem(server.SECONDS_MAX, server.Phase.SENDING, 0.3)
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect(("127.0.0.1", pages.port))
    asked = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"

    def is_closed() -> bool:
        try:
            deaf.settimeout(0.05)
            deaf.sendall(asked * 20)
        except TimeoutError:
            return False
        except OSError:
            return True
        return False

    wait_until(is_closed, "its responses are not kept for ever")
    deaf.close()


def test_junk_behind_a_request_ends_the_connection_quietly(
    pages: Pages, caplog: pytest.LogCaptureFixture
) -> None:
    assert _is_healthy(pages)
    peer = pages.connect()
    for _ in range(20):
        with contextlib.suppress(OSError):
            peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n\x00junk\r\n\r\n")
    wait_until(lambda: _is_ended(peer), "the connection ends")
    peer.close()
    assert not [record for record in caplog.records if record.exc_info]
    assert pages.get("/healthz")[0] == 200


def test_no_web_library_is_loaded_before_somebody_asks() -> None:
    code = (
        "import sys, headrace.node.node, headrace.web.server\n"
        "heavy = {'uvicorn', 'starlette', 'h11', 'prometheus_client', 'anyio', 'click'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _is_closed(each: socket.socket) -> bool:
    each.setblocking(False)
    try:
        return each.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def _is_ended(each: socket.socket) -> bool:
    """Whether a connection has ended, whatever it said before."""
    each.setblocking(False)
    try:
        while each.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def _is_healthy(pages: Pages) -> bool:
    try:
        return pages.get("/healthz")[0] == 200
    except (urllib.error.URLError, ConnectionError):
        return False
