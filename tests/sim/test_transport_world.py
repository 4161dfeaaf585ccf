"""Three nodes and their links in virtual time, under cuts, crashes, pauses and slow readers.

Every node sends numbered messages to every other and calls it. What is checked all the time:
whoever a message is attributed to has sent it, in that life; nothing of an older life is delivered
once a newer one was heard of; queues keep their bounds; every call ends in time. When the world has
been calm for a while, all nodes are connected and calls are answered.
"""

import asyncio
from random import Random

from headrace.cluster.transport.calls import CallError, IncomingCall
from headrace.cluster.transport.events import Connected, Event
from headrace.cluster.transport.hello import Identity, Purpose
from headrace.cluster.transport.links import Links
from headrace.cluster.transport.settings import TransportSettings
from headrace.ids import BrokerId as NodeId
from headrace.surroundings import new_random
from headrace.testing.hosts import Host
from headrace.testing.simulation import Simulation

PORT = 9093
NUMBERS = (1, 2, 3)
TELL, ASK = 70, 71
CHAOS_SECONDS = 30.0
CALM_SECONDS = 15.0
CALL_TIMEOUT_MS = 1500
SETTINGS = TransportSettings(
    frame_bytes_max=256 * 1024,
    queue_bytes_max=512 * 1024,
    queue_messages_max=50,
    calls_in_flight_max=16,
    bulk_idle_ms_max=3000,
)


class Violation(Exception):
    """Something happened that must not."""


def address(number: int) -> str:
    return f"10.0.0.{number}"


class Member:
    """One life of a node."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = NodeId(number)
        self.boot_epoch = world.hosts[number].boots
        self.random = new_random()
        self.newest: dict[int, int] = {}
        self.last_told: dict[tuple[int, int, Purpose], int] = {}
        self.links = world.make_links(
            Identity(self.number, bytes([number]) * 16, self.boot_epoch, "mill"), self.on_event
        )
        self.links.on_message(TELL, self.on_told)
        self.links.serve(ASK, self.on_asked)

    async def run(self) -> None:
        await self.links.open(address(self.number), PORT)
        self.links.set_peers(map(NodeId, NUMBERS))
        loop = asyncio.get_running_loop()
        calling = [
            loop.create_task(self.keep_calling(NodeId(peer), purpose))
            for peer in NUMBERS
            for purpose in Purpose
            if peer != self.number
        ]
        await self.keep_telling()
        await asyncio.gather(*calling)

    async def keep_telling(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(self.random.expovariate(100))
            for peer in NUMBERS:
                number += 1
                purpose = self.random.choice(list(Purpose))
                filling = bytes(self.random.choice((0, 10, 1000, 50_000)))
                text = b"%d %d %d %d " % (self.number, self.boot_epoch, purpose, number)
                self.links.send(NodeId(peer), TELL, [text, filling], purpose=purpose)
                self.world.told += 1
            self.check_bounds()

    async def keep_calling(self, peer: NodeId, purpose: Purpose) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.random.expovariate(20))
            payload = b"%d %d %d" % (self.number, self.boot_epoch, self.random.getrandbits(60))
            began = loop.time()
            try:
                response = await self.links.call(
                    peer, payload, CALL_TIMEOUT_MS, kind=ASK, purpose=purpose
                )
            except CallError as error:
                self.world.outcomes[type(error).__name__] += 1
            else:
                self.world.outcomes["answered"] += 1
                self.world.answered_at[self.number, peer, purpose] = self.world.simulation.now
                if response != b"%d answers " % peer + payload:
                    self.world.violate(f"{response!r} to {payload!r}")
            host = self.world.hosts[self.number]
            lateness = loop.time() - began - CALL_TIMEOUT_MS / 1000
            is_awake = self.world.simulation.now - host.paused_until > CALL_TIMEOUT_MS / 1000
            if lateness > 0.2 and is_awake:
                self.world.violate(f"a call took {lateness} s more than its timeout")

    def on_told(self, sender: Identity, payload: memoryview) -> None:
        node, epoch, purpose, number = map(int, bytes(payload[:60]).split()[:4])
        self.judge(sender, node, epoch)
        key = node, epoch, Purpose(purpose)
        if number <= self.last_told.get(key, 0):
            self.world.violate(f"{number} of {key} comes twice or late")
        self.last_told[key] = number
        self.world.delivered += 1

    def on_asked(self, call: IncomingCall) -> None:
        node, epoch, _ = map(int, bytes(call.payload).split())
        self.judge(call.sender, node, epoch)
        luck = self.random.random()
        answer = b"%d answers " % self.number, bytes(call.payload)
        if luck < 0.02:
            return  # never answered
        if luck < 0.1:
            seconds = self.random.uniform(0, 2)
            asyncio.get_running_loop().call_later(seconds, lambda: call.answer(*answer))
        else:
            call.answer(*answer)

    def judge(self, sender: Identity, node: int, epoch: int) -> None:
        if (sender.node, sender.boot_epoch) != (node, epoch):
            self.world.violate(f"{node} in life {epoch} was taken for {sender}")
        if epoch < self.newest.get(node, 0):
            self.world.violate(f"{node} in life {epoch} is heard after {self.newest[node]}")
        self.newest[node] = epoch

    def on_event(self, event: Event) -> None:
        self.world.events[type(event).__name__] += 1
        if isinstance(event, Connected):
            node = event.peer.node
            self.newest[node] = max(self.newest.get(node, 0), event.peer.boot_epoch)

    def check_bounds(self) -> None:
        for state in self.links.describe():
            if state.queued_bytes > SETTINGS.queue_bytes_max:
                self.world.violate(f"{state} has too much in its queue")
            if state.queued_messages > SETTINGS.queue_messages_max:
                self.world.violate(f"{state} has too many in its queue")
            if state.calls_in_flight > SETTINGS.calls_in_flight_max:
                self.world.violate(f"{state} has too many calls")
        if self.links.accepted_count > 8 * len(NUMBERS):
            self.world.violate(f"{self.links.accepted_count} connections of {len(NUMBERS)} nodes")


class World:
    """Plays one seed."""

    def __init__(self, seed: int, chaos_seconds: float = CHAOS_SECONDS) -> None:
        self.seed = seed
        self.chaos_seconds = chaos_seconds
        self.simulation = Simulation(seed)
        self.random = Random(f"transport/{seed}")
        self.hosts: dict[int, Host] = {}
        self.members: dict[int, Member] = {}
        self.told = self.delivered = 0
        self.outcomes: dict[str, int] = _Counts()
        self.events: dict[str, int] = _Counts()
        self.answered_at: dict[tuple[int, int, Purpose], float] = {}

    def make_links(self, identity: Identity, on_event: object) -> Links:
        return Links(
            identity,
            secret=b"s3cret",
            address_of=lambda node: (address(node), PORT),
            on_event=on_event,  # type: ignore[arg-type]
            settings=SETTINGS,
        )

    def run(self) -> None:
        for number in NUMBERS:
            self.hosts[number] = self.simulation.host(address(number))
        self.simulation.run(self.main())

    async def main(self) -> None:
        for number in NUMBERS:
            self.start(number)
        while self.simulation.now < self.chaos_seconds:
            await asyncio.sleep(self.random.expovariate(1.5))
            self.random.choice(
                (
                    self.cut,
                    self.cut_one_way,
                    self.crash,
                    self.pause,
                    self.reset,
                    self.slow_down,
                    self.heal,
                )
            )()
        self.heal()
        for number in NUMBERS:
            self.start(number)
        await asyncio.sleep(CALM_SECONDS)
        self.check_calm()

    # What happens

    def start(self, number: int) -> None:
        host = self.hosts[number]
        if not host.is_up:
            host.boot()
        elif number in self.members:
            return
        self.members[number] = host.call(Member, self, number)
        host.spawn(self.members[number].run())

    def violate(self, what: str) -> None:
        """End the play: something was seen that must not be."""
        self.simulation.fail(Violation(what))

    def two(self) -> tuple[str, str]:
        one, other = self.random.sample(NUMBERS, 2)
        return address(one), address(other)

    def cut(self) -> None:
        one, other = self.two()
        self.simulation.network.partition([one], [other])

    def cut_one_way(self) -> None:
        self.simulation.network.cut(*self.two())

    def heal(self) -> None:
        self.simulation.network.heal()
        for link in self.simulation.network.links.values():
            link.seconds_max = 0.002

    def crash(self) -> None:
        number = self.random.choice(NUMBERS)
        if self.hosts[number].is_up:
            self.hosts[number].crash(power=self.random.random() < 0.5)
            del self.members[number]
            self.simulation.call_later(self.random.uniform(0, 4), self.restart, number)

    def restart(self, number: int) -> None:
        if not self.hosts[number].is_up:
            self.simulation.observer.call(self.start, number)

    def pause(self) -> None:
        self.hosts[self.random.choice(NUMBERS)].pause(self.random.uniform(0.1, 6))

    def reset(self) -> None:
        self.simulation.network.reset(*self.two())

    def slow_down(self) -> None:
        self.simulation.network.link(*self.two()).seconds_max = self.random.uniform(0.05, 0.8)

    # What must be so

    def check_calm(self) -> None:
        now = self.simulation.now
        for number, member in self.members.items():
            for peer in NUMBERS:
                if peer == number:
                    continue
                identity = member.links.connected(NodeId(peer))
                life = self.members[peer].boot_epoch
                if identity is None or (identity.node, identity.boot_epoch) != (peer, life):
                    raise Violation(f"{number} takes {identity} for life {life} of {peer}")
                for purpose in (Purpose.CONTROL, Purpose.BULK):
                    last = self.answered_at.get((number, peer, purpose), 0.0)
                    if now - last > 5:
                        raise Violation(f"{number} gets no response of {peer} since {last}")


class _Counts(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return 0
