"""What the requests about delegation tokens share: who may send them, and looking tokens up."""

import asyncio
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.state import DelegationToken
from headrace.security.delegation_tokens import DelegationTokens
from headrace.security.principals import ANONYMOUS
from headrace.server.broker import Broker
from headrace.server.request import Peer, Request
from headrace.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
from headrace.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
from headrace.wire.messages.describe_delegation_token_response import DescribedDelegationToken

NO_TIME: Final = -1
"""The timestamps of a response without a token."""
REQUESTERS_SINCE: Final = 3
"""The first version whose responses say who requested a token."""


def may_ask(peer: Peer) -> bool:
    """Return whether a client may send requests about tokens at all.

    It has to have authenticated, and with something better than a token: otherwise whoever finds a
    token could have others made that outlive it.
    """
    if peer.authentication is not None:
        return not peer.authentication.is_token
    return peer.principal != ANONYMOUS


def owner_of(body: CreateDelegationTokenRequest, requester: str) -> str:
    """Return whose token it is to be: the requester's, unless another owner is named (KIP-373)."""
    if not body.owner_principal_name:
        return requester
    return f"{body.owner_principal_type}:{body.owner_principal_name}"


def split(principal: str) -> tuple[str, str]:
    """Return a principal's type and name."""
    kind, _, name = principal.partition(":")
    return kind, name


def not_created(request: Request, code: ErrorCode) -> CreateDelegationTokenResponse:
    """Return the response without a token, as Kafka fills it in."""
    requester = request.peer.principal
    owner_type, owner_name = split(owner_of(request.body, requester))
    response = CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
    )
    name_requester(response, requester, request.version)
    return response


def name_requester(
    row: CreateDelegationTokenResponse | DescribedDelegationToken, requester: str, version: int
) -> None:
    """Put the requester into a row, if its version has room for one."""
    if version >= REQUESTERS_SINCE:
        kind, name = split(requester)
        row.token_requester_principal_type = kind
        row.token_requester_principal_name = name


async def all_indexed(tokens: DelegationTokens) -> None:
    """Return when every token of the image can be found by its HMAC."""
    while not tokens.index():
        await asyncio.sleep(0)


async def find_token(broker: Broker, made: bytes) -> DelegationToken:
    """Return the token with an HMAC; KafkaError if there is none, or no tokens at all."""
    tokens = broker.delegation_tokens
    if tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "there is no secret for tokens")
    await all_indexed(tokens)
    found = tokens.find(made)
    if found is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "there is no such delegation token")
    return found
