"""Filters of ACLs: which ones they find, by a look-up or by looking at all of them."""

from itertools import product
from typing import Any

import pytest

from headrace.loop.slices import Slice, run_whole
from headrace.metadata.ddl import AddAcls
from headrace.metadata.image import Image
from headrace.metadata.rights import add_acls
from headrace.metadata.state import Acl, AclPattern
from headrace.security.acl_filters import AclFilter
from headrace.security.acls import Operation, Pattern, Permission, Resource

TYPES = (Resource.TOPIC, Resource.GROUP)
NAMES = ("orders", "ord", "*", "o")
USERS = ("User:ann", "User:bob")
OPERATIONS = (Operation.READ, Operation.DESCRIBE)


def made() -> Image:
    image = Image()
    acls = tuple(
        Acl(AclPattern(int(kind), int(form), name), user, "*", int(operation), int(permission))
        for kind, form, name, user, operation, permission in product(
            TYPES, (Pattern.LITERAL, Pattern.PREFIXED), NAMES, USERS, OPERATIONS, Permission
        )
        if permission in (Permission.ALLOW, Permission.DENY)
    )
    add_acls(image, AddAcls(acls))
    image.acls.settle()
    return image


def fits(wanted: AclFilter, acl: Acl) -> bool:
    """Say it again, as Kafka documents its filters."""
    kind, form, name = acl.pattern.resource_type, acl.pattern.pattern_type, acl.pattern.name
    by_form = {
        Pattern.ANY: wanted.name in (None, name),
        Pattern.LITERAL: form == Pattern.LITERAL and wanted.name in (None, name),
        Pattern.PREFIXED: form == Pattern.PREFIXED and wanted.name in (None, name),
        Pattern.MATCH: wanted.name is None
        or (form == Pattern.LITERAL and name in (wanted.name, "*"))
        or (form == Pattern.PREFIXED and wanted.name.startswith(name)),
    }
    return (
        by_form[Pattern(wanted.pattern)]
        and wanted.resource in (Resource.ANY, kind)
        and wanted.principal in (None, acl.principal)
        and wanted.operation in (Operation.ANY, acl.operation)
        and wanted.permission in (Permission.ANY, acl.permission)
    )


@pytest.mark.parametrize("name", [None, "", *NAMES, "orders-2"])
@pytest.mark.parametrize("pattern", [each for each in Pattern if each is not Pattern.UNKNOWN])
def test_a_filter_finds_what_fits_and_nothing_else(pattern: Pattern, name: str | None) -> None:
    image = made()
    every = [acl for same in image.state.acls.values() for acl in same]
    for resource, user, operation, permission in product(
        (Resource.ANY, *TYPES),
        (None, USERS[0], "User:nobody"),
        (Operation.ANY, Operation.READ),
        (Permission.ANY, Permission.DENY),
    ):
        codes: Any = map(int, (resource, pattern, operation, permission))
        kind, form, what, how = codes
        wanted = AclFilter(kind, name, form, user, None, what, how)
        found = run_whole(wanted.find(image, Slice()))
        assert found == [acl for acl in every if fits(wanted, acl)], wanted
