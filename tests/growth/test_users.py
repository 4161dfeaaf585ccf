"""Users and their ACLs, very many in one request or in the cluster: what that costs the loop."""

from typing import Any

import pytest

from headrace.api import (
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_acls,
    describe_user_scram_credentials,
)
from headrace.loop.slices import Slice
from headrace.metadata.ddl import AddAcls, SetScramCredential
from headrace.metadata.image import Image
from headrace.metadata.rights import add_acls, set_scram_credential
from headrace.metadata.state import Acl, AclPattern, ScramCredential
from headrace.security.acl_filters import AclFilter
from headrace.security.acls import Operation, Pattern, Permission, Resource
from headrace.server.proposals import _refusals
from headrace.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.growth.slices import assert_slices_are_short, longest_slice
from tests.growth.steps import assert_stays_flat

MANY = 4000
ANY, LITERAL, PREFIXED = int(Pattern.ANY), int(Pattern.LITERAL), int(Pattern.PREFIXED)
TOPIC = int(Resource.TOPIC)
CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 4096)


def acl(name: str, user: str) -> Acl:
    pattern = AclPattern(TOPIC, LITERAL, name)
    return Acl(pattern, f"User:{user}", "*", int(Operation.READ), int(Permission.ALLOW))


def of_patterns(count: int) -> Image:
    """Return an image with an ACL for each of so many topics."""
    return holding(acl(f"topic-{number}", "ann") for number in range(count))


def of_users(count: int) -> Image:
    """Return an image in which so many users have a right on one topic."""
    return holding(acl("topic-7", f"user-{number}") for number in range(count))


def holding(acls: Any) -> Image:
    image = Image()
    add_acls(image, AddAcls(tuple(acls)))
    image.acls.settle()
    return image


def filtering(pattern: int = ANY, name: str | None = None, **more: Any) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        operation=int(Operation.ANY),
        permission_type=int(Permission.ANY),
        **{"principal_filter": None, "host_filter": None, **more},
    )


@pytest.mark.parametrize("make", [of_patterns, of_users])
@pytest.mark.parametrize("user", [None, "User:nobody"])
def test_acls_are_described_and_looked_for_without_holding_the_loop(make: Any, user: Any) -> None:
    image, count = make(MANY), MANY if user is None else 0
    row = filtering(principal_filter=user)
    described = assert_slices_are_short(describe_acls.describe(image, AclFilter.of(row)))
    assert sum(len(each.acls) for each in described.resources) == count
    rows: list[Any] = []
    body = DeleteAclsRequest(filters=[row])
    unwanted = assert_slices_are_short(delete_acls.find(image, body, rows))
    assert (len(unwanted), len(rows[0].matching_acls)) == (count, count)


def test_many_filters_share_the_slices() -> None:
    image = of_patterns(MANY)
    filters = [filtering(LITERAL, f"topic-{number}") for number in range(MANY)]
    rows: list[Any] = []
    body = DeleteAclsRequest(filters=filters)
    assert len(assert_slices_are_short(delete_acls.find(image, body, rows))) == MANY
    assert len(rows) == MANY


@pytest.mark.parametrize(("pattern", "found"), [(LITERAL, 1), (PREFIXED, 0)])
def test_a_filter_that_names_one_pattern_is_looked_up(pattern: int, found: int) -> None:
    def look(count: int) -> int:
        image, wanted = of_patterns(count), AclFilter.of(filtering(pattern, "topic-7"))
        spent, acls = longest_slice(wanted.find(image, Slice()))
        assert len(acls) == found
        return spent

    assert_stays_flat(look, 100)


def test_acls_are_created_without_holding_the_loop() -> None:
    creations = [
        AclCreation(
            resource_type=TOPIC,
            resource_name=f"topic-{number}" if number % 2 else "",
            resource_pattern_type=LITERAL,
            principal="User:ann",
            host="*",
            operation=int(Operation.READ),
            permission_type=int(Permission.ALLOW),
        )
        for number in range(MANY)
    ]
    rows: list[Any] = []
    created = assert_slices_are_short(create_acls.plan(CreateAclsRequest(creations), rows))
    assert (len(created), len(rows)) == (MANY // 2, MANY)


def users(count: int) -> Image:
    image = Image()
    for number in range(count):
        set_scram_credential(image, SetScramCredential(f"user-{number}", 2, CREDENTIAL))
    return image


@pytest.mark.parametrize("names", [[], [f"user-{number}" for number in range(MANY)]])
def test_users_are_described_without_holding_the_loop(names: list[str]) -> None:
    body = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
    work = describe_user_scram_credentials.describe(users(MANY), body)
    response = assert_slices_are_short(work)
    assert [row.user for row in response.results] == [f"user-{number}" for number in range(MANY)]


def test_one_user_of_very_many_is_looked_up() -> None:
    body = DescribeUserScramCredentialsRequest(users=[UserName(name="user-7")])

    def look(count: int) -> int:
        work = describe_user_scram_credentials.describe(users(count), body)
        spent, response = longest_slice(work)
        assert [row.user for row in response.results] == ["user-7"]
        return spent

    assert_stays_flat(look, 100)


def test_very_many_users_are_altered_without_holding_the_loop() -> None:
    body = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=f"user-{n}", mechanism=2) for n in range(MANY)],
        upsertions=[
            ScramCredentialUpsertion(
                name=f"new-{number}",
                mechanism=2,
                iterations=4096,
                salt=b"salt",
                salted_password=bytes(64),
            )
            for number in range(MANY)
        ],
    )
    problems: dict[str, Any] = {}
    plan = alter_user_scram_credentials.plan(users(MANY // 2), body, problems)
    wanted = assert_slices_are_short(plan)
    assert (len(wanted), len(problems)) == (MANY + MANY // 2, 2 * MANY)
    results = assert_slices_are_short(alter_user_scram_credentials._results(problems))
    assert sum(row.error_code != 0 for row in results) == MANY // 2


def test_very_many_changes_are_judged_without_holding_the_loop() -> None:
    changes = [AddAcls((acl("topic", f"user-{number}"),)) for number in range(10 * MANY)]
    refusals = assert_slices_are_short(_refusals(Image(), changes))
    assert len(refusals) == 10 * MANY
    assert all(refusals), "a cluster of level 0 has no ACLs"
