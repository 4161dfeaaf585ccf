"""The broker that the pytest plugin gives."""

import asyncio
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import confluent_kafka
import pytest

from headrace import config
from headrace.client import Admin, ShareConsumer
from headrace.client.errors import NotReachable
from headrace.config import InvalidSetting
from headrace.errors import ErrorCode, KafkaError
from headrace.testing.broker import DEFAULTS, TestBroker
from headrace.wire import ApiKey
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_cluster_response import DescribeClusterResponse
from headrace.wire.messages.fetch_request import FetchRequest
from tests.broker.peers import ask, from_start, wait_for_requests
from tests.differential.connection import Connection, Ending

REQUEST = DescribeClusterRequest(endpoint_type=1)
PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
NOON_MS = int(time.time()) * 1000 - 3_600_000
"""A time of this day, or retention takes the record away."""
LONG_MS, FETCH_VERSION = 60_000, 12
FIXTURES = "from headrace.testing.plugin import *\n"


def values(broker: TestBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.consume(topic)]


def error_code(connection: Connection) -> int:
    connection.send(REQUEST, 1)
    answer = connection.answer(DescribeClusterRequest, 1)
    assert not isinstance(answer, Ending), answer
    assert isinstance(answer[1], DescribeClusterResponse)
    return answer[1].error_code


class TestLife:
    def test_records_come_back_as_they_were_sent(self, headrace: TestBroker) -> None:
        headrace.create_topic("orders", partitions=2)
        assert headrace.produce("orders", "one", (b"key", b"two"), partition=1) == [0, 1]
        assert [
            (record.partition, record.offset, record.key, record.value)
            for record in headrace.consume("orders")
        ] == [(1, 0, None, b"one"), (1, 1, b"key", b"two")]

    def test_a_restart_keeps_data_and_address(self, headrace: TestBroker) -> None:
        headrace.create_topic("orders")
        headrace.produce("orders", "one")
        before = headrace.bootstrap
        headrace.restart()
        assert headrace.bootstrap == before
        assert values(headrace, "orders") == [b"one"]

    def test_after_a_crash_what_was_acknowledged_is_there(self, headrace: TestBroker) -> None:
        headrace.create_topic("orders")
        headrace.produce("orders", *map(str, range(100)))
        before = headrace.bootstrap
        headrace.crash()
        assert not (headrace.folder / ".kafka_cleanshutdown").exists()
        with pytest.raises(OSError, match="refused"):
            Connection(before)
        headrace.start()
        assert headrace.bootstrap == before
        assert values(headrace, "orders") == [str(number).encode() for number in range(100)]

    def test_a_life_that_ended_does_not_hear_of_time_that_passes(
        self, headrace: TestBroker
    ) -> None:
        heard = len(headrace.clock.of_node.on_moved)
        headrace.crash()
        assert headrace.clock.of_node.on_moved == []
        headrace.start()
        headrace.restart()
        assert len(headrace.clock.of_node.on_moved) == heard

    def test_a_broker_whose_data_goes_with_it_answers_before_it_ends(self) -> None:
        broker = TestBroker()
        broker.start()
        broker.create_topic("orders")
        request = from_start("orders", max_wait_ms=LONG_MS)
        with Connection(broker.bootstrap) as connection:
            connection.send(request, FETCH_VERSION)
            wait_for_requests(broker, ApiKey.FETCH)
            broker.close()
            assert not isinstance(connection.answer(FetchRequest, FETCH_VERSION), Ending)
            assert connection.receive() is Ending.CLOSED
        assert not broker.folder.exists()

    def test_a_broker_that_does_not_run_says_so(self, headrace: TestBroker) -> None:
        headrace.stop()
        with pytest.raises(RuntimeError, match="does not run"):
            headrace.produce("orders", "one")
        with pytest.raises(RuntimeError, match="does not run"):
            headrace.crash()
        headrace.start()
        with pytest.raises(RuntimeError, match="runs already"):
            headrace.start()

    def test_what_cannot_start_says_why_and_leaves_nothing_behind(self, tmp_path: Path) -> None:
        with TestBroker(tmp_path / "data") as first:
            second = TestBroker(first.folder)
            with pytest.raises(Exception, match="in use by process"):
                second.start()
            second.close()
        assert first.folder.exists()

    def test_a_temporary_folder_goes_with_its_broker(self) -> None:
        with TestBroker() as broker:
            folder = broker.folder
            assert folder.exists()
        assert not folder.exists()

    def test_a_setting_that_cannot_be_is_named_and_leaves_no_folder(self) -> None:
        broker = TestBroker(settings={"num.partitions": "many"})
        with pytest.raises(InvalidSetting, match=r"num\.partitions=many"), broker:
            pass
        assert not broker.folder.exists()

    def test_it_is_used_from_an_async_test_too(self, headrace: TestBroker) -> None:
        async def create() -> int:
            async with Admin(headrace.bootstrap) as admin:
                await admin.create_topic("orders", 3)
                headrace.produce("orders", "one", partition=2)
                return len(await admin.list_topics())

        assert asyncio.run(create()) == 1
        assert values(headrace, "orders") == [b"one"]

    def test_settings_are_by_kafkas_names(self) -> None:
        with TestBroker(settings={"num.partitions": "3"}) as broker:
            broker.produce("made-on-demand", "one", partition=2)
            assert values(broker, "made-on-demand") == [b"one"]

    def test_settings_of_a_test_win_over_those_of_tests(self) -> None:
        given = {"group.initial.rebalance.delay.ms": "7", "group.share.heartbeat.interval.ms": "50"}
        with TestBroker(settings=given) as broker:
            settings = broker.node.settings
            assert settings[config.GROUP_INITIAL_REBALANCE_DELAY_MS] == 7
            assert settings[config.GROUP_SHARE_HEARTBEAT_INTERVAL_MS] == 50
            assert settings[config.OFFSETS_TOPIC_NUM_PARTITIONS] == 1

    @pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
    def test_bounds_of_heartbeats_are_the_tests_own(self, kind: str) -> None:
        given = {f"group.{kind}.min.heartbeat.interval.ms": "3000"}
        with TestBroker(settings=given) as broker:
            assert broker.node.settings.given[f"group.{kind}.min.heartbeat.interval.ms"] == "3000"

    def test_the_page_has_every_default_beside_that_of_kafka(self) -> None:
        rows = re.findall(r"^\| `([a-z.]+)` \| (\S+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
        listed = {name: (here, default) for name, here, default in rows}
        wanted = {
            name: (value or "(none)", str(config.setting(name).default))
            for name, value in DEFAULTS.items()
            if name != "listeners"
        }
        assert {
            name: (here, default.removeprefix("Headrace's own: "))
            for name, (here, default) in listed.items()
        } == wanted

    def test_records_have_the_headers_and_timestamps_that_are_asked_for(
        self, headrace: TestBroker
    ) -> None:
        headrace.create_topic("orders")
        headrace.produce("orders", "one", "two", headers={"source": "shop"}, timestamp_ms=NOON_MS)
        headrace.produce("orders", "three", headers=iter([("a", b"1"), ("a", None)]))
        first, second, third = headrace.consume("orders")
        assert first.headers == second.headers == (("source", b"shop"),)
        assert first.timestamp == second.timestamp == NOON_MS
        assert third.headers == (("a", b"1"), ("a", None))
        assert third.timestamp > NOON_MS

    def test_what_is_consumed_is_committed(self, headrace: TestBroker) -> None:
        headrace.create_topic("orders")
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": headrace.bootstrap, "transactional.id": "shop"}
        )
        producer.init_transactions(20)
        for value, end in (
            (b"aborted", producer.abort_transaction),
            (b"committed", producer.commit_transaction),
        ):
            producer.begin_transaction()
            producer.produce("orders", value)
            producer.flush(20)
            end(20)
        producer.begin_transaction()
        producer.produce("orders", b"open")
        producer.flush(20)
        assert values(headrace, "orders") == [b"committed"]
        producer.abort_transaction(20)

    def test_a_group_is_configured_before_it_exists(self, headrace: TestBroker) -> None:
        headrace.create_topic("invoices")
        headrace.produce("invoices", "one")
        headrace.configure_group("billing", {"share.auto.offset.reset": "earliest"})
        with pytest.raises(KafkaError, match=r"share\.auto\.offset\.reset"):
            headrace.configure_group("billing", {"share.auto.offset.reset": "sometimes"})

        async def first() -> bytes | None:
            async with ShareConsumer(headrace.bootstrap, "billing", ["invoices"]) as queue:
                async for record in queue:
                    return record.value
            return None

        assert asyncio.run(asyncio.wait_for(first(), 20)) == b"one"

    def test_time_that_passes_deletes_what_is_too_old(self, headrace: TestBroker) -> None:
        headrace.create_topic("orders", configs={"retention.ms": "60000"})
        headrace.produce("orders", "old")
        headrace.clock.advance(30_000)
        assert values(headrace, "orders") == [b"old"]
        headrace.clock.advance(60_000)
        assert values(headrace, "orders") == []


class TestFaults:
    def test_an_error_is_answered_as_often_as_asked(self, headrace: TestBroker) -> None:
        headrace.faults.fail("DescribeCluster", ErrorCode.NOT_CONTROLLER, times=2)
        with Connection(headrace.bootstrap) as connection:
            codes = [error_code(connection) for _ in range(3)]
        assert codes == [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

    def test_an_error_holds_until_it_is_cleared(self, headrace: TestBroker) -> None:
        headrace.faults.fail(ApiKey.CREATE_TOPICS, ErrorCode.POLICY_VIOLATION)
        with pytest.raises(KafkaError, match="a fault injected by the test"):
            headrace.create_topic("orders")
        headrace.faults.clear()
        headrace.create_topic("orders")

    def test_a_closed_connection_is_all_that_a_client_sees(self, headrace: TestBroker) -> None:
        headrace.faults.close_connection("DescribeCluster", times=1)
        with Connection(headrace.bootstrap) as connection:
            connection.send(REQUEST, 1)
            assert connection.receive() is Ending.CLOSED
        ask(headrace.bootstrap, REQUEST, 1)

    def test_a_dropped_request_holds_its_connection_up_and_not_the_stop(
        self, headrace: TestBroker
    ) -> None:
        headrace.faults.drop("DescribeCluster", times=1)
        with Connection(headrace.bootstrap) as connection:
            connection.send(REQUEST, 1)
            connection.send(REQUEST, 1)
            ask(headrace.bootstrap, REQUEST, 1)  # others are served meanwhile
            connection.patience_seconds = 0.1
            assert connection.receive() is Ending.SILENT
            headrace.stop()
            assert connection.receive() is Ending.CLOSED

    def test_a_delayed_request_is_carried_out_behind_those_of_others(
        self, headrace: TestBroker
    ) -> None:
        headrace.faults.delay("DescribeCluster", 200, times=1)
        counters = headrace.node.counters.apis[ApiKey.DESCRIBE_CLUSTER]
        with Connection(headrace.bootstrap) as slow:
            slow.send(REQUEST, 1)
            headrace.create_topic("orders")
            assert counters.requests == 0
            assert not isinstance(slow.answer(DescribeClusterRequest, 1), Ending)

    def test_faults_outlive_a_restart(self, headrace: TestBroker) -> None:
        headrace.faults.fail("CreateTopics", ErrorCode.POLICY_VIOLATION, times=1)
        headrace.restart()
        with pytest.raises(KafkaError):
            headrace.create_topic("orders")

    def test_an_api_that_does_not_exist_is_named_with_those_that_do(
        self, headrace: TestBroker
    ) -> None:
        with pytest.raises(ValueError, match="'Fecth' is not an API; choose one of Produce, Fetch"):
            headrace.faults.drop("Fecth")


def test_a_broker_that_is_gone_cannot_be_reached() -> None:
    with TestBroker() as broker:
        address = broker.bootstrap

    async def connect() -> None:
        async with Admin(address):
            pass

    with pytest.raises(NotReachable):
        asyncio.run(connect())


@pytest.mark.parametrize("end", [TestBroker.stop, TestBroker.crash])
def test_the_address_of_a_broker_that_is_down_is_given_to_nobody_else(
    end: Callable[[TestBroker], None],
) -> None:
    with TestBroker() as broker:
        address = ("127.0.0.1", broker.node.listeners[0].port)
        end(broker)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        broker.start()
        assert ("127.0.0.1", broker.node.listeners[0].port) == address
        broker.create_topic("orders")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(address)


def test_the_plugin_is_installed_as_one() -> None:
    assert [each.value for each in entry_points(group="pytest11", name="headrace")] == [
        "headrace.testing.plugin"
    ]


def test_the_plugin_loads_nothing_before_a_test_asks() -> None:
    code = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import headrace.testing.plugin\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['headrace', 'headrace.testing', 'headrace.testing.plugin']"


SCOPES = """
import pytest

seen = {}


@pytest.mark.parametrize("number", [1, 2])
def test_one(number, headrace, headrace_module, headrace_session):
    headrace.create_topic("orders")
    kept = seen.setdefault("brokers", (headrace_module, headrace_session))
    assert kept == (headrace_module, headrace_session)
    assert seen.get("headrace") is not headrace
    seen["headrace"] = headrace
    assert headrace.node.settings.given["num.partitions"] == "7"
"""
SETTINGS = """
import pytest


@pytest.fixture(scope="session")
def headrace_settings():
    return {"num.partitions": "7"}
"""


def test_fixtures_have_the_scopes_that_they_say(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(FIXTURES + SETTINGS)
    (tmp_path / "test_scopes.py").write_text(SCOPES)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-W", "error"]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
