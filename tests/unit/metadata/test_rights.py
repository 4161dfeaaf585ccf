from random import Random

import pytest

from headrace.errors import ErrorCode
from headrace.metadata.acl_index import LITERAL, PREFIXED
from headrace.metadata.ddl import (
    AddAcls,
    ChangeTokenExpiry,
    Expire,
    RemoveAcls,
    RemoveDelegationToken,
    RemoveScramCredential,
    SetDelegationToken,
    SetQuota,
    SetScramCredential,
)
from headrace.metadata.events import AclsChanged, DelegationTokenChanged
from headrace.metadata.image import Image
from headrace.metadata.rights import EXPIRED_AT_ONCE
from headrace.metadata.state import Acl, AclPattern, DelegationToken, ScramCredential
from tests.unit.metadata.clusters import Cluster, copy_of

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


def test_the_index_of_acls_is_as_if_it_were_made_afresh() -> None:
    cluster, random = Cluster(), Random(1)
    principals, names = ("User:ada", "User:bob", "User:*"), ("orders", "ord", "*")
    acls = [
        Acl(AclPattern(TOPIC, kind, name), principal, host, 3, permission)
        for kind in (LITERAL, PREFIXED)
        for name in names
        for principal in principals
        for host in ("*", "10.0.0.1")
        for permission in (2, 3)
    ]
    for _ in range(60):
        some = tuple(random.sample(acls, random.randint(1, 30)))
        cluster.propose(random.choice((AddAcls, RemoveAcls))(some))
        fresh = Image(cluster.image.state).acls
        for name in (*names, "orders-2"):
            patterns = fresh.patterns_of(TOPIC, name)
            assert set(cluster.image.acls.patterns_of(TOPIC, name)) == set(patterns)
            for principal in principals:
                whom = [(principal, "*"), (principal, "10.0.0.1")]
                found = cluster.image.acls.about(patterns, whom)
                assert set(found) == set(fresh.about(patterns, whom))
                assert len(found) == len(set(found))
                assert set(found) == {
                    acl
                    for pattern in patterns
                    for acl in cluster.image.state.acls[pattern]
                    if acl.principal == principal
                }
    cluster.propose(RemoveAcls(tuple(acls)))
    assert cluster.image.acls.all_about([(each, "*") for each in principals]) == []


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
    cluster.refuses_with(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, ChangeTokenExpiry("t1", 300))
    cluster.propose(SetDelegationToken(token(300)), ChangeTokenExpiry("t1", 400))
    assert cluster.image.delegation_token("t1") == token(400)
    cluster.propose(ChangeTokenExpiry("t1", 10_000))
    assert cluster.image.delegation_token("t1") == token(9000)
    cluster.propose(RemoveDelegationToken("t1"))
    assert cluster.image.state.delegation_tokens == {}


def test_an_entry_drops_a_bounded_number_of_delegation_tokens_the_same_everywhere() -> None:
    cluster = Cluster()
    for number in range(2 * EXPIRED_AT_ONCE + 50):
        expiry_ms = 10**6 if number % 10 == 0 else 1000 - number
        token = DelegationToken(f"t{number}", "User:a", "User:a", (), 0, 10**6, expiry_ms, b"")
        cluster.propose(SetDelegationToken(token))
    left = []
    for _ in range(4):
        events = cluster.propose(Expire(1000)).events
        assert len(events) <= EXPIRED_AT_ONCE
        assert {*cluster.image.state.delegation_tokens}.isdisjoint(
            each.token_id for each in events if isinstance(each, DelegationTokenChanged)
        )
        assert list(copy_of(cluster.image).state.delegation_tokens) == list(
            cluster.image.state.delegation_tokens
        )
        left.append(len(cluster.image.state.delegation_tokens))
    assert left == [250, 50, 45, 45]
