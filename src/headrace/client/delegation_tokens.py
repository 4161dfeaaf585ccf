"""Delegation tokens: what stands in for a user's password, for a while (KIP-48, KIP-373)."""

import base64
from collections.abc import Sequence

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.errors import raise_for
from headrace.sasl.secret import Secret
from headrace.wire.messages.create_delegation_token_request import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from headrace.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
from headrace.wire.messages.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from headrace.wire.messages.describe_delegation_token_response import (
    DescribeDelegationTokenResponse,
)
from headrace.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from headrace.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from headrace.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from headrace.wire.messages.renew_delegation_token_response import RenewDelegationTokenResponse
from headrace.wire.schema import Buffer

NOT_SAID = -1
"""In place of a duration: as long as the broker allows."""


class DelegationToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token. A client that logs in with it is its owner."""

    token_id: str
    """The user name of SCRAM."""
    password: Secret
    """The HMAC in Base64: the password of SCRAM, and what renews and ends the token."""
    owner: str
    """As `User:alice`."""
    requester: str = ""
    """The principal that created it; empty from brokers that do not report it."""
    renewers: tuple[str, ...] = ()
    issued_ms: int
    expires_ms: int
    """When it ends, unless it is renewed."""
    max_ms: int
    """When it ends in any case."""


async def create_token(
    cluster: Cluster,
    *,
    owner: str | None = None,
    renewers: Sequence[str] = (),
    max_lifetime_ms: int = NOT_SAID,
) -> DelegationToken:
    """Return a new token, one's own unless an owner is named; principals are `User:NAME`."""
    owner_type, owner_name = ("", "") if owner is None else _split(owner)
    body = CreateDelegationTokenRequest(
        owner_principal_type=owner_type,
        owner_principal_name=owner_name,
        renewers=[
            CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, name in map(_split, renewers)
        ],
        max_lifetime_ms=max_lifetime_ms,
    )
    answer = await cluster.ask(
        body, CreateDelegationTokenResponse, code_of=lambda answer: answer.error_code
    )
    raise_for(answer.error_code, None, "the delegation token")
    return DelegationToken(
        token_id=answer.token_id,
        password=_password(answer.hmac),
        owner=_principal(answer.principal_type, answer.principal_name),
        requester=_principal(
            answer.token_requester_principal_type, answer.token_requester_principal_name
        ),
        renewers=tuple(renewers),
        issued_ms=answer.issue_timestamp_ms,
        expires_ms=answer.expiry_timestamp_ms,
        max_ms=answer.max_timestamp_ms,
    )


async def list_tokens(
    cluster: Cluster, owners: Sequence[str] | None = None
) -> list[DelegationToken]:
    """Return the tokens that one may see, or those of some users."""
    rows = None
    if owners is not None:
        rows = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in map(_split, owners)
        ]
    answer = await cluster.ask(
        DescribeDelegationTokenRequest(owners=rows),
        DescribeDelegationTokenResponse,
        code_of=lambda answer: answer.error_code,
    )
    raise_for(answer.error_code, None, "the list of delegation tokens")
    return [
        DelegationToken(
            token_id=row.token_id,
            password=_password(row.hmac),
            owner=_principal(row.principal_type, row.principal_name),
            requester=_principal(
                row.token_requester_principal_type, row.token_requester_principal_name
            ),
            renewers=tuple(
                _principal(each.principal_type, each.principal_name) for each in row.renewers
            ),
            issued_ms=row.issue_timestamp,
            expires_ms=row.expiry_timestamp,
            max_ms=row.max_timestamp,
        )
        for row in answer.tokens
    ]


async def renew_token(cluster: Cluster, password: Secret | str, period_ms: int = NOT_SAID) -> int:
    """Renew a token; return when it ends now."""
    body = RenewDelegationTokenRequest(hmac=_hmac(password), renew_period_ms=period_ms)
    answer = await cluster.ask(
        body, RenewDelegationTokenResponse, code_of=lambda answer: answer.error_code
    )
    raise_for(answer.error_code, None, "the delegation token")
    return answer.expiry_timestamp_ms


async def expire_token(cluster: Cluster, password: Secret | str, period_ms: int = NOT_SAID) -> int:
    """End a token at once, or after a period that is not negative; return when it ends."""
    body = ExpireDelegationTokenRequest(hmac=_hmac(password), expiry_time_period_ms=period_ms)
    answer = await cluster.ask(
        body, ExpireDelegationTokenResponse, code_of=lambda answer: answer.error_code
    )
    raise_for(answer.error_code, None, "the delegation token")
    return answer.expiry_timestamp_ms


def _password(made: Buffer) -> Secret:
    return Secret(base64.b64encode(bytes(made)).decode("ascii"))


def _hmac(password: Secret | str) -> bytes:
    """Return the bytes of an HMAC in Base64; ValueError if it is none."""
    text = password if isinstance(password, str) else password.reveal()
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("the HMAC of a delegation token is in Base64") from None


def _split(principal: str) -> tuple[str, str]:
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{principal!r} is not a principal: write User:NAME")
    return kind, name


def _principal(kind: str, name: str) -> str:
    return f"{kind}:{name}" if name else ""
