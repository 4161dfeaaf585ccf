"""SaslAuthenticate: API key 36, versions 0 to 2.

KIP-152, KIP-368 (the lifetime of a session, from 1). Takes a token of the exchange that a handshake
began. When the client has proved who it is, its next request is served as that user's. A failure is
answered after connection.failed.authentication.delay.ms and ends the connection.

The work is in `security.authentication` and the mechanisms beside it.
"""

import asyncio
import logging

from headrace.errors import ErrorCode
from headrace.security.authentication import AuthenticationFailed
from headrace.server.broker import Broker
from headrace.server.request import LATER, Answer, Request
from headrace.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse

logger = logging.getLogger(__name__)


def handle(broker: Broker, request: Request) -> Answer:
    body: SaslAuthenticateRequest = request.body
    peer, authentication = request.peer, request.peer.authentication
    if authentication is None:
        return _illegal("SaslAuthenticate on a listener without SASL")
    if not authentication.is_exchanging:
        broker.counters.authentications_failed += 1
        peer.finish("SaslAuthenticate without a handshake")
        return _illegal("SaslAuthenticate without a SaslHandshake before")
    try:
        done = authentication.step(bytes(body.auth_bytes), broker.clock.now_ms())
    except AuthenticationFailed as error:
        broker.counters.authentications_failed += 1
        if broker.audit is not None:
            broker.audit.not_authenticated(
                peer, authentication.mechanism, authentication.claimed, str(error)
            )
        _refuse_later(request, str(error))
        return LATER
    if done.is_done:
        broker.counters.authentications_succeeded += 1
        peer.on_authenticated()
        if broker.audit is not None:
            broker.audit.authenticated(peer, authentication.mechanism)
    return SaslAuthenticateResponse(
        error_message=None, auth_bytes=done.reply, session_lifetime_ms=done.lifetime_ms
    )


def _illegal(message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)


def _refuse_later(request: Request, message: str) -> None:
    """Answer after the delay that a failed attempt costs, and close the connection."""
    peer = request.peer

    def refuse() -> None:
        if peer.is_closed:
            return
        request.on_drain = None
        peer.finish(message)  # first: an answer would let the next request in
        request.answer(
            SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message
            )
        )

    loop = asyncio.get_running_loop()
    timer = loop.call_later(peer.failure_delay_ms / 1000, refuse)
    peer.on_close[timer.cancel] = None
    request.on_drain = refuse
