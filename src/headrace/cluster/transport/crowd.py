"""Connections of which there may only be so many, and which one makes room for the next. Pure.

    crowd = Crowd(64)
    leaving = crowd.add(connection, "10.0.0.9:41234")    # who has to go, if anybody
    crowd.discard(connection)

Whoever opens many connections drives out its own: room is made by the host that has the most, and
that host's oldest goes. So a host that says nothing on its connections keeps out no other one, and
one that shares its address with others has to be faster than their handshakes.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Crowd(Generic[T]):
    """Connections of one kind, the oldest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._addresses: dict[T, str] = {}
        self._counts: Counter[str] = Counter()
        """By host; none is zero."""

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._addresses))

    def add(self, one: T, address: str) -> tuple[T, str] | None:
        """Take in a connection from HOST:PORT; return who has to go for it and from where.

        That one is out already. It is never the one that has just come.
        """
        self._addresses[one] = address
        self._counts[_host(address)] += 1
        if len(self) <= self._most:
            return None
        most = max(self._counts.values())
        found = (each for each in self._addresses.items() if self._counts[_host(each[1])] == most)
        leaving = next(found)
        self.discard(leaving[0])
        return leaving

    def discard(self, one: T) -> None:
        """Forget a connection that has ended, or is no longer of this kind."""
        address = self._addresses.pop(one, None)
        if address is None:
            return
        host = _host(address)
        self._counts[host] -= 1
        if not self._counts[host]:
            del self._counts[host]


def _host(address: str) -> str:
    return address.rpartition(":")[0]
