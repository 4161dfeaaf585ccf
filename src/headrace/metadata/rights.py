"""ACLs, SCRAM credentials, quotas and delegation tokens: what their DDL does to the image."""

from math import isfinite

from headrace.errors import ErrorCode
from headrace.metadata.ddl import (
    AddAcls,
    RemoveAcls,
    RemoveDelegationToken,
    RemoveScramCredential,
    SetDelegationToken,
    SetQuota,
    SetScramCredential,
)
from headrace.metadata.errors import refuse
from headrace.metadata.events import (
    AclsChanged,
    DelegationTokenChanged,
    Event,
    QuotaChanged,
    ScramCredentialChanged,
)
from headrace.metadata.image import Image
from headrace.metadata.state import Acl, AclPattern


def add_acls(image: Image, ddl: AddAcls) -> list[Event]:
    """Add ACLs; one that is there already stays."""
    added = 0
    for pattern, wanted in _by_pattern(ddl.acls).items():
        present = image.state.acls.get(pattern, ())
        new = tuple(acl for acl in wanted if acl not in present)
        if new:
            image.put_acls(pattern, present + new)
            added += len(new)
    return [AclsChanged(added, 0)] if added else []


def remove_acls(image: Image, ddl: RemoveAcls) -> list[Event]:
    """Remove exactly these ACLs; one that is not there is none to remove."""
    removed = 0
    for pattern, unwanted in _by_pattern(ddl.acls).items():
        present = image.state.acls.get(pattern, ())
        kept = tuple(acl for acl in present if acl not in unwanted)
        if len(kept) < len(present):
            image.put_acls(pattern, kept)
            removed += len(present) - len(kept)
    return [AclsChanged(0, removed)] if removed else []


def set_scram_credential(image: Image, ddl: SetScramCredential) -> list[Event]:
    image.state.scram_credentials[ddl.user, ddl.mechanism] = ddl.credential
    return [ScramCredentialChanged(ddl.user, ddl.mechanism)]


def remove_scram_credential(image: Image, ddl: RemoveScramCredential) -> list[Event]:
    if image.state.scram_credentials.pop((ddl.user, ddl.mechanism), None) is None:
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


def remove_delegation_token(image: Image, ddl: RemoveDelegationToken) -> list[Event]:
    if image.state.delegation_tokens.pop(ddl.token_id, None) is None:
        raise refuse(
            ErrorCode.DELEGATION_TOKEN_NOT_FOUND, f"there is no delegation token {ddl.token_id}"
        )
    return [DelegationTokenChanged(ddl.token_id)]


def expire_delegation_tokens(image: Image, now_ms: int) -> list[Event]:
    """Drop tokens that have expired by then."""
    tokens = image.state.delegation_tokens
    over = [token.token_id for token in tokens.values() if token.expiry_ms <= now_ms]
    for token_id in over:
        del tokens[token_id]
    return [DelegationTokenChanged(token_id) for token_id in over]


def _by_pattern(acls: tuple[Acl, ...]) -> dict[AclPattern, list[Acl]]:
    grouped: dict[AclPattern, list[Acl]] = {}
    for acl in acls:
        same = grouped.setdefault(acl.pattern, [])
        if acl not in same:
            same.append(acl)
    return grouped
