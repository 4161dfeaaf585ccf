"""What a connection does with frames: order, limits, and bytes that are no requests."""

import asyncio
import logging
import threading
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.config import Settings
from headrace.errors import ErrorCode, KafkaError
from headrace.loop.counters import Counters
from headrace.server.connection import Connection
from headrace.server.dispatch import Dispatcher
from headrace.server.request import INLINE_ELEMENTS_MAX, LATER, Request
from headrace.server.traffic import STUCK_NS, Traffic
from headrace.surroundings import Clocks
from headrace.wire import ApiKey, FrameReader
from headrace.wire.exchange import read_response, request_parts
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.api_versions_response import ApiVersionsResponse
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from headrace.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.messages.describe_configs_response import DescribeConfigsResponse
from headrace.wire.messages.fetch_response import FetchResponse
from headrace.wire.messages.produce_request import ProduceRequest
from headrace.wire.messages.produce_response import ProduceResponse
from headrace.wire.messages.request_header import RequestHeader
from headrace.wire.schema import Message

FRAME_BYTES_MAX = 10_000


class Wire(asyncio.Transport):
    """A transport whose other end is the test."""

    def __init__(self, host: str = "10.0.0.1", port: int = 4711) -> None:
        super().__init__({"peername": (host, port)})
        self.sent = bytearray()
        self.is_aborted = False
        self.is_ended = False
        self.is_paused = False
        self.parts_max = 0
        self.unsent_bytes = 0

    def writelines(self, list_of_data: Any) -> None:
        self.parts_max = max(self.parts_max, len(list_of_data))
        for part in list_of_data:
            self.sent += part

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        self.is_ended = True

    def is_closing(self) -> bool:
        return self.is_ended

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class World:
    """Connections with a dispatcher whose handlers are the test's."""

    def __init__(self, *, is_prepared: bool = True, **limits: int) -> None:
        self.counters = Counters()
        defaults = {"request_bytes_max": FRAME_BYTES_MAX, "requests_max": 100}
        self.traffic = Traffic(self.counters, **{**defaults, **limits})
        self.waiting: list[Request] = []
        handlers: Any = {
            ApiKey.API_VERSIONS: lambda broker, request: self.answer_versions(request),
            ApiKey.DESCRIBE_CONFIGS: lambda broker, request: self.wait(request),
            ApiKey.DESCRIBE_CLUSTER: lambda broker, request: self.wait(request),
            ApiKey.FETCH: lambda broker, request: self.wait(request),
            ApiKey.PRODUCE: lambda broker, request: self.produce(request),
        }
        broker: Any = SimpleNamespace(counters=self.counters, settings=Settings())
        self.dispatcher = Dispatcher(broker, handlers, handlers.__getitem__)
        if is_prepared:
            self.dispatcher.prepare_all()
        self.error: Exception = RuntimeError("out of luck")

    def connect(self, host: str = "10.0.0.1") -> "Client":
        return Client(self, host)

    def answer_versions(self, request: Request) -> Message:
        return ApiVersionsResponse(error_code=0 if request.body is not None else 35)

    def wait(self, request: Request) -> object:
        if request.client_id == "broken":
            self.fail()
        self.waiting.append(request)
        return LATER

    def produce(self, request: Request) -> object:
        if request.client_id == "slow":
            request.hold()
        elif request.client_id != "quick":
            self.fail()
        self.waiting.append(request)
        return LATER

    def fail(self) -> None:
        raise self.error

    def answer(self, index: int = 0) -> None:
        request = self.waiting.pop(index)
        responses: dict[int, Message] = {
            ApiKey.FETCH: FetchResponse(),
            ApiKey.PRODUCE: ProduceResponse(),
            ApiKey.DESCRIBE_CLUSTER: DescribeClusterResponse(cluster_id="c"),
        }
        request.answer(responses[request.api_key])


class Client:
    """The other end of a connection."""

    def __init__(self, world: World, host: str) -> None:
        self.wire = Wire(host)
        self.connection = Connection("PLAINTEXT", world.dispatcher, world.traffic)
        self.connection.connection_made(self.wire)
        self.asked: dict[int, tuple[ApiKey, int]] = {}
        self._reader = FrameReader()
        self._read = 0

    def send(self, *data: bytes) -> None:
        rest = b"".join(data)
        while rest and not self.wire.is_aborted:
            room = self.connection.get_buffer(-1)[: len(rest)]
            room[:] = rest[: len(room)]
            self.connection.buffer_updated(len(room))
            rest = rest[len(room) :]

    def ask(
        self, body: Message, version: int = 0, *, client_id: str = "client", number: int = 0
    ) -> bytes:
        """The bytes of a request."""
        number = number or len(self.asked) + 1
        key = ApiKey(body.API_KEY)
        self.asked[number] = key, version
        header = RequestHeader(
            request_api_key=int(key),
            request_api_version=version,
            correlation_id=number,
            client_id=client_id,
        )
        return b"".join(map(bytes, request_parts(header, body)))

    def answers(self) -> list[tuple[int, Message]]:
        """What came since the last call: correlation ids with responses."""
        frames = self._reader.feed(bytes(self.wire.sent[self._read :]))
        self._read = len(self.wire.sent)
        answers = []
        for frame in frames:
            number = int.from_bytes(frame[:4])
            header, body = read_response(frame, *self.asked[number])
            answers.append((header.correlation_id, body))
        return answers


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.fixture(autouse=True)
def _endless_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests have no loop that could go on with the next turn."""
    monkeypatch.setattr("headrace.server.connection.TURN_NS_MAX", 10**15)
    monkeypatch.setattr("headrace.server.traffic.TURN_NS_MAX", 10**15)


def test_a_request_waits_until_the_one_before_it_is_answered() -> None:
    world = World()
    client = world.connect()
    client.send(*(client.ask(DescribeClusterRequest()) for _ in range(2)))
    client.send(client.ask(ApiVersionsRequest()))
    assert len(world.waiting) == 1
    world.answer()
    assert [number for number, _ in client.answers()] == [1]
    assert len(world.waiting) == 1
    world.answer()
    assert [number for number, _ in client.answers()] == [2, 3]


def test_a_produce_does_not_wait_for_the_replicas_of_the_one_before_it() -> None:
    world = World()
    client = world.connect()
    client.send(*(client.ask(ProduceRequest(), 9, client_id="quick") for _ in range(3)))
    assert len(world.waiting) == 3
    world.answer(1)
    assert client.answers() == []
    world.answer(0)
    assert [number for number, _ in client.answers()] == [1, 2]
    world.answer(0)
    assert [number for number, _ in client.answers()] == [3]


def test_what_follows_produces_sees_all_of_them_in_all_replicas() -> None:
    world = World()
    client = world.connect()
    client.send(*(client.ask(ProduceRequest(), 9, client_id="quick") for _ in range(2)))
    client.send(client.ask(ApiVersionsRequest()))
    client.send(client.ask(ProduceRequest(), 9, client_id="quick"))
    world.answer(1)
    assert (client.answers(), len(world.waiting)) == ([], 1)
    world.answer(0)
    assert [number for number, _ in client.answers()] == [1, 2, 3]
    assert len(world.waiting) == 1


def test_a_produce_waits_while_the_one_before_it_is_not_in_the_log() -> None:
    world = World()
    client = world.connect()
    client.send(client.ask(ProduceRequest(), 9, client_id="slow"))
    client.send(*(client.ask(ProduceRequest(), 9, client_id="quick") for _ in range(2)))
    assert len(world.waiting) == 1
    world.waiting[0].release()
    assert len(world.waiting) == 3
    for _ in range(3):
        world.answer()
    assert [number for number, _ in client.answers()] == [1, 2, 3]
    assert not client.wire.is_paused


def set_clock(monkeypatch: pytest.MonkeyPatch, monotonic_ns: Callable[[], int]) -> None:
    clocks = Clocks(monotonic_ns=monotonic_ns)
    monkeypatch.setattr("headrace.loop.counters.clocks", lambda: clocks)


def test_other_connections_go_on_between_many_requests_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = count()
    monkeypatch.setattr("headrace.server.connection.TURN_NS_MAX", 10)
    set_clock(monkeypatch, lambda: next(ticks))
    turns: list[int] = []

    async def run() -> None:
        client = World().connect()
        client.send(*(client.ask(ApiVersionsRequest()) for _ in range(100)))
        while len(turns) < 100 and sum(turns) < 100:
            turns.append(len(client.answers()))
            await asyncio.sleep(0)

    asyncio.run(run())
    assert sum(turns) == 100
    assert max(turns) < 40


def test_small_requests_that_take_long_are_handled_over_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns = 0
    monkeypatch.setattr("headrace.server.connection.TURN_NS_MAX", 10)
    set_clock(monkeypatch, lambda: now_ns)
    turns: list[int] = []

    def answer_late(self: World, request: Request) -> Message:
        nonlocal now_ns
        now_ns += 11
        return ApiVersionsResponse()

    monkeypatch.setattr(World, "answer_versions", answer_late)

    async def run() -> None:
        client = World().connect()
        client.send(*(client.ask(ApiVersionsRequest()) for _ in range(20)))
        while len(turns) < 100 and sum(turns) < 20:
            turns.append(len(client.answers()))
            await asyncio.sleep(0)

    asyncio.run(run())
    assert sum(turns) == 20
    assert max(turns) <= 2, "one on arrival, one from what waits"


def test_a_large_request_is_decoded_in_a_thread_and_keeps_its_place() -> None:
    names = [f"{number:0>100}" for number in range(1000)]

    async def run() -> list[int]:
        world = World(request_bytes_max=2**20)
        client = world.connect()
        resources = [DescribeConfigsResource(resource_name=name) for name in names]
        large = client.ask(DescribeConfigsRequest(resources=resources), 4)
        client.send(large, client.ask(ApiVersionsRequest()))
        assert (world.waiting, client.answers()) == ([], [])
        assert client.connection.has_unanswered
        assert world.traffic.in_flight_bytes == len(large) - 4
        while not world.waiting:
            await asyncio.sleep(0)
        request = world.waiting.pop()
        assert [each.resource_name for each in request.body.resources] == names
        request.answer(DescribeConfigsResponse())
        assert world.traffic.in_flight_bytes == 0
        return [number for number, _ in client.answers()]

    assert asyncio.run(run()) == [1, 2]


def test_what_the_first_request_of_an_api_takes_is_done_in_a_thread() -> None:
    async def run() -> list[int]:
        world = World(is_prepared=False)
        client = world.connect()
        client.send(client.ask(ApiVersionsRequest()), client.ask(ApiVersionsRequest(), 3))
        client.send(client.ask(ApiVersionsRequest()))
        assert client.answers() == []
        numbers: list[int] = []
        while len(numbers) < 3:
            numbers += [number for number, _ in client.answers()]
            await asyncio.sleep(0)
        client.send(client.ask(ApiVersionsRequest(), 3))
        return numbers + [number for number, _ in client.answers()]

    assert asyncio.run(asyncio.wait_for(run(), 20)) == [1, 2, 3, 4]


def test_a_connection_may_be_lost_while_its_request_is_decoded() -> None:
    async def run() -> int:
        world = World(request_bytes_max=2**20)
        client = world.connect()
        resources = [DescribeConfigsResource(resource_name="n" * 100)] * 1000
        client.send(client.ask(DescribeConfigsRequest(resources=resources), 4))
        client.connection.connection_lost(None)
        await asyncio.get_running_loop().shutdown_default_executor()
        await asyncio.sleep(0)
        assert world.waiting == []
        return world.traffic.in_flight_bytes

    assert asyncio.run(run()) == 0


def test_a_large_frame_that_is_no_request_ends_the_connection() -> None:
    async def run() -> None:
        client = World(request_bytes_max=2**20).connect()
        client.send(b"\x00\x02\x00\x00" + b"\x77" * 2**17, client.ask(ApiVersionsRequest()))
        while not client.wire.is_aborted:
            await asyncio.sleep(0)
        assert client.answers() == []

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_large_response_is_encoded_in_a_thread_and_keeps_its_place() -> None:
    threads: list[str] = []
    names = [f"{number}" for number in range(INLINE_ELEMENTS_MAX)]

    async def run() -> list[tuple[int, Message]]:
        world = World()
        client = world.connect()
        client.send(client.ask(DescribeClusterRequest()), client.ask(ApiVersionsRequest()))
        request = world.waiting.pop()
        brokers = [DescribeClusterBroker(host=Name(name, threads)) for name in names]
        request.answer(DescribeClusterResponse(cluster_id="c", brokers=brokers))
        assert client.answers() == []
        while not (answers := client.answers()):
            await asyncio.sleep(0)
        return answers

    [(_, large), (number, _)] = asyncio.run(run())
    assert isinstance(large, DescribeClusterResponse)
    assert [broker.host for broker in large.brokers] == names
    assert number == 2
    assert threads
    assert threading.current_thread().name not in threads


class Name(str):
    """A name that remembers which threads encoded it."""

    def __new__(cls, text: str, threads: list[str]) -> "Name":
        name = super().__new__(cls, text)
        name.threads = threads
        return name

    threads: list[str]

    def encode(self, *arguments: Any) -> bytes:
        self.threads.append(threading.current_thread().name)
        return super().encode(*arguments)


def test_a_response_of_very_many_parts_is_few_writes() -> None:
    world = World()
    client = world.connect()
    client.send(client.ask(DescribeClusterRequest()))
    brokers = [DescribeClusterBroker(host=f"h{number}") for number in range(1000)]
    world.waiting.pop().answer(DescribeClusterResponse(cluster_id="c", brokers=brokers))
    assert client.wire.parts_max < 5
    [(_, answer)] = client.answers()
    assert isinstance(answer, DescribeClusterResponse)
    assert answer.brokers[-1].host == "h999"


def test_a_handler_that_raises_is_an_error_with_a_number_that_the_log_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    client = world.connect()
    client.send(client.ask(DescribeClusterRequest(), client_id="broken"))
    client.send(client.ask(ApiVersionsRequest()))
    [(_, failed), (number, _)] = client.answers()
    assert isinstance(failed, DescribeClusterResponse)
    assert failed.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "incident 1" in (failed.error_message or "")
    assert "out of luck" not in (failed.error_message or "")
    assert number == 2
    assert not client.wire.is_aborted
    [line] = [line for line in lines(caplog) if "incident 1" in line]
    assert "DescribeCluster v0" in line
    assert "10.0.0.1:4711" in line
    assert world.counters.apis[ApiKey.DESCRIBE_CLUSTER].errors == 1


def test_an_error_of_kafka_is_answered_and_is_no_incident(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.error = KafkaError(ErrorCode.NOT_CONTROLLER, "ask node 2")
    client = world.connect()
    client.send(client.ask(DescribeClusterRequest(), client_id="broken"))
    [(_, failed)] = client.answers()
    assert isinstance(failed, DescribeClusterResponse)
    assert (failed.error_code, failed.error_message) == (ErrorCode.NOT_CONTROLLER, "ask node 2")
    assert lines(caplog) == []


def test_a_failed_produce_without_acks_ends_its_connection() -> None:
    world = World()
    client = world.connect()
    client.send(client.ask(ProduceRequest(acks=0), 9))
    assert client.wire.is_aborted
    assert client.answers() == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", "an HTTP request on a Kafka port"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "a TLS handshake on a listener without TLS"),
        (b"\x7f\xff\xff\xff", "the limit is 10000"),
        (b"\xff\xff\xff\xff", "is negative"),
        (b"\x00\x00\x00\x03abc", "holds no header"),
        (b"\x00\x00\x00\x0a" + b"\x77" * 10, "there is no API"),
    ],
)
def test_bytes_that_are_no_request_end_the_connection_with_one_line(
    data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    client = world.connect()
    client.send(data, data)
    assert client.wire.is_aborted
    [line] = lines(caplog)
    assert reason in line
    assert "10.0.0.1:4711" in line


def test_nothing_that_follows_a_bad_request_is_carried_out() -> None:
    world = World()
    client = world.connect()
    client.send(b"\x00\x00\x00\x0a" + b"\x77" * 10, client.ask(DescribeClusterRequest()))
    assert client.wire.is_aborted
    assert world.waiting == []


def test_a_version_that_is_not_served_is_named_with_its_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    client = world.connect()
    client.connection.client_software = "librdkafka 0.8"
    client.send(client.ask(ProduceRequest(), 3).replace(b"\x00\x00\x00\x03", b"\x00\x00\x00\x02"))
    [line] = lines(caplog)
    assert "Produce v2 is not served, 3 to 13 are" in line
    assert "librdkafka 0.8" in line


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    world = World()
    client = world.connect()
    sent = client.ask(ApiVersionsRequest(), 4)
    client.asked[1] = ApiKey.API_VERSIONS, 0
    client.send(sent.replace(b"\x00\x12\x00\x04", b"\x00\x12\x00\x63"))
    [(_, answer)] = client.answers()
    assert isinstance(answer, ApiVersionsResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_no_more_is_read_while_too_many_requests_are_unanswered() -> None:
    world = World(requests_max=2)
    client = world.connect()
    client.send(*(client.ask(ProduceRequest(), 9, client_id="quick") for _ in range(4)))
    assert (len(world.waiting), client.wire.is_paused) == (2, True)
    world.answer()
    assert (len(world.waiting), client.wire.is_paused) == (2, True)
    world.answer()
    world.answer()
    assert (len(world.waiting), client.wire.is_paused) == (1, False)


def test_no_more_is_read_while_answers_are_not_taken() -> None:
    world = World()
    client = world.connect()
    client.connection.pause_writing()
    assert client.wire.is_paused
    client.send(*(client.ask(ApiVersionsRequest()) for _ in range(3)))
    assert client.answers() == []
    client.connection.resume_writing()
    assert [number for number, _ in client.answers()] == [1, 2, 3]
    assert not client.wire.is_paused


class Slow:
    """Clients that leave responses unread, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        set_clock(monkeypatch, lambda: self.now_ns)
        self.world = World(unsent_bytes_max=1000)

    def connect(self, unsent_bytes: int) -> Client:
        client = self.world.connect()
        client.wire.unsent_bytes = unsent_bytes
        client.connection.pause_writing()
        return client


def test_fetches_return_less_the_more_is_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.server.traffic.FETCH_BYTES_FLOOR", 10)
    slow = Slow(monkeypatch)
    traffic = slow.world.traffic
    assert traffic.fetch_bytes_max(5000) == 1000
    client = slow.connect(400)
    assert traffic.fetch_bytes_max(5000) == 600
    slow.connect(2000)
    assert traffic.fetch_bytes_max(5000) == 10
    client.connection.resume_writing()
    assert traffic.unsent_bytes == 2000


def test_a_client_that_reads_nothing_is_closed_when_memory_is_short(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow(monkeypatch)
    stuck, reading = slow.connect(300), slow.connect(300)
    slow.now_ns += STUCK_NS
    reading.wire.unsent_bytes = 200
    newest = slow.connect(100)
    assert (stuck.wire.is_aborted, reading.wire.is_aborted) == (True, False)
    assert not newest.wire.is_aborted
    assert slow.world.traffic.unsent_bytes == 300
    assert slow.world.counters.connections_stuck_closed == 1
    [line] = lines(caplog)
    assert "it leaves 300 bytes of responses unread" in line


def test_nobody_is_closed_while_there_is_room_or_before_there_was_time_to_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow(monkeypatch)
    first = slow.connect(300)
    slow.now_ns += STUCK_NS
    assert not slow.connect(100).wire.is_aborted
    assert not first.wire.is_aborted
    slow.now_ns -= 1
    slow.connect(5000)
    assert not first.wire.is_aborted


def test_a_full_node_reads_on_once_something_is_answered() -> None:
    world = World(queued_bytes_max=1)
    first, *others = (world.connect() for _ in range(500))
    first.send(first.ask(DescribeClusterRequest()))
    for other in others:
        other.send(other.ask(ApiVersionsRequest()), other.ask(ApiVersionsRequest()))
    assert all(client.wire.is_paused for client in (first, *others))
    assert not any(other.answers() for other in others)
    world.answer()
    assert not any(client.wire.is_paused for client in (first, *others))
    assert [len(other.answers()) for other in others] == [2] * len(others)


def test_a_frame_that_has_begun_may_end_in_a_full_node() -> None:
    world = World(queued_bytes_max=1)
    first, second = world.connect(), world.connect()
    data = first.ask(DescribeClusterRequest())
    first.send(data[:10])
    second.send(second.ask(DescribeClusterRequest())[:10])
    assert (first.wire.is_paused, second.wire.is_paused) == (False, True)
    assert world.traffic.in_flight_bytes == len(data) - 4
    first.send(data[10:])
    assert len(world.waiting) == 1
    assert world.traffic.in_flight_bytes == len(data) - 4
    world.answer()
    assert [number for number, _ in first.answers()] == [1]
    assert not second.wire.is_paused


@pytest.mark.parametrize("queued_bytes_max", [1, 10_000])
def test_a_frame_that_room_was_kept_for_waits_for_the_request_before_it(
    queued_bytes_max: int,
) -> None:
    world = World(queued_bytes_max=queued_bytes_max)
    client = world.connect()
    first, second = client.ask(DescribeClusterRequest()), client.ask(DescribeClusterRequest())
    client.send(first + second[:10])
    client.send(second[10:])
    assert len(world.waiting) == 1
    for number in (1, 2):
        world.answer()
        assert [answered for answered, _ in client.answers()] == [number]
    assert world.traffic.in_flight_bytes == 0
    assert not client.wire.is_paused


def test_room_that_was_kept_for_a_lost_connection_is_given_back() -> None:
    world = World(queued_bytes_max=1)
    client = world.connect()
    client.send(client.ask(DescribeClusterRequest())[:10])
    assert world.traffic.in_flight_bytes > 0
    client.connection.connection_lost(None)
    assert world.traffic.in_flight_bytes == 0


def test_no_room_is_kept_for_a_client_that_is_held_back() -> None:
    world = World(queued_bytes_max=1)
    held, other = world.connect(), world.connect()
    data = held.ask(ApiVersionsRequest())
    held.send(data[:10])
    other.send(other.ask(ApiVersionsRequest()))
    assert other.answers() == []
    held.connection.hold()
    assert held.wire.is_paused
    assert [number for number, _ in other.answers()] == [1]
    assert world.traffic.in_flight_bytes == 0
    held.connection.unmute()
    assert world.traffic.in_flight_bytes == len(data) - 4
    held.send(data[10:])
    assert [number for number, _ in held.answers()] == [1]
    assert world.traffic.in_flight_bytes == 0


def test_the_bytes_of_a_lost_connection_are_given_back() -> None:
    world = World(queued_bytes_max=1)
    first, second = world.connect(), world.connect()
    first.send(first.ask(DescribeClusterRequest()))
    second.send(second.ask(ApiVersionsRequest()), second.ask(ApiVersionsRequest()))
    assert second.wire.is_paused
    first.connection.connection_lost(None)
    assert world.traffic.in_flight_bytes == 0
    assert len(second.answers()) == 2


def test_an_answer_to_a_lost_connection_is_dropped() -> None:
    world = World()
    client = world.connect()
    client.send(client.ask(DescribeClusterRequest()))
    client.connection.connection_lost(None)
    world.answer()
    assert client.answers() == []


def test_a_draining_connection_answers_what_waits_and_takes_nothing_more() -> None:
    world = World()
    client = world.connect()
    client.send(client.ask(DescribeClusterRequest()), client.ask(DescribeClusterRequest()))
    world.waiting[0].on_drain = world.answer
    client.connection.drain()
    assert [number for number, _ in client.answers()] == [1]
    assert world.waiting == []
    assert client.connection.drained.is_set()
    assert client.wire.is_closing()


def test_a_draining_connection_ends_when_what_cannot_be_hurried_is_answered() -> None:
    world = World()
    client = world.connect()
    client.send(client.ask(DescribeClusterRequest()))
    client.connection.drain()
    assert not client.connection.drained.is_set()
    world.answer()
    assert [number for number, _ in client.answers()] == [1]
    assert client.connection.drained.is_set()


def test_a_request_that_was_decoded_meanwhile_is_answered_by_a_draining_connection() -> None:
    async def run() -> list[int]:
        world = World(request_bytes_max=2**20)
        wait = world.wait

        def wait_at_most(request: Request) -> object:
            request.on_drain = lambda: request.answer(DescribeConfigsResponse())
            return wait(request)

        world.wait = wait_at_most  # type: ignore[method-assign]
        client = world.connect()
        resources = [DescribeConfigsResource(resource_name="n" * 100)] * 1000
        client.send(client.ask(DescribeConfigsRequest(resources=resources), 4))
        client.connection.drain()
        assert not client.connection.drained.is_set()
        await client.connection.drained.wait()
        return [number for number, _ in client.answers()]

    assert asyncio.run(asyncio.wait_for(run(), 20)) == [1]


def test_a_connection_that_comes_when_all_are_closed_is_closed_too() -> None:
    """The system may have accepted it before the node stopped to listen."""
    world = World()
    former = world.connect()
    world.traffic.close("the node stops")
    assert former.wire.is_aborted
    assert world.connect().wire.is_aborted


def test_connections_over_the_limit_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    world = World(connections_max=2)
    clients = [world.connect() for _ in range(3)]
    assert [client.wire.is_aborted for client in clients] == [False, False, True]
    assert "max.connections" in lines(caplog)[0]
    clients[0].connection.connection_lost(None)
    clients[2].connection.connection_lost(None)
    assert not world.connect().wire.is_aborted


def test_connections_of_one_address_over_the_limit_are_refused() -> None:
    world = World(connections_per_ip_max=1)
    clients = [world.connect("10.0.0.1"), world.connect("10.0.0.1"), world.connect("10.0.0.2")]
    assert [client.wire.is_aborted for client in clients] == [False, True, False]
    assert world.counters.connections_refused == 1
