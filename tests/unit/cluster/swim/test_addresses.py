"""Names of hosts to addresses of sockets."""

import asyncio

from headrace.cluster.swim.addresses import (
    LOOKUP_INTERVAL_SECONDS,
    Addresses,
    SocketAddress,
)
from headrace.testing.virtual_loop import run_virtual


class Names:
    """A name service that is asked and counted."""

    def __init__(self) -> None:
        self.asked = 0
        self.address: str | None = "10.0.0.1"

    async def resolve(self, host: str, port: int) -> SocketAddress:
        self.asked += 1
        await asyncio.sleep(0)
        if self.address is None:
            raise OSError("no such host")
        return (self.address, port)


def addresses_of(names: Names) -> Addresses:
    addresses = Addresses(asyncio.get_running_loop(), names.resolve)
    addresses.retain([("one", 1), ("10.0.0.9", 1), ("::1", 1)])
    return addresses


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_numbers_are_not_looked_up() -> None:
    async def play() -> None:
        names = Names()
        addresses = addresses_of(names)
        assert addresses.find("10.0.0.9", 1) == ("10.0.0.9", 1)
        assert addresses.find("::1", 1) == ("::1", 1)
        assert names.asked == 0

    run_virtual(play())


def test_a_name_is_looked_up_once_in_a_while() -> None:
    async def play() -> None:
        names = Names()
        addresses = addresses_of(names)
        assert addresses.find("one", 1) is None
        await settle()
        assert addresses.find("one", 1) == ("10.0.0.1", 1)
        assert names.asked == 1
        names.address = "10.0.0.2"
        await asyncio.sleep(LOOKUP_INTERVAL_SECONDS)
        assert addresses.find("one", 1) == ("10.0.0.1", 1)
        await settle()
        assert addresses.find("one", 1) == ("10.0.0.2", 1)
        assert names.asked == 2

    run_virtual(play())


def test_an_address_stays_when_a_lookup_fails() -> None:
    async def play() -> None:
        names = Names()
        addresses = addresses_of(names)
        addresses.find("one", 1)
        await settle()
        names.address = None
        await asyncio.sleep(LOOKUP_INTERVAL_SECONDS)
        addresses.find("one", 1)
        await settle()
        assert addresses.find("one", 1) == ("10.0.0.1", 1)

    run_virtual(play())


def test_names_that_are_not_wanted_are_not_kept() -> None:
    async def play() -> None:
        names = Names()
        addresses = addresses_of(names)
        assert addresses.find("two", 1) is None
        addresses.find("one", 1)
        addresses.retain([])
        await settle()
        addresses.retain([("one", 1)])
        assert addresses.find("one", 1) is None
        addresses.close()
        await settle()

    run_virtual(play())
