"""SASL on a connection: refusals, re-authentication, and secrets that stay secret."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable

import pytest

from headrace.client.errors import AuthenticationFailed, ClientError, NotReachable
from headrace.client.security import authentication
from headrace.client.security.authentication import authenticate
from headrace.client.security.settings import ClientSecurity, SaslSettings, TokenCallback
from headrace.client.settings import ClientSettings
from headrace.errors import ErrorCode, HeadraceError
from headrace.sasl import scram
from headrace.wire import ApiKey
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.list_groups_response import ListGroupsResponse
from headrace.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from headrace.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from headrace.wire.schema import Message
from tests.unit.client.connection_peer import Peer, negotiated
from tests.unit.client.loops import on_a_loop

CANARY = "canary-77aa01"
KEYS = ((ApiKey.SASL_HANDSHAKE, 0, 1), (ApiKey.SASL_AUTHENTICATE, 0, 2), (ApiKey.LIST_GROUPS, 0, 4))
ACCEPTED = SaslHandshakeResponse(mechanisms=["PLAIN"])


def sasl(mechanism: str = "PLAIN") -> SaslSettings:
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "ann",
        "sasl.password": CANARY,
    }
    found = ClientSecurity.of(given).sasl
    assert found is not None
    return found


def oauth(token: TokenCallback) -> SaslSettings:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    found = ClientSecurity.of(given, token=token).sasl
    assert found is not None
    return found


async def turn(peer: Peer, requests: int) -> Message:
    """Wait until a peer has received so many requests; return the last."""
    async with asyncio.timeout(60):
        while len(peer.requests) < requests:
            await asyncio.sleep(0.001)  # polls, up to the deadline
    assert len(peer.requests) == requests
    return peer.requests[-1][1]


async def logged_in(settings: SaslSettings, lifetime_ms: int = 0) -> Peer:
    peer = await negotiated(*KEYS)
    working = asyncio.create_task(authenticate(peer.connection, settings))
    await turn(peer, 2)
    peer.answer(1, ACCEPTED)
    sent = await turn(peer, 3)
    assert isinstance(sent, SaslAuthenticateRequest)
    peer.answer(2, SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms))
    await working
    return peer


@on_a_loop
async def test_requests_wait_while_the_session_is_renewed_and_those_in_flight_are_answered() -> (
    None
):
    peer = await logged_in(sasl(), lifetime_ms=200)
    connection = peer.connection
    early = asyncio.create_task(connection.request(ListGroupsRequest(), ListGroupsResponse))
    await turn(peer, 4)
    await turn(peer, 5)  # the handshake of the renewal
    late = asyncio.create_task(connection.request(ListGroupsRequest(), ListGroupsResponse))
    connection.pause_writing()
    connection.resume_writing()  # a socket with room again must not end the wait
    await asyncio.sleep(0.01)
    assert len(peer.requests) == 5
    peer.answer(3, ListGroupsResponse())
    assert await early == ListGroupsResponse()
    peer.answer(4, ACCEPTED)
    await turn(peer, 6)
    assert not late.done()
    peer.answer(5, SaslAuthenticateResponse(session_lifetime_ms=3_600_000))
    await turn(peer, 7)
    peer.answer(6, ListGroupsResponse())
    assert await late == ListGroupsResponse()
    connection.close()


@on_a_loop
async def test_a_refused_renewal_ends_the_connection_and_says_why() -> None:
    peer = await logged_in(sasl(), lifetime_ms=50)
    await turn(peer, 4)
    waiting = asyncio.create_task(peer.connection.request(ListGroupsRequest(), ListGroupsResponse))
    peer.answer(3, ACCEPTED)
    await turn(peer, 5)
    refused = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="Gone."
    )
    peer.answer(4, refused)
    with pytest.raises(AuthenticationFailed, match=r"'ann'.*Gone; check sasl"):
        await waiting
    assert not peer.connection.is_open


@on_a_loop
async def test_a_closed_connection_renews_nothing() -> None:
    peer = await logged_in(sasl(), lifetime_ms=20)
    peer.connection.close()
    await asyncio.sleep(0.05)
    assert len(peer.requests) == 3


async def _refused(answers: list[Message]) -> HeadraceError:
    peer = await negotiated(*KEYS, settings=ClientSettings())
    working = asyncio.create_task(authenticate(peer.connection, sasl("SCRAM-SHA-256")))
    for number, answer in enumerate(answers, start=1):
        await turn(peer, number + 1)
        peer.answer(number, answer)
    with pytest.raises(HeadraceError) as failed:
        await working
    return failed.value


@on_a_loop
async def test_a_missing_mechanism_is_refused_with_those_there_are() -> None:
    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
    error = await _refused([SaslHandshakeResponse(error_code=code, mechanisms=["PLAIN", "GSSAPI"])])
    assert isinstance(error, AuthenticationFailed)
    assert not error.is_retriable
    assert "SCRAM-SHA-256 enabled; it has PLAIN, GSSAPI" in str(error)


@on_a_loop
async def test_a_server_that_skips_its_proof_is_not_believed() -> None:
    """A server that answers the challenge with success at once does not know the password."""
    error = await _refused([ACCEPTED, SaslAuthenticateResponse(auth_bytes=b"")])
    assert isinstance(error, AuthenticationFailed)
    assert "not the server's first message" in str(error)


@on_a_loop
async def test_a_token_comes_from_a_function_for_each_authentication() -> None:
    def plain() -> str:
        return "from-a-thread"

    async def coroutine() -> str:
        return "from-the-loop"

    for function, token in ((plain, b"from-a-thread"), (coroutine, b"from-the-loop")):
        peer = await logged_in(oauth(function))
        sent = peer.requests[2][1]
        assert isinstance(sent, SaslAuthenticateRequest)
        assert token in bytes(sent.auth_bytes)
        peer.connection.close()


@on_a_loop
async def test_a_function_for_tokens_that_fails_is_an_authentication_failure() -> None:
    def fails() -> str:
        raise KeyError(CANARY)

    def wrong() -> str:
        return b"bytes"  # type: ignore[return-value]

    for function in (fails, wrong):
        peer = await negotiated(*KEYS)
        working = asyncio.create_task(authenticate(peer.connection, oauth(function)))
        await turn(peer, 2)
        peer.answer(1, ACCEPTED)
        with pytest.raises(AuthenticationFailed, match="the function for tokens") as failed:
            await working
        assert CANARY not in str(failed.value)
        peer.connection.close()


async def _lost(peer: Peer) -> None:
    peer.connection.connection_lost(ConnectionResetError())


async def _too_late(peer: Peer) -> None:
    peer.connection.fail(NotReachable("too late"))


async def _refuses(peer: Peer) -> None:
    code = ErrorCode.SASL_AUTHENTICATION_FAILED
    peer.answer(2, SaslAuthenticateResponse(error_code=code, error_message="no"))


async def _challenges(peer: Peer) -> None:
    peer.answer(2, SaslAuthenticateResponse(auth_bytes=b"r=x,s=c2FsdA==,i=4096"))


@pytest.mark.parametrize("happens", [_lost, _too_late, _refuses, _challenges])
@pytest.mark.parametrize("mechanism", ["PLAIN", *scram.MECHANISMS, "OAUTHBEARER"])
def test_no_failure_shows_a_secret_even_in_a_traceback_with_locals(
    mechanism: str, happens: Callable[[Peer], Awaitable[None]]
) -> None:
    async def run() -> str:
        settings = oauth(lambda: CANARY) if mechanism == "OAUTHBEARER" else sasl(mechanism)
        peer = await negotiated(*KEYS)
        working = asyncio.create_task(authenticate(peer.connection, settings))
        await turn(peer, 2)
        peer.answer(1, ACCEPTED)
        await turn(peer, 3)
        await happens(peer)
        if mechanism == "OAUTHBEARER" and happens is _challenges:
            await turn(peer, 4)
            peer.answer(3, SaslAuthenticateResponse())
        with pytest.raises((ClientError, AuthenticationFailed)) as failed:
            await working
        shown = traceback.TracebackException.from_exception(failed.value, capture_locals=True)
        return "".join(shown.format())

    text = asyncio.run(run())
    assert authentication.__name__.rpartition(".")[2] in text
    assert CANARY not in text
