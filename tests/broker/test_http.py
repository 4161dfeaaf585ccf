"""The HTTP port of a node: health, readiness, metrics."""

import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from headrace.testing.broker import TestBroker
from headrace.web.server import CONNECTIONS_MAX, WebServer
from tests.broker.peers import wait_until

LOAD_SECONDS_MAX = 20


class Pages:
    """A client of the HTTP port."""

    def __init__(self, port: int) -> None:
        self.port = port

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
    return {"http.listen": "127.0.0.1:0"}


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
    with pytest.raises(Exception, match="is in use by process"):
        headrace.run(web.start())


def test_many_connections_that_say_nothing_are_closed(pages: Pages, headrace: TestBroker) -> None:
    silent = [socket.create_connection(("127.0.0.1", pages.port), 10) for _ in range(80)]
    try:
        closed = silent[CONNECTIONS_MAX:]

        def are_closed() -> bool:
            return all(_is_closed(each) for each in closed)

        wait_until(are_closed, "those over the limit are closed")
    finally:
        for each in silent:
            each.close()
    wait_until(lambda: _is_healthy(pages), "there is room again")


def test_no_web_library_is_loaded_before_somebody_asks() -> None:
    code = (
        "import sys, headrace.broker.node, headrace.web.server\n"
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


def _is_healthy(pages: Pages) -> bool:
    try:
        return pages.get("/healthz")[0] == 200
    except (urllib.error.URLError, ConnectionError):
        return False
