"""A disk without room: nothing is lost or confirmed, changes are refused, and it passes."""

import asyncio
import errno
import logging

import msgspec
import pytest

from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.raft.driver import RaftDriver
from headrace.raft.errors import DiskFull, NotLeader, ProposalUncertain, RaftStopped
from headrace.raft.full_disk import FullDisk, OutOfSpace
from headrace.raft.state import Role
from headrace.testing.disk import Operation
from headrace.testing.virtual_loop import run_virtual
from tests.unit.raft.quorums import FAST, Quorum

ONE = BrokerId(1)
NO_SPACE = OutOfSpace(errno.ENOSPC, "No space left on device", "00.raft")


async def fill(quorum: Quorum, driver: RaftDriver, bytes_left: int = 10) -> None:
    """Fill a node's disk up and let it find that out by a proposal of its own."""
    quorum.disks[driver.node].fill_up(bytes_left)
    with pytest.raises(ProposalUncertain, match="has no room for its metadata log"):
        await driver.propose(b"found no room")


def test_a_quorum_of_one_refuses_changes_while_its_disk_is_full_and_then_goes_on() -> None:
    async def main() -> None:
        async with Quorum(1) as quorum:
            driver = quorum.drivers[ONE]
            await driver.propose(b"a")
            await fill(quorum, driver)
            for _ in range(50):
                with pytest.raises(DiskFull, match="No space left on device") as refused:
                    await driver.propose(b"refused")
                assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
                assert refused.value.is_retriable
                await asyncio.sleep(1)
            assert quorum.journals[ONE].values == [b"a"]
            quorum.disks[ONE].make_room()
            await quorum.until(lambda: driver.full_disk.reason is None)
            await driver.propose(b"b")
            assert quorum.journals[ONE].values == [b"a", b"found no room", b"b"]
            quorum.disks[ONE].crash()
            await quorum.stop(ONE)
            again = await quorum.start(1)
            await again.read_index()
            assert quorum.journals[ONE].values == [b"a", b"found no room", b"b"]

    run_virtual(main())


def test_reads_go_on_while_the_disk_is_full() -> None:
    async def main() -> None:
        async with Quorum(1) as quorum:
            driver = quorum.drivers[ONE]
            index = await driver.propose(b"a")
            await fill(quorum, driver)
            assert await driver.read_index() == index
            assert quorum.journals[ONE].values == [b"a"]

    run_virtual(main())


def test_a_node_killed_while_its_disk_is_full_has_what_it_confirmed() -> None:
    async def main() -> None:
        async with Quorum(1) as quorum:
            driver = quorum.drivers[ONE]
            await driver.propose(b"a")
            await fill(quorum, driver)
            quorum.hosts[ONE].kill()
            await quorum.stop(ONE)
            quorum.disks[ONE].crash()
            again = await quorum.start(1)
            with pytest.raises(DiskFull, match="free some space"):
                await again.read_index()
            with pytest.raises(DiskFull):  # not left to wait, either, once it is known
                await again.read_index()
            quorum.disks[ONE].make_room()
            await quorum.until(lambda: again.full_disk.reason is None)
            await again.read_index()
            assert quorum.journals[ONE].values == [b"a"]

    run_virtual(main())


def test_a_node_that_stops_while_its_disk_is_full_tells_who_waits() -> None:
    async def main() -> None:
        async with Quorum(1) as quorum:
            driver = quorum.drivers[ONE]
            await driver.propose(b"a")
            await fill(quorum, driver)
            await quorum.stop(ONE)
            with pytest.raises(RaftStopped, match="told to stop"):
                await driver.propose(b"b")
            before = quorum.disks[ONE].counts["append"]
            await asyncio.sleep(60)
            assert quorum.disks[ONE].counts["append"] == before, "nobody writes any more"

    run_virtual(main())


def test_a_leader_without_room_hands_over_to_a_node_that_has_some() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            old = await quorum.leader()
            await old.propose(b"a")
            begin = asyncio.get_running_loop().time()
            await fill(quorum, old)
            leader = await quorum.leader(other_than=old.node)
            took_ms = 1000 * (asyncio.get_running_loop().time() - begin)
            assert took_ms < FAST.election_timeout_ms, "nobody had to notice a silence"
            await leader.propose(b"b")
            with pytest.raises(NotLeader, match=f"ask node {leader.node}"):
                await old.propose(b"c")
            quorum.disks[old.node].make_room()
            values = quorum.journals[leader.node].values
            assert values == [b"a", b"found no room", b"b"], "two of three had room for it"
            await quorum.until(lambda: quorum.journals[old.node].values == values)

    run_virtual(main())


def test_a_leader_without_room_stays_for_a_while_if_nobody_else_could_be_elected() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            index = await leader.propose(b"a")
            other = next(each for each in quorum.drivers if each != leader.node)
            await quorum.stop(other)
            await asyncio.sleep(2 * FAST.election_timeout_ms / 1000)
            await fill(quorum, leader)
            await asyncio.sleep(2 * FAST.election_timeout_ms / 1000)
            assert leader.state.role is Role.LEADER
            assert await leader.read_index() == index
            quorum.disks[leader.node].make_room()
            await quorum.until(lambda: len(quorum.journals[leader.node].values) == 2)
            assert leader.state.role is Role.LEADER

    run_virtual(main())


def test_a_follower_without_room_lags_and_catches_up() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            await leader.propose(b"a")
            term = leader.state.term
            full = next(each for each in quorum.drivers.values() if each is not leader)
            await full.read_index()
            quorum.disks[full.node].fill_up(10)
            for number in range(20):
                await leader.propose(b"%d" % number)
                await asyncio.sleep(0.1)
            assert (leader.state.role, leader.state.term) == (Role.LEADER, term)
            assert quorum.journals[full.node].values == [b"a"]
            with pytest.raises(DiskFull):  # it cannot apply what the leader has committed
                await full.read_index()
            quorum.disks[full.node].make_room()
            await quorum.until(lambda: len(quorum.journals[full.node].values) == 21)
            assert await full.read_index() == leader.applied_index

    run_virtual(main())


def test_a_follower_that_needs_a_snapshot_takes_it_when_there_is_room() -> None:
    async def main() -> None:
        settings = msgspec.structs.replace(
            FAST, snapshot_trigger_bytes=1024, kept_entries=0, segment_bytes=1024
        )
        async with Quorum(1, 2, 3, settings=settings) as quorum:
            leader = await quorum.leader()
            await leader.propose(b"a")
            full = next(each for each in quorum.drivers if each != leader.node)
            await quorum.until(lambda: quorum.journals[full].values == [b"a"])
            quorum.disks[full].fill_up(10)
            for number in range(100):
                await leader.propose(b"value %d" % number + b"." * 60)
            await asyncio.sleep(5)
            assert quorum.journals[full].values == [b"a"]
            for room in (100, 1000, 3000):  # not enough, or for a part of it
                quorum.disks[full].fill_up(room)
                await asyncio.sleep(6)
            quorum.disks[full].make_room()
            applied = quorum.journals[leader.node].applied
            await quorum.until(lambda: quorum.journals[full].applied == applied)
            await quorum.stop(full)
            quorum.disks[full].crash()
            await quorum.start(full)
            await quorum.until(lambda: quorum.journals[full].applied == applied)

    run_virtual(main())


def test_any_other_error_of_the_disk_still_stops_the_node() -> None:
    async def main(operation: Operation, error: int) -> None:
        async with Quorum(1) as quorum:
            driver = quorum.drivers[ONE]
            await driver.propose(b"a")
            quorum.disks[ONE].fail(operation, "*.raft", error=error)
            with pytest.raises(RaftStopped):
                await driver.propose(b"b")
            assert driver.failure is not None

    run_virtual(main("append", errno.EIO))
    run_virtual(main("sync", errno.EIO))
    # It may be that the kernel has dropped what it had no room for: not to be tried again.
    run_virtual(main("sync", errno.ENOSPC))
    run_virtual(main("sync", errno.EDQUOT))


def test_a_quota_that_is_used_up_is_a_full_disk() -> None:
    async def main() -> None:
        async with Quorum(1) as quorum:
            driver = quorum.drivers[ONE]
            await driver.propose(b"a")
            quorum.disks[ONE].fail("append", "*.raft", error=errno.EDQUOT, times=3)
            with pytest.raises(ProposalUncertain, match="quota exceeded"):
                await driver.propose(b"b")
            await quorum.until(lambda: quorum.journals[ONE].values == [b"a", b"b"])

    run_virtual(main())


def test_a_full_disk_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with Quorum(1) as quorum:
            driver = quorum.drivers[ONE]
            await driver.propose(b"a")
            await fill(quorum, driver)
            await asyncio.sleep(100)
            quorum.disks[ONE].make_room()
            await quorum.until(lambda: driver.full_disk.reason is None)

    caplog.set_level(logging.INFO, "headrace.raft")
    run_virtual(main())
    begin, end = caplog.messages
    assert "node 1 has no room for its metadata log" in begin
    assert "No space left on device" in begin
    assert "node 1 has room for its metadata log again after 10" in end


def test_a_full_disk_is_tried_again_after_waits_that_grow_up_to_a_bound() -> None:
    disk = FullDisk(ONE, retry_ms_max=1000)
    now_ms, waits = 0, []
    for _ in range(6):
        retry_ms = disk.note_full(NO_SPACE, now_ms)
        waits.append(retry_ms - now_ms)
        now_ms = retry_ms
    assert waits == [100, 200, 400, 800, 1000, 1000]


def test_a_disk_that_is_full_again_at_once_is_tried_less_often() -> None:
    disk = FullDisk(ONE, retry_ms_max=1000)
    waits = []
    for now_ms in (0, 10, 20, 5000):
        waits.append(disk.note_full(NO_SPACE, now_ms) - now_ms)
        disk.note_room(now_ms + 5)
    assert waits == [100, 200, 400, 100]


def test_snapshots_of_a_node_on_a_full_disk_do_not_stop_it() -> None:
    async def main() -> None:
        settings = msgspec.structs.replace(
            FAST, snapshot_trigger_bytes=1024, kept_entries=0, segment_bytes=1024
        )
        async with Quorum(1, settings=settings) as quorum:
            driver = quorum.drivers[ONE]
            quorum.disks[ONE].fail("create", "*", error=errno.ENOSPC, times=1000)
            for number in range(100):
                await driver.propose(b"value %d" % number + b"." * 60)
            assert list(quorum.disks[ONE].list("raft")) == ["00000000000000000001.raft", "snapshot"]
            quorum.disks[ONE].heal()
            for number in range(100):
                await driver.propose(b"value %d" % number + b"." * 60)
            await quorum.until(lambda: driver.state.snapshot.index > 100)
            await driver.propose(b"last")
            applied = quorum.journals[ONE].applied
            await quorum.stop(ONE)
            quorum.disks[ONE].crash()
            again = await quorum.start(1)
            await again.read_index()
            assert quorum.journals[ONE].applied == applied

    run_virtual(main())
