"""Resolution of host names to socket addresses, off the loop and cached for a while."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address

SocketAddress = tuple[str, int] | tuple[str, int, int, int]
Resolve = Callable[[str, int], Awaitable[SocketAddress]]
"""Looks up a name, or raises OSError or UnicodeError."""

LOOKUP_INTERVAL_SECONDS = 30.0
"""How long an address is used, and a failed lookup not repeated."""


async def resolve_udp(host: str, port: int) -> SocketAddress:
    """Look a name up as the system does."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    address = found[0][4]
    return (str(address[0]), int(address[1]))


class Addresses:
    """Addresses by name; only names passed to `retain` are kept."""

    def __init__(self, loop: asyncio.AbstractEventLoop, resolve: Resolve) -> None:
        self._loop = loop
        self._resolve = resolve
        self._wanted: set[tuple[str, int]] = set()
        self._found: dict[tuple[str, int], SocketAddress] = {}
        self._look_up_at: dict[tuple[str, int], float] = {}
        self._lookups: set[asyncio.Task[None]] = set()

    def retain(self, names: Iterable[tuple[str, int]]) -> None:
        """Know these names and no others."""
        self._wanted = set(names)
        for name in [name for name in self._look_up_at if name not in self._wanted]:
            del self._look_up_at[name]
        for name in [name for name in self._found if name not in self._wanted]:
            del self._found[name]

    def find(self, host: str, port: int) -> SocketAddress | None:
        """Return the address of a name, None while it is not known; look it up now and then."""
        name = (host, port)
        if name not in self._wanted:
            return None
        if name not in self._look_up_at and _is_numeric(host):
            self._found[name] = name
            self._look_up_at[name] = float("inf")
        if self._look_up_at.get(name, 0.0) <= self._loop.time():
            self._look_up_at[name] = self._loop.time() + LOOKUP_INTERVAL_SECONDS
            lookup = self._loop.create_task(self._look_up(name))
            self._lookups.add(lookup)
            lookup.add_done_callback(self._lookups.discard)
        return self._found.get(name)

    def close(self) -> None:
        for lookup in self._lookups:
            lookup.cancel()

    async def _look_up(self, name: tuple[str, int]) -> None:
        try:
            address = await self._resolve(*name)
        except (OSError, UnicodeError):  # the second for names that cannot be
            return  # an older address may still be right
        if name in self._wanted:
            self._found[name] = address


def _is_numeric(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
