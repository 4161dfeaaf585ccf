"""DescribeDelegationToken: API key 41, versions 1 to 3.

KIP-48. The tokens that the named users own, requested or may renew; all tokens if the request has
null in place of a list, none if the list is empty. With an authorizer, a client sees those that it
has itself to do with, and those that ACLs show it (`server.rights.tokens`). HMACs are shown, as in
Kafka: whoever may describe a token can use it.

The work is in `security.delegation_tokens`.
"""

from collections.abc import Coroutine, Iterable
from typing import Any, Final

from headrace.errors import ErrorCode, KafkaError
from headrace.loop.slices import Slice, Slices, in_slices
from headrace.metadata.state import DelegationToken
from headrace.security.delegation_tokens import DelegationTokens, is_one_of
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.server.token_requests import may_ask, name_requester, split
from headrace.wire.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from headrace.wire.messages.describe_delegation_token_response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)

ROW_UNITS: Final = 4
"""How long a row takes, as `loop.slices` counts it: most of it is the HMAC."""
RENEWERS_PER_UNIT: Final = 16
"""How many renewers are looked up in the time of a unit."""


def handle(
    broker: Broker, request: Request
) -> DescribeDelegationTokenResponse | Coroutine[Any, Any, DescribeDelegationTokenResponse]:
    if not may_ask(request.peer):
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "delegation tokens are for clients that authenticated without one",
        )
    tokens = broker.delegation_tokens
    if tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "there is no secret for tokens")
    known = tuple(broker.image.state.delegation_tokens.values())
    return in_slices(describe(tokens, known, request.body, request.version))


def describe(
    tokens: DelegationTokens,
    known: Iterable[DelegationToken],
    body: DescribeDelegationTokenRequest,
    version: int,
) -> Slices[DescribeDelegationTokenResponse]:
    """Return the rows of the tokens that a request asks for.

    Each token is looked at once, however many users are named.
    """
    current = Slice()
    owners: set[str] | None = None
    if body.owners is not None:
        owners = set()
        for named in body.owners:
            owners.add(f"{named.principal_type}:{named.principal_name}")
            if current.spend():
                yield
    rows = []
    for token in known if owners is None or owners else ():
        units = 1 + len(token.renewers) // RENEWERS_PER_UNIT
        if owners is None or is_one_of(token, owners):
            rows.append(_row(tokens, token, version))
            units += ROW_UNITS + len(token.renewers)
        if current.spend(units):
            yield
    return DescribeDelegationTokenResponse(tokens=rows)


def _row(
    tokens: DelegationTokens, token: DelegationToken, version: int
) -> DescribedDelegationToken:
    owner_type, owner_name = split(token.owner)
    row = DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=tokens.hmac_of(token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(split, token.renewers)
        ],
    )
    name_requester(row, token.requester, version)
    return row
