"""A simulation of hosts: what programs on them see of time, threads, network and crashes."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headrace.surroundings import clocks, new_random, new_uuid
from headrace.testing.hosts import Crashed, Host
from headrace.testing.simulation import Simulation, SimulationFailure
from headrace.testing.virtual_loop import Deadlock

ONE, TWO = "10.0.0.1", "10.0.0.2"


class Peer(asyncio.Protocol):
    """Keeps what it hears; `echo` sends it back."""

    def __init__(self, *, echo: bool = False) -> None:
        self.heard = bytearray()
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.paused = 0
        self.transport: Any = None
        self._echo = echo

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data
        if self._echo:
            self.transport.write(data)

    def pause_writing(self) -> None:
        self.paused += 1

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(exc)


class World:
    """Two hosts, of which one listens."""

    def __init__(self, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        self.one, self.two = self.simulation.host(ONE), self.simulation.host(TWO)
        self.accepted: list[Peer] = []

    async def listen(self, *, echo: bool = False) -> None:
        def accept() -> Peer:
            self.accepted.append(Peer(echo=echo))
            return self.accepted[-1]

        await asyncio.get_running_loop().create_server(accept, ONE, 9000)

    async def connect(self) -> Peer:
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(Peer, ONE, 9000)
        return peer


async def hear(peer: Peer, count: int) -> bytes:
    while len(peer.heard) < count:
        await asyncio.sleep(0.001)
    return bytes(peer.heard)


# Streams


def test_a_stream_brings_every_byte_in_order() -> None:
    world = World()
    sent = bytes(range(256)) * 4000

    async def ask() -> bytes:
        peer = await world.connect()
        for begin in range(0, len(sent), 7000):
            peer.transport.write(sent[begin : begin + 7000])
            await asyncio.sleep(0.0001)
        return await hear(peer, len(sent))

    async def main() -> bytes:
        await world.one.run(world.listen(echo=True))
        return await world.two.run(ask())

    assert world.simulation.run(main()) == sent


def test_a_writer_is_told_to_pause_while_nobody_reads() -> None:
    world = World()
    sent = bytes(1_000_000)

    async def ask() -> tuple[int, int]:
        peer = await world.connect()
        await asyncio.sleep(0.1)
        world.accepted[0].transport.pause_reading()
        peer.transport.write(sent)
        await asyncio.sleep(1)
        return peer.paused, peer.transport.get_write_buffer_size()

    async def main() -> tuple[int, int, int]:
        await world.one.run(world.listen())
        paused, unsent = await world.two.run(ask())
        world.one.call(world.accepted[0].transport.resume_reading)
        await asyncio.sleep(1)
        return paused, unsent, len(world.accepted[0].heard)

    paused, unsent, heard = world.simulation.run(main())
    assert paused == 1
    assert unsent > 800_000
    assert heard == len(sent)


def test_nobody_listens_and_the_connection_is_refused() -> None:
    world = World()

    async def main() -> None:
        with pytest.raises(ConnectionRefusedError):
            await world.two.run(world.connect())

    world.simulation.run(main())


def test_a_cut_holds_up_one_way_and_loses_nothing() -> None:
    world = World()

    async def main() -> tuple[bytes, bytes]:
        await world.one.run(world.listen())
        peer = await world.two.run(world.connect())
        await asyncio.sleep(0.1)
        world.simulation.network.cut(TWO, ONE)
        world.two.call(peer.transport.write, b"held up")
        world.one.call(world.accepted[0].transport.write, b"the other way")
        await asyncio.sleep(5)
        assert bytes(peer.heard) == b"the other way"
        before = bytes(world.accepted[0].heard)
        world.simulation.network.heal()
        await asyncio.sleep(5)
        return before, bytes(world.accepted[0].heard)

    assert world.simulation.run(main()) == (b"", b"held up")


def test_a_connection_is_made_once_a_cut_is_healed() -> None:
    world = World()

    async def main() -> float:
        await world.one.run(world.listen())
        world.simulation.network.partition([ONE], [TWO])
        world.simulation.call_later(2.5, world.simulation.network.heal)
        await world.two.run(world.connect())
        return world.simulation.now

    assert world.simulation.run(main()) >= 2.5


def test_a_closed_connection_says_all_before_it_ends() -> None:
    world = World()

    async def main() -> tuple[bytes, Exception | None]:
        await world.one.run(world.listen())
        peer = await world.two.run(world.connect())
        world.two.call(peer.transport.write, b"last words")
        world.two.call(peer.transport.close)
        await asyncio.sleep(1)
        accepted = world.accepted[0]
        return bytes(accepted.heard), accepted.ended.result()

    assert world.simulation.run(main()) == (b"last words", None)


def test_a_reset_ends_both_sides() -> None:
    world = World()

    async def main() -> tuple[Exception | None, Exception | None]:
        await world.one.run(world.listen())
        peer = await world.two.run(world.connect())
        await asyncio.sleep(0.1)
        world.simulation.network.reset(ONE, TWO)
        await asyncio.sleep(1)
        return peer.ended.result(), world.accepted[0].ended.result()

    assert all(isinstance(each, ConnectionResetError) for each in world.simulation.run(main()))


def test_a_connection_that_is_reset_before_it_is_accepted_ends() -> None:
    world = World()

    async def main() -> Exception | None:
        await world.one.run(world.listen())
        world.one.pause(5)
        peer = await world.two.run(world.connect())
        world.two.call(peer.transport.abort)
        await asyncio.sleep(10)
        return world.accepted[0].ended.result()

    assert isinstance(world.simulation.run(main()), ConnectionResetError)


@pytest.mark.parametrize("pause_seconds", [0.0005, 0.001, 0.002, 3])
def test_a_program_that_gives_up_while_it_connects_leaves_no_connection(
    pause_seconds: float,
) -> None:
    world = World()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(pause_seconds / 2):
                await world.connect()

    async def main() -> int:
        await world.one.run(world.listen())
        giving_up = world.two.start(give_up())
        await asyncio.sleep(0.0001)
        world.two.pause(pause_seconds)
        await giving_up
        await asyncio.sleep(10)
        return len(world.simulation.network.streams)

    assert world.simulation.run(main()) == 0


# Crashes


def test_a_killed_process_hangs_up_at_once() -> None:
    world = World()

    async def main() -> bool:
        await world.one.run(world.listen())
        peer = await world.two.run(world.connect())
        await asyncio.sleep(0.1)
        world.one.crash(power=False)
        await asyncio.sleep(0.1)
        return peer.ended.done()

    assert world.simulation.run(main())


def test_a_machine_without_power_says_nothing_until_it_is_back_and_asked() -> None:
    world = World()

    async def main() -> tuple[bool, bool, Exception | None]:
        await world.one.run(world.listen())
        peer = await world.two.run(world.connect())
        await asyncio.sleep(0.1)
        world.one.crash(power=True)
        world.two.call(peer.transport.write, b"are you there?")
        await asyncio.sleep(60)
        was_told = peer.ended.done()
        world.one.boot()
        await asyncio.sleep(5)
        return was_told, peer.ended.done(), peer.ended.result()

    was_told, is_told, error = world.simulation.run(main())
    assert not was_told
    assert is_told
    assert isinstance(error, ConnectionResetError)


def test_nothing_of_a_crashed_host_runs_again() -> None:
    world = World()
    ticks: list[float] = []

    async def tick() -> None:
        try:
            while True:
                await asyncio.sleep(0.1)
                ticks.append(world.simulation.now)
        finally:
            ticks.append(-1)

    async def main() -> int:
        running = world.one.start(tick())
        await asyncio.sleep(1)
        world.one.crash()
        with pytest.raises(Crashed):
            await running
        count = len(ticks)
        world.one.boot()
        await asyncio.sleep(10)
        assert len(ticks) == count
        return count

    assert world.simulation.run(main()) >= 9


def test_power_takes_what_was_not_synced_and_a_kill_does_not() -> None:
    world = World()
    disk = world.one.disk

    async def write() -> None:
        for name in ("killed", "lost"):
            file = disk.open(name, create=True)
            file.append(b"x" * 100)
            disk.sync_folder("")

    async def main() -> tuple[int, int]:
        await world.one.run(write())
        world.one.crash(power=False)
        world.one.boot()
        killed = len(disk.read("killed"))
        disk.open("killed").sync()
        sizes = []
        for seed in range(20):
            twin = disk.clone(seed)
            twin.crash()
            sizes.append(len(twin.read("lost").rstrip(b"\0")))
        return killed, min(sizes)

    assert world.simulation.run(main()) == (100, 0)


def test_power_goes_between_two_writes() -> None:
    world = World()

    async def write(host: Host) -> None:
        file = host.disk.open("log", create=True)
        for _ in range(100):
            file.append(b"x")
            await asyncio.sleep(0.01)

    async def main() -> int:
        world.one.lose_power_after(50)
        with pytest.raises(Crashed):
            await world.one.run(write(world.one))
        assert not world.one.is_up
        return world.one.disk.counts["append"]

    assert world.simulation.run(main()) == 49


def test_a_paused_host_does_nothing_and_is_late() -> None:
    world = World()

    async def nap() -> float:
        await asyncio.sleep(0.5)
        return world.simulation.now

    async def main() -> float:
        napping = world.one.start(nap())
        world.one.pause(3)
        return await napping

    assert world.simulation.run(main()) >= 3


# Threads


def test_threads_of_one_pool_work_one_after_the_other() -> None:
    world = World()
    done: list[int] = []

    async def work() -> list[int]:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as single:
            given = [loop.run_in_executor(single, done.append, number) for number in range(20)]
            await asyncio.gather(*given)
        return done

    async def main() -> list[int]:
        return await world.one.run(work())

    assert world.simulation.run(main()) == list(range(20))


def test_work_of_a_thread_takes_effect_later_and_errors_come_back() -> None:
    world = World()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        done: list[int] = []
        waiting = loop.run_in_executor(None, done.append, 1)
        assert done == []
        await waiting
        assert done == [1]
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)

    async def main() -> None:
        await world.one.run(work())

    world.simulation.run(main())


# Datagrams


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        self.heard.append(data)


def test_datagrams_are_lost_doubled_and_out_of_order() -> None:
    world = World()
    heard: list[Datagrams] = []

    async def listen() -> None:
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_datagram_endpoint(Datagrams, local_addr=(ONE, 9093))
        heard.append(protocol)

    async def send() -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(Datagrams, remote_addr=(ONE, 9093))
        for number in range(1000):
            transport.sendto(number.to_bytes(2, "big"))
        transport.close()

    async def main() -> list[int]:
        link = world.simulation.network.link(TWO, ONE)
        link.loss, link.duplication = 0.2, 0.1
        await world.one.run(listen())
        await world.two.run(send())
        await asyncio.sleep(1)
        return [int.from_bytes(each, "big") for each in heard[0].heard]

    numbers = world.simulation.run(main())
    assert 600 < len(set(numbers)) < 900
    assert len(numbers) > len(set(numbers)) + 30
    assert numbers != sorted(numbers)


# Surroundings


def test_hosts_have_clocks_and_luck_of_their_own() -> None:
    def look(seed: int) -> list[object]:
        world = World(seed)
        world.two.clock_rate = 1.5
        world.two.wall_offset_ns = 7_000_000_000

        async def see() -> tuple[object, ...]:
            loop = asyncio.get_running_loop()
            before, since_ns = loop.time(), clocks().time_ns()
            await asyncio.sleep(3)
            took = loop.time() - before
            return (
                new_uuid(),
                new_random().random(),
                round(took, 1),
                round((clocks().time_ns() - since_ns) / 1e9, 1),
                since_ns // 1_000_000_000,
            )

        async def main() -> list[object]:
            return [*await world.one.run(see()), *await world.two.run(see()), world.simulation.now]

        return world.simulation.run(main())

    first = look(1)
    assert look(1) == first
    assert look(2)[:2] != first[:2]
    assert first[:2] != first[5:7]
    assert first[2:4] == first[7:9] == [3.0, 3.0]
    assert int(str(first[9])) - int(str(first[4])) >= 7 + 4


# What nobody waits for


def test_an_error_in_a_callback_ends_the_simulation() -> None:
    world = World()

    def fail() -> None:
        raise ValueError("nobody is there to take this")

    async def main() -> None:
        assert world.one.loop is not None
        world.one.call(world.one.loop.call_later, 1, fail)
        await asyncio.sleep(10)

    with pytest.raises(SimulationFailure, match="nobody is there"):
        world.simulation.run(main())


def test_a_simulation_in_which_nothing_can_happen_is_a_deadlock() -> None:
    simulation = Simulation(1)

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        simulation.run(main())
