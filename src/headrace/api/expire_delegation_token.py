"""ExpireDelegationToken: API key 40, versions 1 and 2.

KIP-48. A token's owner and its renewers may end it: at once with a negative period, which also
removes one that has expired, or later.

The work is in `security.delegation_tokens` and `metadata.rights`.
"""

from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.ddl import ChangeTokenExpiry, Ddl, RemoveDelegationToken
from headrace.security.delegation_tokens import is_over, later, may_renew
from headrace.server.broker import Broker
from headrace.server.proposals import propose_each
from headrace.server.request import Request
from headrace.server.token_requests import NO_TIME, find_token, may_ask
from headrace.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from headrace.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse

TIMEOUT_MS: Final = 30_000
"""How long a change may take; the request does not say."""


async def handle(broker: Broker, request: Request) -> ExpireDelegationTokenResponse:
    body: ExpireDelegationTokenRequest = request.body
    if not may_ask(request.peer):
        return ExpireDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIME
        )
    token = await find_token(broker, bytes(body.hmac))
    now_ms = broker.clock.now_ms()
    if not may_renew(token, request.peer.principal):
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
            "a delegation token is ended by its owner and its renewers",
        )
    if body.expiry_time_period_ms < 0:
        expiry_ms = now_ms
        change: Ddl = RemoveDelegationToken(token.token_id)
    elif is_over(token, now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "the delegation token has expired")
    else:
        expiry_ms = min(token.max_ms, later(now_ms, body.expiry_time_period_ms))
        change = ChangeTokenExpiry(token.token_id, expiry_ms)
    (problem,) = await propose_each(broker, [change], TIMEOUT_MS, request)
    if problem is not None:
        raise KafkaError(problem.code, problem.message)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
