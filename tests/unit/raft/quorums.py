"""Drivers on a virtual loop: a network in memory, disks in memory, threads that are none."""

import asyncio
from collections.abc import Callable
from random import Random

from headrace.ids import BrokerId
from headrace.raft.driver import RaftDriver
from headrace.raft.membership import Membership
from headrace.raft.messages import Message, decode_message, encode_message
from headrace.raft.settings import RaftSettings
from headrace.raft.state import Role
from headrace.testing.disk import SimulatedDisk
from tests.sim.virtual_host import VirtualHost

FAST = RaftSettings(election_timeout_ms=100, heartbeat_ms=20, clock_drift_ms_max=20)


class Journal:
    """A state machine that remembers what was applied."""

    def __init__(self) -> None:
        self.applied: list[tuple[int, bytes]] = []

    def apply(self, index: int, data: bytes) -> None:
        if data == b"poison":
            raise ValueError("cannot apply poison")
        self.applied.append((index, data))

    def snapshot(self) -> bytes:
        return b"".join(b"%d=%s\n" % each for each in self.applied)

    def restore(self, index: int, data: bytes) -> None:
        self.applied = []
        for line in data.splitlines():
            at, _, value = line.partition(b"=")
            self.applied.append((int(at), value))

    @property
    def values(self) -> list[bytes]:
        return [data for _, data in self.applied]


class Quorum:
    """Nodes that hear each other, unless they are cut off."""

    def __init__(self, *numbers: int, settings: RaftSettings = FAST) -> None:
        self.settings = settings
        self.members = Membership(tuple(BrokerId(number) for number in numbers))
        self.drivers: dict[BrokerId, RaftDriver] = {}
        self.journals: dict[BrokerId, Journal] = {}
        self.disks: dict[BrokerId, SimulatedDisk] = {}
        self.hosts: dict[BrokerId, VirtualHost] = {}
        self.cut: set[BrokerId] = set()
        self.held: tuple[type[Message], ...] = ()
        """Kinds of messages that are kept back."""
        self.late: list[Message] = []
        """What was kept back, to be sent by `send_late`."""
        self._lives = 0

    async def __aenter__(self) -> "Quorum":
        for number in self.members.voters:
            await self.start(number, self.members)
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in list(self.drivers):
            await self.stop(number)

    async def start(self, number: int, members: Membership | None = None) -> RaftDriver:
        node = BrokerId(number)
        disk = self.disks.setdefault(node, SimulatedDisk(number))
        journal = self.journals[node] = Journal()
        host = self.hosts[node] = VirtualHost()
        self._lives += 1
        driver = self.drivers[node] = RaftDriver(
            node,
            disk,
            "raft",
            machine=journal,
            transport=self,
            settings=self.settings,
            jitter=Random(f"{number} {self._lives}").randrange,
            host=host,
        )
        await driver.start(bootstrap=members or Membership())
        return driver

    async def stop(self, number: int) -> None:
        await self.drivers.pop(BrokerId(number)).stop()

    def now_ms(self, number: int) -> int:
        """Return the time of a node's clock."""
        return self.hosts[BrokerId(number)].now_ms()

    def send(self, messages: list[Message]) -> None:
        loop = asyncio.get_running_loop()
        for message in messages:
            if isinstance(message, self.held):
                self.late.append(message)
            elif not {message.sender, message.to} & self.cut:
                loop.call_later(0.001, self._arrive, message.to, encode_message(message))

    def send_late(self) -> None:
        """Send what was kept back, and keep nothing back any more."""
        late, self.late, self.held = self.late, [], ()
        self.send(late)

    def _arrive(self, to: BrokerId, data: bytes) -> None:
        if to in self.drivers:
            self.drivers[to].receive([decode_message(data)])

    async def leader(self, *, other_than: int | None = None) -> RaftDriver:
        """Wait until somebody leads, and give who."""
        for _ in range(1000):
            for driver in self.drivers.values():
                is_wanted = driver.node != other_than and driver.node not in self.cut
                if is_wanted and driver.state.role is Role.LEADER:
                    return driver
            await asyncio.sleep(0.01)
        raise AssertionError("nobody leads")

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(1000):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it does not come about")
