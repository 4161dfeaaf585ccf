"""Connections that have not authenticated yet, by where they are from, and which one makes room.

    handshakes.add(connection, "10.0.0.9")
    leaving = handshakes.take_from_most()

Pure. Whoever opens many connections drives out its own: room is made by the host that has the most
of them, or in IPv6 by the network, and the oldest of those goes. Every step costs the same, however
many there are, as it is strangers who decide how often it is taken.
"""

from typing import Generic, TypeVar

from headrace.cluster.transport.crowd import network_of

T = TypeVar("T")


class Handshakes(Generic[T]):
    """Connections of one kind."""

    def __init__(self) -> None:
        self._networks: dict[T, str] = {}
        self._of_network: dict[str, dict[T, None]] = {}
        """The connections of each, the oldest first."""
        self._with: dict[int, dict[str, None]] = {0: {}}
        """The networks that have so many."""
        self._most = 0
        """How many the network has that has the most."""

    def __len__(self) -> int:
        return len(self._networks)

    def add(self, one: T, host: str) -> None:
        """Take in a connection that is not there yet."""
        network = self._networks[one] = network_of(host)
        same = self._of_network.setdefault(network, {})
        same[one] = None
        count = len(same)
        self._leave(network, count - 1)
        self._with.setdefault(count, {})[network] = None
        self._most = max(self._most, count)

    def discard(self, one: T) -> None:
        """Forget a connection that has authenticated or is closed."""
        network = self._networks.pop(one, None)
        if network is None:
            return
        same = self._of_network[network]
        del same[one]
        count = len(same)
        self._leave(network, count + 1)
        if same:
            self._with.setdefault(count, {})[network] = None
        else:
            del self._of_network[network]
        if self._most not in self._with:
            self._most -= 1  # that network has one less now, or there is none

    def take_from_most(self) -> T:
        """Remove the oldest connection of a network that has the most, and return it."""
        network = next(iter(self._with[self._most]))
        leaving = next(iter(self._of_network[network]))
        self.discard(leaving)
        return leaving

    def _leave(self, network: str, count: int) -> None:
        same = self._with.get(count)
        if same is not None:
            same.pop(network, None)
            if not same and count:
                del self._with[count]
