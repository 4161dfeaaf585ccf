"""Clients that ask much and read little, and handlers that fail, do not harm the others."""

import logging
from contextlib import ExitStack
from functools import partial

import pytest

from headrace.errors import ErrorCode
from headrace.loop.counters import ApiCounters
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.testing.broker import TestBroker
from headrace.wire import ApiKey
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_cluster_response import DescribeClusterResponse
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.fetch_response import FetchResponse
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.schema import Message
from tests.broker.peers import MIB, ask_on, is_served, memory_bytes, wait_until
from tests.differential.connection import Connection, Ending

TOPIC = "orders"
FETCHES = 300


def test_a_slow_reader_is_read_from_no_faster_than_it_reads(headrace: TestBroker) -> None:
    headrace.create_topic(TOPIC)
    headrace.produce(TOPIC, b"x" * (MIB // 2), b"y" * (MIB // 4))
    before = memory_bytes()
    with Connection(headrace.bootstrap) as slow:
        for _ in range(FETCHES):
            slow.send(fetch(max_wait_ms=0), 11)
        counters = headrace.node.counters.apis[ApiKey.FETCH]
        wait_until(lambda: counters.requests > 0, "some are answered")
        assert is_served(headrace.bootstrap, TOPIC)
        # All the answers together are 225 MiB; sockets and the first few answers are a few.
        assert memory_bytes() - before < 64 * MIB
        for _ in range(FETCHES):
            answer = slow.answer(FetchRequest, 11)
            assert not isinstance(answer, Ending)
            assert isinstance(answer[1], FetchResponse)
            assert len(answer[1].responses[0].partitions[0].records or b"") > MIB // 2


def test_many_fetches_that_wait_are_not_all_answered_at_once(headrace: TestBroker) -> None:
    headrace.create_topic(TOPIC)
    before = memory_bytes()
    with Connection(headrace.bootstrap) as slow:
        for _ in range(FETCHES):
            slow.send(fetch(max_wait_ms=20_000), 11)
        counters = headrace.node.counters.apis[ApiKey.FETCH]
        headrace.produce(TOPIC, b"x" * (MIB * 3 // 4))
        wait_until(lambda: counters.requests > 0, "some are answered")
        assert is_served(headrace.bootstrap, TOPIC)
        assert memory_bytes() - before < 64 * MIB
        for _ in range(FETCHES):
            assert not isinstance(slow.answer(FetchRequest, 11), Ending)


def test_clients_that_read_nothing_hold_no_more_than_the_node_allows_them_together() -> None:
    settings = {"headrace.unsent.responses.max.bytes": str(8 * MIB)}
    with TestBroker(settings=settings) as broker, ExitStack() as stack:
        broker.create_topic(TOPIC)
        for _ in range(30):
            broker.produce(TOPIC, b"x" * (MIB * 3 // 4))
        before = memory_bytes()
        traffic = broker.node.traffic
        counters = broker.node.counters.apis[ApiKey.FETCH]
        for _ in range(20):
            silent, answered = stack.enter_context(Connection(broker.bootstrap)), counters.requests
            silent.send(fetch(max_wait_ms=0, max_bytes=20 * MIB), 11)
            wait_until(partial(is_answered, counters, answered), "it is answered")
        assert 4 * MIB < traffic.unsent_bytes <= 8 * MIB + 20 * MIB
        assert memory_bytes() - before < 100 * MIB  # 400 without a bound
        assert len(broker.consume(TOPIC)) == 30


def is_answered(counters: ApiCounters, before: int) -> bool:
    return counters.requests > before


def fetch(max_wait_ms: int, max_bytes: int = MIB) -> FetchRequest:
    """A fetch of everything from the first offset on."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
    )


def test_a_handler_that_raises_leaves_an_incident_and_the_connection_lives(
    headrace: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def stumble(broker: Broker, request: Request) -> Message:
        raise ZeroDivisionError("a bug")

    handlers = headrace.node.dispatcher._handlers
    handlers[ApiKey.DESCRIBE_CLUSTER] = stumble
    with Connection(headrace.bootstrap) as connection:
        failed = ask_on(connection, DescribeClusterRequest(endpoint_type=1), 1)
        del handlers[ApiKey.DESCRIBE_CLUSTER]  # so that it is loaded again
        fine = ask_on(connection, DescribeClusterRequest(endpoint_type=1), 1)
    assert isinstance(failed, DescribeClusterResponse)
    assert isinstance(fine, DescribeClusterResponse)
    assert (failed.error_code, fine.error_code) == (ErrorCode.UNKNOWN_SERVER_ERROR, 0)
    assert "incident 1" in (failed.error_message or "")
    [line] = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert "incident 1" in line.getMessage()
    assert line.exc_info is not None
    assert "a bug" in str(line.exc_info[1])


class TestQueuedBytes:
    LIMIT_BYTES = 20_000

    @pytest.fixture
    def headrace_settings(self) -> dict[str, str]:
        limit = str(self.LIMIT_BYTES)
        return {"queued.max.request.bytes": limit, "socket.request.max.bytes": limit}

    def test_requests_beyond_the_limit_wait_until_others_are_answered(
        self, headrace: TestBroker
    ) -> None:
        traffic = headrace.node.traffic
        names = [MetadataRequestTopic(name=f"topic-{number:06}") for number in range(800)]
        large = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        headrace.faults.delay("Metadata", 100)
        with ExitStack() as stack:
            clients = [stack.enter_context(Connection(headrace.bootstrap)) for _ in range(10)]
            for client in clients:
                client.send(large, 9)
            wait_until(lambda: len(traffic.starved) > 0, "two are enough for the limit")
            assert traffic.in_flight_bytes < 2 * self.LIMIT_BYTES
            for client in clients:
                assert not isinstance(client.answer(MetadataRequest, 9), Ending)
        wait_until(lambda: traffic.in_flight_bytes == 0, "everything is given back")
