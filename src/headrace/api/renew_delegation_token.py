"""RenewDelegationToken: API key 39, versions 1 and 2.

KIP-48. A token's owner and its renewers may renew it, as long as it is valid, and up to the end of
its longest life.

The work is in `security.delegation_tokens` and `metadata.rights`.
"""

from typing import Final

from headrace import config
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.ddl import ChangeTokenExpiry
from headrace.security.delegation_tokens import is_over, later, lifetime, may_renew
from headrace.server.broker import Broker
from headrace.server.proposals import propose_each
from headrace.server.request import Request
from headrace.server.token_requests import NO_TIME, find_token, may_ask
from headrace.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from headrace.wire.messages.renew_delegation_token_response import RenewDelegationTokenResponse

TIMEOUT_MS: Final = 30_000
"""How long a change may take; the request does not say."""


async def handle(broker: Broker, request: Request) -> RenewDelegationTokenResponse:
    body: RenewDelegationTokenRequest = request.body
    if not may_ask(request.peer):
        return RenewDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIME
        )
    token = await find_token(broker, bytes(body.hmac))
    now_ms = broker.clock.now_ms()
    if is_over(token, now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "the delegation token has expired")
    if not may_renew(token, request.peer.principal):
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
            "a delegation token is renewed by its owner and its renewers",
        )
    longest_ms = broker.settings[config.DELEGATION_TOKEN_EXPIRY_TIME_MS]
    expiry_ms = min(token.max_ms, later(now_ms, lifetime(body.renew_period_ms, longest_ms)))
    change = ChangeTokenExpiry(token.token_id, expiry_ms)
    (problem,) = await propose_each(broker, [change], TIMEOUT_MS, request)
    if problem is not None:
        raise KafkaError(problem.code, problem.message)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
