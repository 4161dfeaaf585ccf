"""SaslHandshake: API key 17, version 1.

KIP-43, KIP-152 (tokens in SaslAuthenticate). Chooses the mechanism of an exchange, the first one of
a connection or a later one (KIP-368). Refused where a listener has no SASL, in the middle of an
exchange, and for another mechanism than before; all of that ends the connection.

Left out: version 0, after which tokens come without any header.
The work is in `security.authentication`.
"""

from headrace.errors import ErrorCode
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.messages.sasl_handshake_response import SaslHandshakeResponse


def handle(broker: Broker, request: Request) -> SaslHandshakeResponse:
    body: SaslHandshakeRequest = request.body
    authentication = request.peer.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    code = authentication.handshake(body.mechanism)
    if code != ErrorCode.NONE:
        broker.counters.authentications_failed += 1
        if broker.audit is not None:
            broker.audit.not_authenticated(request.peer, "", "", code.name)
        request.peer.finish(f"a SASL handshake was refused ({code.name})")
    return SaslHandshakeResponse(error_code=code, mechanisms=authentication.names)
