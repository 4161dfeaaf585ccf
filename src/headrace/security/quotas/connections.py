"""How fast connections may be made: for each address, each listener and the node (KIP-612). Pure.

A listener that is too fast accepts later; an address that is too fast is not served. As in Kafka
nobody waits longer than a window, and a connection that is not served counts nowhere.
"""

from collections import OrderedDict
from collections.abc import Generator, Mapping
from itertools import count
from typing import Final

from headrace.metadata.state import QuotaEntity
from headrace.security.quotas.entities import CONNECTION_CREATION_RATE, IP
from headrace.security.quotas.rates import SampledRate, Windows

UNLIMITED: Final = 2**31 - 1
LOOKS_AT_ONCE: Final = 1000
"""How many addresses are looked at in one turn."""
NODE: Final = ""
"""In place of a listener's name: all of them together."""


class AddressLimits:
    """The limits of all addresses, in the form that connections have, and of those without one."""

    def __init__(self) -> None:
        self._default: float | None = None
        self._own: dict[str, float] = {}

    @property
    def is_empty(self) -> bool:
        return not self._own and self._default is None

    def change(self, address: str | None, limit: float | None) -> None:
        """Set the limit of an address, or the one of all that have none: that of None."""
        if address is None:
            self._default = limit
        elif limit is None:
            self._own.pop(address, None)
        else:
            self._own[address] = limit

    def find(self, address: str) -> float | None:
        return self._own.get(address, self._default)


class ConnectionRates:
    """The rates of new connections, and their limits."""

    def __init__(self, windows: Windows, *, addresses_max: int) -> None:
        self._windows = windows
        self._addresses_max = addresses_max
        self._limits = AddressLimits()
        self._of_listeners: dict[str, tuple[int, SampledRate]] = {}
        self._rates: OrderedDict[str, SampledRate] = OrderedDict()
        """Rates by address; the one that connected last comes last."""

    @property
    def is_active(self) -> bool:
        """Whether anything is limited at all."""
        return bool(self._of_listeners) or not self._limits.is_empty

    def change(self, address: str | None, limit: float | None) -> None:
        """Set the limit of an address, or the one of all that have none: that of None."""
        self._limits.change(address, limit)

    def replace(self, limits: AddressLimits) -> None:
        """Put the limits of all addresses in place of those there were."""
        self._limits = limits

    def limit_listeners(self, limits: Mapping[str, int]) -> None:
        """Set the limit of each listener, and of `NODE`; what was counted still counts."""
        self._of_listeners = {
            name: (limit, self._of_listeners.get(name, (0, SampledRate(self._windows)))[1])
            for name, limit in limits.items()
            if limit != UNLIMITED
        }

    def limit_of_listener(self, name: str) -> int:
        """Return the limit of a listener, or of `NODE`."""
        found = self._of_listeners.get(name)
        return UNLIMITED if found is None else found[0]

    def accept(self, listener: str, now_ms: int) -> int:
        """Count a connection of a listener; return how long it is to wait, in ms."""
        waits = [0]
        for name in (NODE, listener):
            if (found := self._of_listeners.get(name)) is not None:
                limit, rate = found
                rate.record(1, now_ms)
                waits.append(rate.wait_ms(limit, now_ms))
        return min(max(waits), self._windows.size_ms)

    def admit(self, listener: str, address: str, now_ms: int) -> int:
        """Count a connection of an address; return 0 to serve it, else when to close it, in ms.

        What is not served does not count, neither here nor for the listener that accepted it.
        """
        limit = self._limits.find(address)
        if limit is None:
            return 0
        rate = self._rate_of(address)
        rate.record(1, now_ms)
        wait_ms = min(rate.wait_ms(limit, now_ms), self._windows.size_ms)
        if wait_ms:
            rate.record(-1, now_ms)
            for name in (NODE, listener):
                if (found := self._of_listeners.get(name)) is not None:
                    found[1].record(-1, now_ms)
        return wait_ms

    def expire(self, now_ms: int) -> Generator[None, None, None]:
        """Forget addresses that have not connected in the windows. It yields now and then."""
        rates = self._rates
        for number in count(1):
            if not (rates and next(iter(rates.values())).is_idle(now_ms)):
                return
            rates.popitem(last=False)
            if number % LOOKS_AT_ONCE == 0:
                yield

    def _rate_of(self, address: str) -> SampledRate:
        """Return the rate of an address; of the others, those that connected last are kept."""
        rates = self._rates
        found = rates.get(address)
        if found is None:
            if len(rates) >= self._addresses_max:
                rates.popitem(last=False)
            found = rates[address] = SampledRate(self._windows)
        rates.move_to_end(address)
        return found


def limit_of_address(
    entity: QuotaEntity, limits: Mapping[str, float]
) -> tuple[str | None, float | None] | None:
    """Return the address of an entity and its limit; None if it is not about addresses."""
    if len(entity) != 1 or entity[0][0] != IP:
        return None
    return entity[0][1], limits.get(CONNECTION_CREATION_RATE)
