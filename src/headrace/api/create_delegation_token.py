"""CreateDelegationToken: API key 38, versions 1 to 3.

KIP-48, KIP-373 (a token for another user, from 3). The response has the token's HMAC, its password;
the metadata log does not (`security.delegation_tokens`). Only users own tokens and renew them:
Kafka takes owners of other types as well, and lets them log in as the user of that name.

Different from Kafka: POLICY_VIOLATION for one token more of an owner than
headrace.delegation.tokens.max.

The work is in `metadata.rights`.
"""

from typing import Final

from headrace import config
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId, topic_id_text
from headrace.metadata.ddl import SetDelegationToken
from headrace.metadata.state import DelegationToken
from headrace.security.delegation_tokens import is_user, later, lifetime
from headrace.server.broker import Broker
from headrace.server.proposals import propose_each
from headrace.server.request import Request
from headrace.server.token_requests import all_indexed, may_ask, not_created, owner_of, split
from headrace.surroundings import new_uuid
from headrace.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
from headrace.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse

RENEWERS_MAX: Final = 1000
NAME_CHARACTERS_MAX: Final = 1024
"""The length of an owner's and a renewer's name."""
NAMES_CHARACTERS_MAX: Final = 65_536
"""The length of these names together: every node has all tokens in memory."""
TIMEOUT_MS: Final = 30_000
"""How long a change may take; the request does not say."""


async def handle(broker: Broker, request: Request) -> CreateDelegationTokenResponse:
    body: CreateDelegationTokenRequest = request.body
    requester = request.peer.principal
    owner = owner_of(body, requester)
    if not may_ask(request.peer):
        return not_created(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    kinds = [split(owner)[0], *(row.principal_type for row in body.renewers)]
    if not all(map(is_user, kinds)):
        return not_created(request, ErrorCode.INVALID_PRINCIPAL_TYPE)
    tokens = broker.delegation_tokens
    if tokens is None:
        return not_created(request, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    names = (owner, *(row.principal_name for row in body.renewers))
    lengths = tuple(map(len, names))
    if (
        len(names) > RENEWERS_MAX + 1
        or max(lengths) > NAME_CHARACTERS_MAX
        or sum(lengths) > NAMES_CHARACTERS_MAX
    ):
        return not_created(request, ErrorCode.INVALID_REQUEST)
    await all_indexed(tokens)
    if not tokens.is_allowed_another(owner, broker.settings[config.DELEGATION_TOKENS_MAX]):
        return not_created(request, ErrorCode.POLICY_VIOLATION)
    token = _new_token(broker, body, owner, requester)
    with tokens.making(owner):
        (problem,) = await propose_each(broker, [SetDelegationToken(token)], TIMEOUT_MS, request)
    if problem is not None:
        raise KafkaError(problem.code, problem.message)
    response = not_created(request, ErrorCode.NONE)
    response.token_id, response.hmac = token.token_id, tokens.hmac_of(token.token_id)
    response.issue_timestamp_ms = token.issue_ms
    response.expiry_timestamp_ms = token.expiry_ms
    response.max_timestamp_ms = token.max_ms
    return response


def _new_token(
    broker: Broker, body: CreateDelegationTokenRequest, owner: str, requester: str
) -> DelegationToken:
    settings, now_ms = broker.settings, broker.clock.now_ms()
    max_ms = later(
        now_ms, lifetime(body.max_lifetime_ms, settings[config.DELEGATION_TOKEN_MAX_LIFETIME_MS])
    )
    renewed_ms = later(now_ms, settings[config.DELEGATION_TOKEN_EXPIRY_TIME_MS])
    token_id = topic_id_text(TopicId(new_uuid().bytes))
    while token_id.startswith("-"):  # tools would take it for an option
        token_id = topic_id_text(TopicId(new_uuid().bytes))
    return DelegationToken(
        token_id,
        owner,
        requester,
        tuple(f"{row.principal_type}:{row.principal_name}" for row in body.renewers),
        now_ms,
        max_ms,
        min(max_ms, renewed_ms),
        b"",
    )
