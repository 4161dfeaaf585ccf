"""Connections of which there may only be so many, and which one makes room for the next. Pure.

    crowd = Crowd(64)
    leaving = crowd.add(connection, "10.0.0.9:41234")    # who has to go, if anybody
    crowd.discard(connection)

Whoever opens many connections drives out its own: room is made by the host that has the most, and
that host's oldest goes. So a host that says nothing on its connections keeps out no other one, and
one that shares its address with others has to be faster than their handshakes. A host of IPv6 may
take any address of its network, so networks are compared first, and their hosts then.
"""

from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv6Address
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")


_NETWORK_BITS: Final = 64
"""How many bits of an address of IPv6 name the network; a host may take any of the others."""


class _Place(NamedTuple):
    """Where a connection is from."""

    address: str
    host: str
    network: str


class Crowd(Generic[T]):
    """Connections of one kind, the oldest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: dict[T, _Place] = {}
        self._of_hosts: Counter[str] = Counter()
        self._of_networks: Counter[str] = Counter()
        """How many there are of each; none is zero."""

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._places))

    def add(self, one: T, address: str) -> tuple[T, str] | None:
        """Take in a connection from HOST:PORT; return who has to go for it and from where.

        That one is out already. It is never the one that has just come.
        """
        host = address.rpartition(":")[0]
        place = self._places[one] = _Place(address, host, network_of(host))
        self._of_hosts[host] += 1
        self._of_networks[place.network] += 1
        if len(self) <= self._most:
            return None
        leaving, found = max(self._places.items(), key=self._rank)  # the first of those alike
        self.discard(leaving)
        return leaving, found.address

    def discard(self, one: T) -> None:
        """Forget a connection that has ended, or is no longer of this kind."""
        place = self._places.pop(one, None)
        if place is None:
            return
        for counts, key in ((self._of_hosts, place.host), (self._of_networks, place.network)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]

    def _rank(self, item: tuple[T, _Place]) -> tuple[int, int]:
        place = item[1]
        return self._of_networks[place.network], self._of_hosts[place.host]


def network_of(host: str) -> str:
    """Return what a host's connections are counted by, as a host of IPv6 has many addresses."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    spare = 128 - _NETWORK_BITS
    return str(IPv6Address(int(address) >> spare << spare))
