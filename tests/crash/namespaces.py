"""Networks for nodes, each with an address of its own, between which packets can be lost.

A namespace for each node, joined by a bridge on which this process has an address, too. A cut is
one way: the sender is told a hardware address that nobody has, so packets vanish without a word.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

NOBODY = "02:00:00:00:00:fe"


class CannotBuild(Exception):
    """A machine on which no namespaces can be made."""


class Networks:
    """Networks for nodes 1 to `count`."""

    def __init__(self, count: int) -> None:
        tag = os.getpid() % 60_000
        self._bridge = f"hr{tag}"
        self._subnet = f"10.{200 + tag % 50}.{tag % 250}"
        self._numbers = range(1, count + 1)

    def address(self, number: int) -> str:
        return f"{self._subnet}.{number}"

    def within(self, number: int) -> tuple[str, ...]:
        """Return the command that runs others in the network of a node."""
        return ("ip", "netns", "exec", self._name(number))

    def cut(self, sender: int, receiver: int) -> None:
        """Lose what one node sends to another."""
        to = ("to", self.address(receiver), "dev", "eth0")
        _run(
            *self.within(sender),
            "ip",
            "neigh",
            "replace",
            *to,
            "lladdr",
            NOBODY,
            "nud",
            "permanent",
        )

    def heal(self) -> None:
        for sender in self._numbers:
            _run(*self.within(sender), "ip", "neigh", "flush", "all", "nud", "permanent")
            _run(*self.within(sender), "ip", "neigh", "flush", "all")

    def build(self) -> None:
        try:
            _run("ip", "link", "add", self._bridge, "type", "bridge")
            _run("ip", "address", "add", f"{self._subnet}.254/24", "dev", self._bridge)
            _run("ip", "link", "set", self._bridge, "up")
            for number in self._numbers:
                self._add(number)
        except (OSError, subprocess.CalledProcessError) as error:
            detail = getattr(error, "stderr", "") or str(error)
            raise CannotBuild(f"network namespaces are not permitted here: {detail}") from None

    def tear_down(self) -> None:
        for number in self._numbers:
            _run("ip", "netns", "del", self._name(number), check=False)
            _run("ip", "link", "del", self._outer(number), check=False)
        _run("ip", "link", "del", self._bridge, check=False)

    def _add(self, number: int) -> None:
        name, outer = self._name(number), self._outer(number)
        _run("ip", "netns", "add", name)
        inner = ("peer", "name", "eth0", "netns", name)
        _run("ip", "link", "add", outer, "type", "veth", *inner)
        _run("ip", "link", "set", outer, "master", self._bridge, "up")
        _run(*self.within(number), "ip", "link", "set", "lo", "up")
        address = f"{self.address(number)}/24"
        _run(*self.within(number), "ip", "address", "add", address, "dev", "eth0")
        _run(*self.within(number), "ip", "link", "set", "eth0", "up")

    def _name(self, number: int) -> str:
        return f"{self._bridge}n{number}"

    def _outer(self, number: int) -> str:
        return f"{self._bridge}v{number}"


@contextmanager
def networks(count: int) -> Iterator[Networks]:
    """Yield networks; CannotBuild, with the reason, where that is not permitted."""
    made = Networks(count)
    try:
        made.build()
        yield made
    finally:
        made.tear_down()


def _run(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=True, text=True, timeout=20)
