"""Decisions over ACLs: those of Kafka's StandardAuthorizer."""

import pytest

from headrace.metadata.ddl import AddAcls
from headrace.metadata.image import Image
from headrace.metadata.rights import add_acls
from headrace.metadata.state import Acl, AclPattern
from headrace.security.acls import Operation, Pattern, Permission, Resource
from headrace.security.authorizer import DECISIONS_MAX, Authorizer, describe_acl

ALICE = "User:alice"
HOST = "10.0.0.7"
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED


def acl(
    name: str,
    operation: Operation = Operation.READ,
    permission: Permission = ALLOW,
    *,
    pattern: Pattern = LITERAL,
    principal: str = ALICE,
    host: str = "*",
    resource: Resource = Resource.TOPIC,
) -> Acl:
    where = AclPattern(int(resource), int(pattern), name)
    return Acl(where, principal, host, int(operation), int(permission))


def authorizer(
    *acls: Acl, super_users: tuple[str, ...] = (), open_to_all: bool = False
) -> Authorizer:
    image = Image()
    add_acls(image, AddAcls(acls))
    return Authorizer(lambda: image, super_users, allows_without_acls=open_to_all)


def allows(made: Authorizer, name: str, operation: Operation = Operation.READ) -> bool:
    return made.allows(ALICE, HOST, operation, Resource.TOPIC, name)


@pytest.mark.parametrize(
    ("rules", "is_allowed"),
    [
        ([], False),
        ([acl("orders")], True),
        ([acl("other")], False),
        ([acl("*")], True),
        ([acl("ord", pattern=PREFIXED)], True),
        ([acl("orders", pattern=PREFIXED)], True),
        ([acl("orders2", pattern=PREFIXED)], False),
        ([acl("ord")], False),
        ([acl("orders", principal="User:*")], True),
        ([acl("orders", principal="User:bob")], False),
        ([acl("orders", principal="Group:*")], False),
        ([acl("orders", host=HOST)], True),
        ([acl("orders", host="10.0.0.8")], False),
        ([acl("orders", Operation.ALL)], True),
        ([acl("orders", Operation.WRITE)], False),
        ([acl("orders", resource=Resource.GROUP)], False),
        ([acl("orders"), acl("orders", permission=DENY)], False),
        ([acl("orders"), acl("*", permission=DENY)], False),
        ([acl("orders"), acl("o", permission=DENY, pattern=PREFIXED)], False),
        ([acl("orders"), acl("orders", Operation.ALL, DENY)], False),
        ([acl("orders"), acl("orders", Operation.WRITE, DENY)], True),
        ([acl("orders"), acl("orders", permission=DENY, principal="User:bob")], True),
        ([acl("orders"), acl("orders", permission=DENY, host="10.0.0.8")], True),
    ],
)
def test_a_request_is_allowed_if_a_rule_allows_it_and_none_denies_it(
    rules: list[Acl], is_allowed: bool
) -> None:
    assert allows(authorizer(*rules), "orders") is is_allowed


@pytest.mark.parametrize(
    ("written", "client"),
    [
        ("2001:db8:0:0:0:0:0:7", "2001:db8::7"),  # as Java writes it, so as Kafka's ACLs have it
        ("2001:DB8::7", "2001:db8::7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80:0:0:0:0:0:0:7%eth0", "fe80::7%eth0"),
        ("0:0:0:0:0:0:0:1", "::1"),
    ],
)
def test_an_address_is_the_same_however_an_acl_writes_it(written: str, client: str) -> None:
    for rules, is_allowed in (
        ([acl("orders", host=written)], True),
        ([acl("orders"), acl("orders", permission=DENY, host=written)], False),
    ):
        made = authorizer(*rules)
        for host in (client, written):
            assert made.allows(ALICE, host, Operation.READ, Resource.TOPIC, "orders") == is_allowed
        assert made.allows(ALICE, "2001:db8::8", Operation.READ, Resource.TOPIC, "orders") != (
            is_allowed
        )


@pytest.mark.parametrize(
    "operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER]
)
def test_whoever_may_do_something_may_describe(operation: Operation) -> None:
    assert allows(authorizer(acl("orders", operation)), "orders", Operation.DESCRIBE)
    denied = authorizer(acl("orders", Operation.DESCRIBE), acl("orders", operation, DENY))
    assert allows(denied, "orders", Operation.DESCRIBE)  # a deny implies nothing


def test_altering_configs_implies_describing_them_and_nothing_else() -> None:
    made = authorizer(acl("orders", Operation.ALTER_CONFIGS))
    assert allows(made, "orders", Operation.DESCRIBE_CONFIGS)
    assert not allows(made, "orders", Operation.DESCRIBE)
    assert not allows(authorizer(acl("orders", Operation.CREATE)), "orders", Operation.DESCRIBE)


def test_super_users_are_not_even_denied() -> None:
    made = authorizer(acl("*", Operation.ALL, DENY), super_users=(ALICE,))
    assert allows(made, "orders")


def test_a_resource_without_acls_is_open_only_if_that_is_set() -> None:
    made = authorizer(acl("orders", principal="User:bob"), open_to_all=True)
    assert allows(made, "other")
    assert not allows(made, "orders")


@pytest.mark.parametrize(
    ("rules", "is_allowed"),
    [
        ([], False),
        ([acl("orders", Operation.WRITE)], True),
        ([acl("orders", Operation.READ)], False),
        ([acl("orders", Operation.WRITE), acl("orders", Operation.WRITE, DENY)], False),
        ([acl("orders", Operation.WRITE), acl("*", Operation.WRITE, DENY)], False),
        (
            [acl("orders", Operation.WRITE), acl("o", Operation.ALL, DENY, pattern=PREFIXED)],
            False,
        ),
        (
            [
                acl("ord", Operation.WRITE, pattern=PREFIXED),
                acl("orders", Operation.WRITE, DENY, pattern=PREFIXED),
            ],
            True,
        ),
        ([acl("*", Operation.WRITE), acl("x", Operation.WRITE, DENY, pattern=PREFIXED)], True),
        ([acl("orders", Operation.WRITE, host="10.0.0.8")], False),
    ],
)
def test_some_resource_may_be_written_to_unless_every_allow_is_covered_by_a_deny(
    rules: list[Acl], is_allowed: bool
) -> None:
    made = authorizer(*rules)
    assert made.allows_some(ALICE, HOST, Operation.WRITE, Resource.TOPIC) is is_allowed


def test_the_rule_that_decides_is_named() -> None:
    deny = acl("o", permission=DENY, pattern=PREFIXED)
    made = authorizer(acl("orders"), deny)
    decision = made.explain(ALICE, HOST, Operation.READ, Resource.TOPIC, "orders")
    assert decision.acl == deny
    assert describe_acl(deny) == "DENY User:alice from host *: READ on prefixed TOPIC o"


@pytest.mark.slow
def test_decisions_hold_until_acls_change_and_are_bounded() -> None:
    image = Image()
    made = Authorizer(lambda: image)
    assert not allows(made, "orders")
    add_acls(image, AddAcls((acl("orders"),)))
    made.on_acls_changed()
    assert allows(made, "orders")
    for number in range(DECISIONS_MAX + 10):
        allows(made, f"topic-{number}")
    assert len(made._decisions) <= DECISIONS_MAX


def test_decisions_about_names_of_any_length_do_not_fill_the_memory() -> None:
    """Anybody may ask about names that nothing has."""
    made = authorizer(acl("orders"), acl("long", pattern=PREFIXED))
    for number in range(100):
        assert allows(made, f"long-{number}" + "x" * 30_000)
        assert not allows(made, f"{number}" + "x" * 30_000)
    assert allows(made, "orders")
    assert sum(len(key[-1]) for key in made._decisions) < 1000
