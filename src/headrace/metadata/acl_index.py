"""ACLs by whom they are about: what decides on a request is found without a look at the others'.

Pure. Ten thousand users may each have a right on the same pattern, and every one of their requests
is decided by the few ACLs that name its user and host, or everybody.
"""

from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeAlias

from headrace.metadata.state import Acl, AclPattern

LITERAL: Final = 3
PREFIXED: Final = 4
"""Kafka's numbers of the pattern types of ACLs."""
ANY_NAME: Final = "*"
_NOTHING: Final[Mapping[AclPattern, tuple[Acl, ...]]] = {}

Whom: TypeAlias = tuple[str, str]
"""A principal and a host as `address_of` returns it."""


class AclIndex:
    """The ACLs of an image, which it changes with them."""

    __slots__ = ("_acls", "_by_whom", "_changed", "_of_pattern", "_prefix_lengths")

    def __init__(self, acls: dict[AclPattern, tuple[Acl, ...]]) -> None:
        """`acls` is the image's own, by pattern."""
        self._acls = acls
        self._of_pattern = {pattern: dict.fromkeys(same) for pattern, same in acls.items()}
        """The same: one of very many of a pattern comes and goes without a look at the others."""
        self._changed: dict[AclPattern, None] = {}
        """The patterns whose ACLs the image does not have yet."""
        self._by_whom: dict[Whom, dict[AclPattern, tuple[Acl, ...]]] = {}
        self._prefix_lengths: dict[int, dict[int, int]] = {}
        """How many patterns of a resource type have a prefix of some length."""
        for pattern, same in acls.items():
            self._count_prefix(pattern, 1)
            for acl in same:
                self._put(acl)

    def has(self, acl: Acl) -> bool:
        return acl in self._of(acl.principal, address_of(acl.host)).get(acl.pattern, ())

    def add(self, pattern: AclPattern, new: tuple[Acl, ...]) -> None:
        """Add ACLs of a pattern that are not there."""
        present = self._of_pattern.setdefault(pattern, {})
        if not present:
            self._count_prefix(pattern, 1)
        present.update(dict.fromkeys(new))
        self._changed[pattern] = None
        for acl in new:
            self._put(acl)

    def remove(self, pattern: AclPattern, gone: frozenset[Acl]) -> None:
        """Remove ACLs of a pattern that are there."""
        present = self._of_pattern[pattern]
        for acl in gone:
            del present[acl]
        if present:
            self._changed[pattern] = None
        else:
            # At once: if it comes again, it is the last one, as in an image from the whole log.
            del self._of_pattern[pattern]
            self._changed.pop(pattern, None)
            self._acls.pop(pattern, None)
            self._count_prefix(pattern, -1)
        for acl in gone:
            whom = acl.principal, address_of(acl.host)
            same = tuple(each for each in self._by_whom[whom][pattern] if each != acl)
            if same:
                self._by_whom[whom][pattern] = same
            else:
                del self._by_whom[whom][pattern]
                if not self._by_whom[whom]:
                    del self._by_whom[whom]

    def settle(self) -> None:
        """Put what has changed into the image: once for all changes of an entry of the log."""
        for pattern in self._changed:
            self._acls[pattern] = tuple(self._of_pattern[pattern])
        self._changed.clear()

    def patterns_of(self, resource_type: int, name: str) -> list[AclPattern]:
        """Return the patterns that match a resource: by name, wildcard and prefix."""
        found = [AclPattern(resource_type, LITERAL, name)]
        if name != ANY_NAME:
            found.append(AclPattern(resource_type, LITERAL, ANY_NAME))
        found += [
            AclPattern(resource_type, PREFIXED, name[:length])
            for length in self._prefix_lengths.get(resource_type, ())
            if length <= len(name)
        ]
        return [pattern for pattern in found if pattern in self._of_pattern]

    def about(self, patterns: Iterable[AclPattern], whom: Iterable[Whom]) -> list[Acl]:
        """Return the ACLs of patterns that name one of some principals and hosts."""
        named = [found for each in whom if (found := self._by_whom.get(each)) is not None]
        return [acl for pattern in patterns for found in named for acl in found.get(pattern, ())]

    def all_about(self, whom: Iterable[Whom]) -> list[Acl]:
        """Return all ACLs that name one of some principals and hosts."""
        return [acl for each in whom for same in self._of(*each).values() for acl in same]

    def _of(self, principal: str, host: str) -> Mapping[AclPattern, tuple[Acl, ...]]:
        return self._by_whom.get((principal, host), _NOTHING)

    def _put(self, acl: Acl) -> None:
        same = self._by_whom.setdefault((acl.principal, address_of(acl.host)), {})
        same[acl.pattern] = (*same.get(acl.pattern, ()), acl)

    def _count_prefix(self, pattern: AclPattern, change: int) -> None:
        if pattern.pattern_type != PREFIXED:
            return
        lengths = self._prefix_lengths.setdefault(pattern.resource_type, {})
        length = len(pattern.name)
        lengths[length] = lengths.get(length, 0) + change
        if not lengths[length]:
            del lengths[length]


def address_of(host: str) -> str:
    """Return the host of an ACL or a client in the one form that an address has here.

    IPv6 has many: Kafka's ACLs have Java's, `2001:db8:0:0:0:0:0:7`, which would match nobody.
    """
    if ":" not in host:
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
