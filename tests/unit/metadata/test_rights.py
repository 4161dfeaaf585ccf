import pytest

from headrace.errors import ErrorCode
from headrace.metadata.ddl import (
    AddAcls,
    Expire,
    RemoveAcls,
    RemoveDelegationToken,
    RemoveScramCredential,
    SetDelegationToken,
    SetQuota,
    SetScramCredential,
)
from headrace.metadata.events import AclsChanged
from headrace.metadata.image import LITERAL, PREFIXED
from headrace.metadata.state import Acl, AclPattern, DelegationToken, ScramCredential
from tests.unit.metadata.clusters import Cluster

TOPIC, GROUP = 2, 3
USER = (("user", "ada"),)


def acl(pattern_type: int, name: str, resource: int = TOPIC, principal: str = "User:ada") -> Acl:
    return Acl(AclPattern(resource, pattern_type, name), principal, "*", 3, 3)


EXACT, ALL, PREFIX = acl(LITERAL, "orders"), acl(LITERAL, "*"), acl(PREFIXED, "ord")


def test_acls_match_by_name_by_prefix_and_for_all() -> None:
    cluster = Cluster()
    cluster.propose(
        AddAcls((EXACT, ALL, PREFIX, acl(PREFIXED, "x"), acl(LITERAL, "orders", GROUP)))
    )
    assert cluster.image.acls_for(TOPIC, "orders") == [EXACT, ALL, PREFIX]
    assert cluster.image.acls_for(TOPIC, "ord") == [ALL, PREFIX]
    assert cluster.image.acls_for(TOPIC, "or") == [ALL]
    assert cluster.image.acls_for(TOPIC, "*") == [ALL]
    assert cluster.image.acls_for(GROUP, "ordinary") == []


def test_acls_are_added_and_removed_once() -> None:
    cluster = Cluster()
    other = acl(PREFIXED, "ord", principal="User:bob")
    assert cluster.propose(AddAcls((PREFIX, PREFIX, other))).events == (AclsChanged(2, 0),)
    assert cluster.propose(AddAcls((PREFIX,))).events == ()
    assert cluster.propose(RemoveAcls((PREFIX, EXACT))).events == (AclsChanged(0, 1),)
    assert cluster.image.acls_for(TOPIC, "orders") == [other]
    cluster.propose(RemoveAcls((other,)))
    assert cluster.propose(RemoveAcls((other,))).events == ()
    assert cluster.image.acls_for(TOPIC, "orders") == []
    assert cluster.image.state.acls == {}


def test_scram_credentials_are_per_user_and_mechanism() -> None:
    cluster = Cluster()
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    cluster.propose(SetScramCredential("ada", 1, credential))
    assert cluster.image.scram_credential("ada", 1) == credential
    assert cluster.image.scram_credential("ada", 2) is None
    cluster.refuses_with(ErrorCode.RESOURCE_NOT_FOUND, RemoveScramCredential("ada", 2))
    cluster.propose(RemoveScramCredential("ada", 1))
    assert cluster.image.scram_credential("ada", 1) is None


def test_quotas_are_limits_of_an_entity() -> None:
    cluster = Cluster()
    both = (("client-id", None), ("user", "ada"))
    cluster.propose(SetQuota(USER, "producer_byte_rate", 5.0), SetQuota(both, "rate", 1.5))
    assert cluster.image.quotas(USER) == {"producer_byte_rate": 5.0}
    assert cluster.propose(SetQuota(both, "rate", 1.5)).events == ()
    assert cluster.propose(SetQuota(both, "other", None)).events == ()
    cluster.propose(SetQuota(both, "rate", None))
    assert cluster.image.quotas(both) == {}
    assert list(cluster.image.state.quotas) == [USER]


@pytest.mark.parametrize(
    ("entity", "value"),
    [
        ((), 1.0),
        ((("user", "a"), ("client-id", "b")), 1.0),
        ((("user", "a"), ("user", "b")), 1.0),
        (USER, float("nan")),
        (USER, float("inf")),
    ],
)
def test_quotas_that_mean_nothing_are_refused(
    entity: tuple[tuple[str, str | None], ...], value: float
) -> None:
    Cluster().refuses(SetQuota(entity, "rate", value))


def test_delegation_tokens_are_renewed_removed_and_expire() -> None:
    cluster = Cluster()

    def token(expiry_ms: int) -> DelegationToken:
        return DelegationToken("t1", "User:ada", "User:ada", (), 0, 9000, expiry_ms, b"mac")

    cluster.propose(SetDelegationToken(token(100)), SetDelegationToken(token(200)), Expire(199))
    assert cluster.image.delegation_token("t1") == token(200)
    cluster.propose(Expire(200))
    assert cluster.image.delegation_token("t1") is None
    cluster.refuses_with(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, RemoveDelegationToken("t1"))
    cluster.propose(SetDelegationToken(token(300)), RemoveDelegationToken("t1"))
    assert cluster.image.state.delegation_tokens == {}
