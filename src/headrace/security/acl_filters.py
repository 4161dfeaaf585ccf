"""ACLs as requests have them: checked before they are stored, and found by filters. Pure."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from headrace.errors import HeadraceError
from headrace.loop.slices import Slice, Slices
from headrace.metadata.image import Image
from headrace.metadata.state import Acl, AclPattern
from headrace.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    Pattern,
    Permission,
    Resource,
)

NAME_CHARACTERS_MAX: Final = 1024
"""The length of a resource's name, a principal and a host."""
_STORED: Final = (Pattern.LITERAL, Pattern.PREFIXED)
"""The types of patterns that ACLs have; others are for filters."""


class InvalidAcl(HeadraceError):
    """An ACL, or a filter, that means nothing."""


def acl_of(row: Any) -> Acl:
    """Return the ACL that a row of CreateAcls describes; InvalidAcl if it cannot be one."""
    resource = _code(Resource, row.resource_type, "resource type")
    pattern = _code(Pattern, row.resource_pattern_type, "pattern type")
    operation = _code(Operation, row.operation, "operation")
    permission = _code(Permission, row.permission_type, "permission type")
    if resource in (Resource.UNKNOWN, Resource.ANY):
        raise InvalidAcl("Invalid resource type")
    if pattern not in _STORED:
        raise InvalidAcl("Invalid pattern type")
    if permission not in (Permission.ALLOW, Permission.DENY):
        raise InvalidAcl("Invalid permission type")
    if resource is Resource.CLUSTER and row.resource_name != CLUSTER_NAME:
        raise InvalidAcl(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not row.resource_name:
        raise InvalidAcl("Invalid empty resource name")
    if operation in (Operation.UNKNOWN, Operation.ANY):
        raise InvalidAcl("Invalid operation")
    kind, colon, name = row.principal.partition(":")
    if not (kind and colon and name):
        raise InvalidAcl(
            f"Could not parse principal from `{row.principal[:100]}` (no colon is present "
            "separating the principal type from the principal name)"
        )
    if not row.host:
        raise InvalidAcl("Invalid empty host")
    texts = (row.resource_name, row.principal, row.host)
    if max(map(len, texts)) > NAME_CHARACTERS_MAX:
        raise InvalidAcl(f"a name of an ACL has at most {NAME_CHARACTERS_MAX} characters")
    return Acl(
        AclPattern(int(resource), int(pattern), row.resource_name),
        row.principal,
        row.host,
        int(operation),
        int(permission),
    )


class AclFilter(NamedTuple):
    """Which ACLs are meant; None and the codes of ANY mean all."""

    resource: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @classmethod
    def of(cls, row: Any) -> "AclFilter":
        """Return the filter of a request; InvalidAcl if it has a code that nobody knows."""
        made = cls(
            _code(Resource, row.resource_type_filter, "resource type"),
            row.resource_name_filter,
            _code(Pattern, row.pattern_type_filter, "pattern type"),
            row.principal_filter,
            row.host_filter,
            _code(Operation, row.operation, "operation"),
            _code(Permission, row.permission_type, "permission type"),
        )
        if 0 in (made.resource, made.pattern, made.operation, made.permission):
            raise InvalidAcl("the filter contains UNKNOWN elements")
        return made

    def find(self, image: Image, current: Slice) -> Slices[list[Acl]]:
        """Return the ACLs that match; `current` counts the work of all filters of a request."""
        found: list[Acl] = []
        for same in self._of_patterns(image):
            if current.spend():
                yield
            for acl in same:
                if self._matches_entry(acl):
                    found.append(acl)
                if current.spend():
                    yield
        return found

    def _of_patterns(self, image: Image) -> Iterable[tuple[Acl, ...]]:
        """Return the ACLs of each pattern that matches, of which a filter may name the only one."""
        acls = image.state.acls
        if self.name is None or self.resource == Resource.ANY or self.pattern not in _STORED:
            # A copy: patterns come and go between the slices.
            items = tuple(acls.items())
            return (same if self._matches_pattern(pattern) else () for pattern, same in items)
        only = acls.get(AclPattern(self.resource, self.pattern, self.name))
        return () if only is None else (only,)

    def _matches_pattern(self, pattern: AclPattern) -> bool:
        if self.resource not in (Resource.ANY, pattern.resource_type):
            return False
        if self.pattern in _STORED:
            if self.pattern != pattern.pattern_type:
                return False
            return self.name is None or self.name == pattern.name
        if self.name is None or self.pattern == Pattern.ANY:
            return self.name is None or self.name == pattern.name
        if pattern.pattern_type == Pattern.LITERAL:
            return pattern.name in (self.name, WILDCARD)
        return self.name.startswith(pattern.name)

    def _matches_entry(self, acl: Acl) -> bool:
        return (
            self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )


def _code(kind: Any, code: int, what: str) -> Any:
    try:
        return kind(code)
    except ValueError:
        raise InvalidAcl(f"there is no {what} {code}") from None
