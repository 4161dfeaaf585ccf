"""Who may do what: the ACLs of the image, decided as Kafka's StandardAuthorizer does. Pure.

    authorizer.allows("User:alice", "10.0.0.7", Operation.READ, Resource.TOPIC, "orders")
    authorizer.explain(...)                # the rule that decides

A deny wins over every allow. Allowing READ, WRITE, DELETE or ALTER allows DESCRIBE, ALTER_CONFIGS
allows DESCRIBE_CONFIGS; denying implies nothing. Without a matching rule a request is denied,
unless no ACL is about the resource at all and allow.everyone.if.no.acl.found is set.

Decisions are kept until ACLs change, and `generation` counts changes.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from headrace.metadata.acl_index import Whom, address_of
from headrace.metadata.image import Image
from headrace.metadata.state import Acl
from headrace.security.acls import (
    IMPLYING,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Operation,
    Pattern,
    Permission,
    Resource,
)

DECISIONS_MAX: Final = 100_000
"""How many decisions are kept; then they are made afresh."""
KEPT_NAME_CHARACTERS_MAX: Final = 256
"""Decisions about longer names are not kept: anybody may ask about names that nothing has."""
_HARD_CODED: Final = "hardcode"
"""The name that Kafka looks up to find out whether somebody may do something everywhere."""


class Decision(NamedTuple):
    """Whether something is allowed, and why."""

    is_allowed: bool
    acl: Acl | None
    """The ACL that decides, if one does."""
    rule: str


class Authorizer:
    """Decisions over the ACLs of an image."""

    def __init__(
        self,
        image_of: Callable[[], Image],
        super_users: Iterable[str] = (),
        *,
        allows_without_acls: bool = False,
    ) -> None:
        self._image_of = image_of
        self._super_users = frozenset(super_users)
        self._allows_without_acls = allows_without_acls
        self._decisions: dict[tuple[str, str, int, int, str], bool] = {}
        self._some: dict[tuple[str, str, int, int], bool] = {}
        self.generation = 0
        """One more whenever ACLs changed."""

    def on_acls_changed(self) -> None:
        """Forget all decisions: the image has other ACLs."""
        self.generation += 1
        self._decisions.clear()
        self._some.clear()

    def allows(self, principal: str, host: str, operation: int, resource: int, name: str) -> bool:
        """Return whether a principal may do something with a resource."""
        key = principal, host, operation, resource, name
        known = self._decisions.get(key)
        if known is None:
            known = self.explain(*key).is_allowed
            if len(name) > KEPT_NAME_CHARACTERS_MAX:
                return known
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[key] = known
        return known

    def explain(
        self, principal: str, host: str, operation: int, resource: int, name: str
    ) -> Decision:
        """Return whether a principal may do something with a resource, and which rule decides."""
        if principal in self._super_users:
            return Decision(True, None, f"{principal} is one of super.users")
        index = self._image_of().acls
        patterns = index.patterns_of(resource, name)
        allowed: Acl | None = None
        for acl in index.about(patterns, _whom(principal, host)):
            if acl.permission == Permission.DENY:
                if acl.operation in (operation, Operation.ALL):
                    return Decision(False, acl, "a DENY wins over every ALLOW")
            elif allowed is None and _allows(acl, operation):
                allowed = acl
        if allowed is not None:
            return Decision(True, allowed, "an ALLOW, and no DENY is about it")
        if patterns:
            return Decision(False, None, "no ACL of this resource allows it")
        if self._allows_without_acls:
            return Decision(
                True, None, "no ACL is about this resource (allow.everyone.if.no.acl.found=true)"
            )
        return Decision(False, None, "no ACL is about this resource")

    def allows_some(self, principal: str, host: str, operation: int, resource: int) -> bool:
        """Return whether a principal may do something with any resource of a type, known or not."""
        key = principal, host, operation, resource
        known = self._some.get(key)
        if known is None:
            if len(self._some) >= DECISIONS_MAX:
                self._some.clear()
            known = self._some[key] = self._find_some(*key)
        return known

    def _find_some(self, principal: str, host: str, operation: int, resource: int) -> bool:
        if self.allows(principal, host, operation, resource, _HARD_CODED):
            return True
        denied: tuple[set[str], set[str]] = set(), set()
        allowed: tuple[set[str], set[str]] = set(), set()
        for acl in self._image_of().acls.all_about(_whom(principal, host)):
            pattern = acl.pattern
            if pattern.resource_type != resource:
                continue
            if acl.operation not in (operation, Operation.ALL):
                continue
            kinds = denied if acl.permission == Permission.DENY else allowed
            kinds[pattern.pattern_type == Pattern.PREFIXED].add(pattern.name)
        denied_names, denied_prefixes = denied
        if WILDCARD in denied_names:
            return False
        names, prefixes = allowed
        if WILDCARD in names:
            return True
        return any(not _is_under(prefix, denied_prefixes) for prefix in prefixes) or any(
            name not in denied_names and not _is_under(name, denied_prefixes) for name in names
        )


def _whom(principal: str, host: str) -> list[Whom]:
    """Return how ACLs name a client: it, or everybody, from its host or any."""
    hosts = dict.fromkeys((address_of(host), WILDCARD))
    return [
        (name, where) for name in dict.fromkeys((principal, WILDCARD_PRINCIPAL)) for where in hosts
    ]


def _allows(acl: Acl, operation: int) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    return operation in IMPLYING and acl.operation in IMPLYING[Operation(operation)]


def _is_under(name: str, prefixes: set[str]) -> bool:
    """Return whether one of the prefixes is one of the name."""
    return any(name[:length] in prefixes for length in range(1, len(name) + 1))


def describe_acl(acl: Acl) -> str:
    """Return an ACL as a person would say it."""
    pattern = acl.pattern
    kind = Pattern(pattern.pattern_type).name.lower()
    return (
        f"{Permission(acl.permission).name} {acl.principal} from host {acl.host}: "
        f"{Operation(acl.operation).name} on {kind} {Resource(pattern.resource_type).name} "
        f"{pattern.name}"
    )
