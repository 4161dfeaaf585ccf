"""ACLs, SCRAM credentials, quotas and delegation tokens: what their DDL does to the image."""

from itertools import islice
from math import isfinite
from typing import Final

from msgspec.structs import replace

from headrace.errors import ErrorCode
from headrace.metadata.ddl import (
    AddAcls,
    ChangeTokenExpiry,
    RemoveAcls,
    RemoveDelegationToken,
    RemoveScramCredential,
    SetDelegationToken,
    SetQuota,
    SetScramCredential,
)
from headrace.metadata.errors import Refused, refuse
from headrace.metadata.events import (
    AclsChanged,
    DelegationTokenChanged,
    Event,
    QuotaChanged,
    ScramCredentialChanged,
)
from headrace.metadata.image import Image
from headrace.metadata.state import Acl, AclPattern

EXPIRED_AT_ONCE: Final = 200
"""How many delegation tokens an entry drops at most: applying it blocks the loop."""


def add_acls(image: Image, ddl: AddAcls) -> list[Event]:
    """Add ACLs; one that is there already stays."""
    added = 0
    for pattern, wanted in _by_pattern(ddl.acls).items():
        new = tuple(acl for acl in wanted if not image.acls.has(acl))
        if new:
            image.acls.add(pattern, new)
            added += len(new)
    return [AclsChanged(added, 0)] if added else []


def remove_acls(image: Image, ddl: RemoveAcls) -> list[Event]:
    """Remove exactly these ACLs; one that is not there is none to remove."""
    removed = 0
    for pattern, unwanted in _by_pattern(ddl.acls).items():
        gone = frozenset(acl for acl in unwanted if image.acls.has(acl))
        if gone:
            image.acls.remove(pattern, gone)
            removed += len(gone)
    return [AclsChanged(0, removed)] if removed else []


def set_scram_credential(image: Image, ddl: SetScramCredential) -> list[Event]:
    image.put_scram_credential(ddl.user, ddl.mechanism, ddl.credential)
    return [ScramCredentialChanged(ddl.user, ddl.mechanism)]


def remove_scram_credential(image: Image, ddl: RemoveScramCredential) -> list[Event]:
    if not image.remove_scram_credential(ddl.user, ddl.mechanism):
        raise refuse(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"user {ddl.user} has no SCRAM credential of mechanism {ddl.mechanism}",
        )
    return [ScramCredentialChanged(ddl.user, ddl.mechanism)]


def set_quota(image: Image, ddl: SetQuota) -> list[Event]:
    """Set or take away a limit; refused for an entity that is not in its one form."""
    types = [entity_type for entity_type, _ in ddl.entity]
    if not types or types != sorted(set(types)):
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"quota entity {ddl.entity}: at least one type, each once and in their order",
        )
    if ddl.value is not None and not isfinite(ddl.value):
        raise refuse(ErrorCode.INVALID_CONFIG, f"quota {ddl.key}={ddl.value} is no limit")
    limits = {**image.quotas(ddl.entity)}
    if limits.get(ddl.key) == ddl.value:
        return []
    if ddl.value is None:
        del limits[ddl.key]
    else:
        limits[ddl.key] = ddl.value
    if limits:
        image.state.quotas[ddl.entity] = limits
    else:
        del image.state.quotas[ddl.entity]
    return [QuotaChanged(ddl.entity, ddl.key)]


def set_delegation_token(image: Image, ddl: SetDelegationToken) -> list[Event]:
    image.state.delegation_tokens[ddl.token.token_id] = ddl.token
    return [DelegationTokenChanged(ddl.token.token_id)]


def change_token_expiry(image: Image, ddl: ChangeTokenExpiry) -> list[Event]:
    """Change when a token expires, up to the time until which it can be renewed."""
    token = image.delegation_token(ddl.token_id)
    if token is None:
        raise _no_token(ddl.token_id)
    changed = replace(token, expiry_ms=min(ddl.expiry_ms, token.max_ms))
    image.state.delegation_tokens[ddl.token_id] = changed
    return [DelegationTokenChanged(ddl.token_id)]


def remove_delegation_token(image: Image, ddl: RemoveDelegationToken) -> list[Event]:
    if image.state.delegation_tokens.pop(ddl.token_id, None) is None:
        raise _no_token(ddl.token_id)
    return [DelegationTokenChanged(ddl.token_id)]


def _no_token(token_id: str) -> Refused:
    return refuse(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, f"there is no delegation token {token_id}")


def expire_delegation_tokens(image: Image, now_ms: int) -> list[Event]:
    """Drop some of the tokens that have expired by then: another entry drops the next.

    Their order is that of their creation, on every node.
    """
    tokens = image.state.delegation_tokens
    expired = (token.token_id for token in tokens.values() if token.expiry_ms <= now_ms)
    over = list(islice(expired, EXPIRED_AT_ONCE))
    for token_id in over:
        del tokens[token_id]
    return [DelegationTokenChanged(token_id) for token_id in over]


def _by_pattern(acls: tuple[Acl, ...]) -> dict[AclPattern, dict[Acl, None]]:
    """Return the ACLs of each pattern, in their order and each once."""
    grouped: dict[AclPattern, dict[Acl, None]] = {}
    for acl in acls:
        grouped.setdefault(acl.pattern, {})[acl] = None
    return grouped
