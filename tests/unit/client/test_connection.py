"""Requests and answers of one connection, without a socket."""

import asyncio
import gc
import socket
import weakref

import pytest

from headrace.client.addresses import Address
from headrace.client.connection import Connection, open_connection
from headrace.client.errors import NotReachable, UnsupportedApi
from headrace.client.settings import ClientSettings
from headrace.errors import ErrorCode
from headrace.wire import ApiKey
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.list_groups_response import ListGroupsResponse
from tests.unit.client.connection_peer import Peer, negotiated, versions
from tests.unit.client.loops import on_a_loop


@on_a_loop
async def test_the_newest_version_that_both_know_is_used() -> None:
    peer = await negotiated((ApiKey.LIST_GROUPS, 0, 4))
    asking = asyncio.create_task(peer.connection.request(ListGroupsRequest(), ListGroupsResponse))
    await asyncio.sleep(0)
    assert peer.requests[1][0].request_api_version == 4
    peer.answer(1, ListGroupsResponse())
    assert await asking == ListGroupsResponse()


@on_a_loop
async def test_a_broker_too_old_for_our_first_request_is_asked_again_in_its_own_version() -> None:
    peer = Peer()
    asking = asyncio.create_task(peer.connection.negotiate())
    await asyncio.sleep(0)
    refused = versions((ApiKey.API_VERSIONS, 0, 2), error_code=ErrorCode.UNSUPPORTED_VERSION)
    peer.answer(0, refused, version=0)
    await asyncio.sleep(0)
    assert peer.requests[1][0].request_api_version == 2
    peer.answer(1, versions((ApiKey.API_VERSIONS, 0, 2), (ApiKey.FETCH, 4, 11)))
    await asking
    assert peer.connection.version_of(ApiKey.FETCH) == 11


@on_a_loop
async def test_a_broker_that_lists_nothing_with_its_refusal_is_asked_in_version_0() -> None:
    peer = Peer()
    asking = asyncio.create_task(peer.connection.negotiate())
    await asyncio.sleep(0)
    peer.answer(0, versions(error_code=ErrorCode.UNSUPPORTED_VERSION), version=0)
    await asyncio.sleep(0)
    assert peer.requests[1][0].request_api_version == 0
    peer.answer(1, versions((ApiKey.FETCH, 4, 4)))
    await asking
    assert peer.connection.version_of(ApiKey.FETCH) == 4


@on_a_loop
async def test_what_the_broker_does_not_serve_is_an_error_that_names_it() -> None:
    peer = await negotiated((ApiKey.LIST_GROUPS, 90, 91))
    with pytest.raises(UnsupportedApi, match="broker:9092 does not serve Fetch"):
        peer.connection.version_of(ApiKey.FETCH)
    with pytest.raises(UnsupportedApi, match="versions 90-91"):
        peer.connection.version_of(ApiKey.LIST_GROUPS)


@on_a_loop
async def test_answers_go_to_their_requests_even_if_one_was_given_up() -> None:
    peer = await negotiated((ApiKey.LIST_GROUPS, 0, 4))
    tasks = [
        asyncio.create_task(peer.connection.request(ListGroupsRequest(), ListGroupsResponse))
        for _ in range(3)
    ]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)
    for number in range(3):
        peer.answer(number + 1, ListGroupsResponse(throttle_time_ms=number))
    answers = await asyncio.gather(*tasks[1:])
    assert [answer.throttle_time_ms for answer in answers] == [1, 2]


@on_a_loop
async def test_a_request_that_is_not_answered_in_time_ends_the_connection_for_all() -> None:
    peer = await negotiated(
        (ApiKey.LIST_GROUPS, 0, 4), settings=ClientSettings(request_timeout_ms=20)
    )
    work = [
        peer.connection.request(ListGroupsRequest(), ListGroupsResponse, patience_ms=patience)
        for patience in (0, 60_000)
    ]
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == [
        "broker:9092 did not respond to ListGroups within 20 ms"
    ] * 2
    assert peer.is_gone
    assert not peer.connection.is_open


@on_a_loop
async def test_a_peer_that_hangs_up_fails_what_waits_and_what_comes_after() -> None:
    peer = await negotiated((ApiKey.LIST_GROUPS, 0, 4))
    asking = asyncio.create_task(peer.connection.request(ListGroupsRequest(), ListGroupsResponse))
    await asyncio.sleep(0)
    peer.connection.connection_lost(None)
    with pytest.raises(NotReachable, match="broker:9092 closed the connection"):
        await asking
    with pytest.raises(NotReachable, match="broker:9092"):
        await peer.connection.request(ListGroupsRequest(), ListGroupsResponse)


@on_a_loop
async def test_a_node_whose_name_cannot_be_looked_up_is_not_reachable() -> None:
    """Nodes say of themselves where they are."""
    with pytest.raises(NotReachable, match=r"cannot connect to a\.\.b:9092"):
        await open_connection(Address("a..b", 9092), ClientSettings())


@on_a_loop
async def test_a_peer_that_does_not_speak_kafka_is_called_so() -> None:
    peer = Peer()
    asking = asyncio.create_task(peer.connection.negotiate())
    await asyncio.sleep(0)
    peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(NotReachable, match="does not speak Kafka's protocol"):
        await asking


@on_a_loop
async def test_an_answer_that_nobody_waits_for_ends_the_connection() -> None:
    peer = await negotiated((ApiKey.LIST_GROUPS, 0, 4))
    peer.send(b"\x00\x00\x00\x04\x00\x00\x00\x09")
    assert peer.is_gone
    with pytest.raises(NotReachable, match=r"an unexpected response \(9\)"):
        await peer.connection.request(ListGroupsRequest(), ListGroupsResponse)


@on_a_loop
async def test_an_answer_that_cannot_be_read_names_the_broker_and_the_field() -> None:
    peer = await negotiated((ApiKey.LIST_GROUPS, 0, 4))
    asking = asyncio.create_task(peer.connection.request(ListGroupsRequest(), ListGroupsResponse))
    await asyncio.sleep(0)
    peer.send(b"\x00\x00\x00\x06" + b"\x00\x00\x00\x01" + b"\x00\x00")
    with pytest.raises(NotReachable, match=r"broker:9092 sent an unreadable response: ListGroups"):
        await asking
    assert peer.is_gone


@on_a_loop
async def test_requests_wait_while_the_socket_takes_no_more() -> None:
    peer = await negotiated((ApiKey.LIST_GROUPS, 0, 4))
    peer.connection.pause_writing()
    asking = asyncio.create_task(peer.connection.request(ListGroupsRequest(), ListGroupsResponse))
    await asyncio.sleep(0)
    assert len(peer.requests) == 1
    peer.connection.resume_writing()
    while len(peer.requests) == 1:
        await asyncio.sleep(0)
    peer.answer(1, ListGroupsResponse())
    assert await asking == ListGroupsResponse()


@on_a_loop
async def test_the_receive_buffer_of_a_connection_is_as_large_as_wanted() -> None:
    with socket.socket() as opened:
        before = opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        for wanted, is_set in ((-1, False), (4096, True)):
            settings = ClientSettings(receive_buffer_bytes=wanted)
            connection = Connection(Address("broker", 9092), settings)
            connection.connection_made(asyncio.Transport({"socket": opened}))
            size = opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            assert (size != before) == is_set


def test_a_connection_is_freed_though_its_loop_ended_in_the_middle_of_a_request() -> None:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it says that a task was lost

    async def ask() -> "weakref.ref[Connection]":
        peer = await negotiated((ApiKey.LIST_GROUPS, 0, 4))
        asyncio.create_task(peer.connection.request(ListGroupsRequest(), ListGroupsResponse))  # noqa: RUF006
        await asyncio.sleep(0)
        return weakref.ref(peer.connection)

    found = loop.run_until_complete(ask())
    loop.close()
    del loop
    gc.collect()
    assert found() is None
