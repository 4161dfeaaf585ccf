"""Connections of programs that speak seed 002: order, limits, and bytes that are no requests."""

import asyncio
import gc
import json
import logging
import threading
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.cluster.protocol import (
    MESSAGE_BYTES_MAX,
    PROTOCOL_VERSION,
    Acks,
    ClusterErrorCode,
    commands,
    decode_request_header,
    encode_request,
    encode_response,
    requests,
    responses,
)
from headrace.cluster.transport.hello import Identity
from headrace.cluster.transport.links import Links
from headrace.ids import BrokerId
from headrace.log.fetch import ColdRead
from headrace.server.interchange import Interchange
from headrace.server.interchange import dispatch as dispatching
from tests.unit.harness import ColdFiles, Harness
from tests.unit.server.interchange.programs import (
    SECONDS_MAX,
    Program,
    ask,
    batch,
    interchange_of,
    partition,
    talk,
)
from tools.cluster_vectors.peer import VECTORS


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.001)


def codes(answers: list[Any]) -> list[int]:
    return [each.header.error_code for each in answers]


# Order


def test_pipelined_requests_are_answered_in_order_with_their_ids(harness: Harness) -> None:
    harness.create_topic("orders")

    async def work(program: Program) -> None:
        asked: list[Any] = []
        for number in range(50):
            asked += [
                program.append(batch(b"%d" % number), list(Acks)[number % 3]),
                program.fetch(number),
                program.metadata("orders"),
                program.elect(),
                program.heartbeat(),
                program.replica_state(0),
            ]
        program.send(*asked)
        answers = [await program.receive() for _ in asked]
        assert [each.header.correlation_id for each in answers] == [
            each.header.correlation_id for each in asked
        ]
        assert not any(codes(answers))
        # Each fetch sees the append before it.
        for number, fetched in enumerate(answers[1::6]):
            assert fetched.high_watermark == number + 1
            assert b"%d" % number in bytes(fetched.records)

    talk(harness, work)


@pytest.mark.slow
def test_ten_thousand_appends_in_one_go_are_all_in_the_log_in_order(harness: Harness) -> None:
    harness.create_topic("orders")

    async def work(program: Program) -> list[int]:
        asked = [program.append(batch(b"v"), Acks.ALL) for _ in range(10_000)]
        program.send(*asked)
        return [(await program.receive()).base_offset for _ in asked]

    assert talk(harness, work) == [*range(10_000)]


def test_appends_that_wait_for_replicas_overlap(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    place("orders", [me, me + 1], isr=[me, me + 1], leader=me)
    led = harness.partition("orders")

    async def work(program: Program) -> list[int]:
        program.send(*[program.append(batch()) for _ in range(5)], program.fetch())
        await until(lambda: led.log.end_offset == 5)
        led.log.advance_high_watermark(5)
        led.tell_of_change()
        answers = [await program.receive() for _ in range(6)]
        assert answers[-1].high_watermark == 5
        return [each.base_offset for each in answers[:5]]

    assert talk(harness, work) == [*range(5)]


def test_a_frame_may_come_byte_by_byte(harness: Harness) -> None:
    harness.create_topic("orders")

    async def work(program: Program) -> Any:
        message = encode_request(program.append(batch()))
        for byte in len(message).to_bytes(4, "big") + message:
            program.writer.write(bytes([byte]))
            await program.writer.drain()
        return await program.receive()

    assert talk(harness, work).header.is_success


# Bytes that are no requests


def test_another_version_is_answered_and_the_connection_goes_on(harness: Harness) -> None:
    harness.create_topic("orders")

    async def work(program: Program) -> list[Any]:
        asked: list[Any] = [
            requests.Append(program.header(version=2), partition(), batch(), Acks.ALL),
            requests.FetchMetadata(program.header(version=0), None),
            program.metadata(),
        ]
        program.send(*asked)
        answers = [await program.receive() for _ in asked]
        assert [each.header.correlation_id for each in answers] == [1, 2, 3]
        return answers

    answers = talk(harness, work)
    assert codes(answers) == [ClusterErrorCode.UNSUPPORTED_VERSION] * 2 + [0]
    assert all(isinstance(each, responses.Error) for each in answers[:2])
    assert harness.partition("orders").log.end_offset == 0


def test_a_request_that_breaks_off_is_answered_without_effect(harness: Harness) -> None:
    harness.create_topic("orders")

    async def work(program: Program) -> list[Any]:
        whole = encode_request(program.append(batch()))
        for message in (whole[:-1], whole[:30], whole + b"\0", whole[:-1] + b"\x07"):
            program.send_bytes(message)
        unknown = b"\x3f" + encode_request(program.metadata())[1:]
        program.send_bytes(unknown)
        program.send(program.metadata())
        return [await program.receive() for _ in range(6)]

    answers = talk(harness, work)
    assert codes(answers) == [
        *[ClusterErrorCode.CORRUPT_MESSAGE] * 4,
        ClusterErrorCode.INVALID_REQUEST,
        0,
    ]
    assert harness.partition("orders").log.end_offset == 0


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\0",
        b"\0\0\0\x05\xff\xff\xff\xff\xff",
        b"\0\0\0\x02\x00\x01",
        (MESSAGE_BYTES_MAX + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_bytes_without_a_correlation_id_end_the_connection(harness: Harness, data: bytes) -> None:
    async def work(program: Program) -> bool:
        program.writer.write(data)
        return await program.is_closed()

    assert talk(harness, work)


def test_a_response_is_no_request(harness: Harness) -> None:
    """The side that opened a connection sends requests, whatever could be read from its bytes."""
    harness.create_topic("orders")
    header = responses.ResponseHeader(1)

    async def work(program: Program) -> Any:
        program.send_bytes(encode_response(responses.Fetch(header, partition(), 1, 0, batch())))
        return await program.is_closed()

    talk(harness, work)
    assert harness.partition("orders").log.end_offset == 0


def test_the_largest_frame_is_read(harness: Harness) -> None:
    harness.create_topic("orders", configs={"max.message.bytes": str(1 << 24)})

    async def work(program: Program) -> Any:
        empty = len(encode_request(program.append(b"")))
        room = MESSAGE_BYTES_MAX - empty - 8
        records = batch(bytes(room - 100))
        asked = program.append(records)
        assert MESSAGE_BYTES_MAX - 200 < len(encode_request(asked)) <= MESSAGE_BYTES_MAX
        placed = await program.ask(asked)
        fetched = await program.ask(program.fetch(max_bytes=2**32 - 1))
        assert len(fetched.records) == len(records)
        return placed

    assert talk(harness, work).header.is_success


def test_every_request_that_the_crate_writes_is_answered(harness: Harness) -> None:
    """The bytes are those of the crate that defined the protocol; most name what is not here."""
    lines = map(json.loads, VECTORS.read_text("utf-8").splitlines())
    written = [bytes.fromhex(line["hex"]) for line in lines if line["kind"] == "request"]
    assert {message[0] for message in written} == {*range(7)}

    async def work(program: Program) -> None:
        for message in written:
            program.send_bytes(message)
            answer = await program.receive()
            _, header = decode_request_header(message)
            assert answer.header.correlation_id == header.correlation_id
            is_ours = header.version == PROTOCOL_VERSION
            assert (answer.header.error_code == ClusterErrorCode.UNSUPPORTED_VERSION) != is_ours
            assert answer.header.error_code != ClusterErrorCode.UNKNOWN

    talk(harness, work)


# Limits


def test_a_program_that_does_not_read_is_not_read_from(harness: Harness) -> None:
    harness.create_topic("orders")

    async def work(program: Program) -> None:
        await program.ask(program.append(batch(bytes(900_000))))
        asked = [program.fetch() for _ in range(500)]
        program.send(*asked)
        (connection,) = harness.node.traffic.connections
        await until(lambda: connection.unsent_bytes > 0)
        for _ in range(50):
            await asyncio.sleep(0)
            assert connection.unsent_bytes < 4_000_000
        for each in asked:
            assert (await program.receive()).header.correlation_id == each.header.correlation_id

    talk(harness, work)


@pytest.mark.parametrize("harness", [{"max.connections": "1"}], indirect=True)
def test_the_node_s_limit_of_connections_holds(harness: Harness) -> None:
    async def work(program: Program) -> bool:
        await program.ask(program.metadata())
        async with Program(program._port) as other:
            return await other.is_closed()

    assert talk(harness, work)


@pytest.mark.parametrize("harness", [{"headrace.connection.requests.max": "3"}], indirect=True)
def test_no_more_appends_wait_than_the_node_allows(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    place("orders", [me, me + 1], isr=[me, me + 1], leader=me)
    led = harness.partition("orders")

    async def work(program: Program) -> list[int]:
        asked = [program.append(batch(), timeout_ms=200) for _ in range(7)]
        program.send(*asked)
        await until(lambda: led.log.end_offset == 3)
        return codes([await program.receive() for _ in asked])

    assert talk(harness, work) == [ClusterErrorCode.REQUEST_TIMED_OUT] * 7


# Failures and timeouts


def test_a_handler_that_fails_is_answered_and_logged(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> Any:
        raise ValueError("a bug")

    monkeypatch.setitem(dispatching._HANDLERS, requests.Heartbeat, fail)

    async def work(program: Program) -> list[Any]:
        return [
            await program.ask(program.heartbeat()),
            await program.ask(program.metadata()),
        ]

    with caplog.at_level(logging.ERROR):
        assert codes(talk(harness, work)) == [ClusterErrorCode.UNKNOWN, 0]
    assert "a bug" in caplog.text


def test_a_fetch_that_waits_for_the_disk_times_out(
    harness: Harness, cold_files: ColdFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("orders")
    ask(harness, lambda program: program.append(batch(b"cold")))
    cold_files.drop(harness, "orders", 0)
    may_read = threading.Event()
    run = ColdRead.run

    def wait(read: ColdRead) -> None:
        assert may_read.wait(SECONDS_MAX)
        run(read)

    monkeypatch.setattr(ColdRead, "run", wait)

    async def work(program: Program) -> list[Any]:
        asked = requests.Fetch(program.header(timeout_ms=20), partition(), 0, 1 << 20)
        late = await program.ask(asked)
        may_read.set()
        return [late, await program.ask(program.fetch())]

    try:
        answers = talk(harness, work)
    finally:
        may_read.set()
    assert codes(answers) == [ClusterErrorCode.REQUEST_TIMED_OUT, 0]
    assert b"cold" in bytes(answers[1].records)


def test_a_program_that_leaves_in_the_middle_leaves_nothing_behind(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    place("orders", [me, me + 1], isr=[me, me + 1], leader=me)
    led = harness.partition("orders")

    async def work(program: Program) -> None:
        for last in (program.fetch(), program.propose(commands.Noop()), program.metadata()):
            async with Program(program._port) as other:
                other.send(*[other.append(batch(), timeout_ms=100) for _ in range(3)], last)
                message = encode_request(other.metadata())
                other.writer.write(len(message).to_bytes(4, "big") + message[:-1])
                await other.writer.drain()
        await until(lambda: len(harness.node.traffic.connections) == 1)
        await until(lambda: not led.produce_waiters)
        assert harness.node.traffic.in_flight_bytes == 0
        assert (await program.ask(program.metadata())).header.is_success

    talk(harness, work)


# The node's side


def with_links(harness: Harness, work: Callable[[int, Interchange], Awaitable[None]]) -> None:
    """Run work with the port of a node's links, which hand programs of seed 002 over."""

    async def run() -> None:
        interchange = interchange_of(harness)
        links = Links(
            Identity(node=BrokerId(1), folder_id=bytes(16), boot_epoch=1),
            secret=None,
            address_of=lambda node: None,
            on_client=interchange.accept,
        )
        port = await links.open("127.0.0.1", 0)
        try:
            await work(port, interchange)
        finally:
            await links.close()
            await interchange.close()

    harness.run(run())


def test_links_hand_programs_over_that_send_no_hello(harness: Harness) -> None:
    harness.create_topic("orders")

    async def work(port: int, interchange: Interchange) -> None:
        async with Program(port) as program:
            asked = [program.append(batch()) for _ in range(300)]  # more than a handshake reads
            program.send(*asked, program.fetch())
            answers = [await program.receive() for _ in range(301)]
            assert [each.base_offset for each in answers[:-1]] == [*range(300)]
            assert answers[-1].high_watermark == 300
            assert interchange.connection_count == 1
        await until(lambda: interchange.connection_count == 0)

    with_links(harness, work)


def test_a_closed_interchange_takes_nobody(harness: Harness) -> None:
    async def work(port: int, interchange: Interchange) -> None:
        async with Program(port) as program:
            await program.ask(program.metadata())
            await interchange.close(drain_ms=5000)
            assert await program.is_closed()
        async with Program(port) as program:
            program.send(program.metadata())
            assert await program.is_closed()

    with_links(harness, work)


def test_requests_under_way_are_answered_before_the_end(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    place("orders", [me, me + 1], isr=[me, me + 1], leader=me)
    led = harness.partition("orders")

    async def work(port: int, interchange: Interchange) -> None:
        async with Program(port) as program:
            program.send(program.append(batch()), program.metadata())
            await until(lambda: led.log.end_offset == 1)
            closing = asyncio.ensure_future(interchange.close(drain_ms=10_000))
            await asyncio.sleep(0)
            led.log.advance_high_watermark(1)
            led.tell_of_change()
            assert (await program.receive()).base_offset == 0
            assert await program.is_closed()  # what was not begun is not
            await closing

    with_links(harness, work)


def test_a_node_that_stops_drains_them_with_kafka_s_clients(harness: Harness) -> None:
    async def work(port: int, interchange: Interchange) -> None:
        async with Program(port) as program:
            await program.ask(program.metadata())
            await harness.node.drain()
            assert await program.is_closed()
        assert interchange.connection_count == 0

    with_links(harness, work)


@pytest.mark.slow
def test_appends_that_wait_hold_none_of_their_records(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    place("orders", [me, me + 1], isr=[me, me + 1], leader=me)
    led = harness.partition("orders")
    records = batch(bytes(900_000))

    async def work(program: Program) -> int:
        program.send(*[program.append(records) for _ in range(20)])
        await until(lambda: led.log.end_offset == 20)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        program.writer.transport.abort()
        await until(lambda: not harness.node.traffic.connections)
        led.log.advance_high_watermark(20)
        led.tell_of_change()
        return held

    tracemalloc.start()
    try:
        assert talk(harness, work) < 10_000_000
    finally:
        tracemalloc.stop()
