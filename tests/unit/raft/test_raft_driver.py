"""The driver: what callers get, on virtual time, and once on a real disk with real threads."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from headrace.ids import BrokerId
from headrace.log.real_disk import RealDisk
from headrace.raft.driver import RaftDriver
from headrace.raft.errors import (
    MembershipRefused,
    NotLeader,
    ProposalLost,
    ProposalUncertain,
    RaftStopped,
    ReadDropped,
)
from headrace.raft.membership import Membership
from headrace.raft.messages import (
    Heartbeat,
    HeartbeatAnswer,
    Message,
    ReadAnswer,
    ReadRequest,
    TimeoutNow,
)
from headrace.raft.settings import RaftSettings
from headrace.raft.state import Role
from headrace.testing.disk import SimulatedDisk
from headrace.testing.virtual_loop import run_virtual
from tests.unit.raft.quorums import FAST, Journal, Quorum

ONE, TWO, THREE, FOUR = map(BrokerId, range(1, 5))


def test_a_quorum_of_one_takes_proposals_as_soon_as_it_is_started() -> None:
    async def main() -> None:
        async with Quorum(1) as quorum:
            begin = asyncio.get_running_loop().time()
            assert await quorum.drivers[ONE].propose(b"a") == 2  # behind the no-op
            assert await quorum.drivers[ONE].propose(b"b") == 3
            assert quorum.journals[ONE].applied == [(2, b"a"), (3, b"b")]
            assert await quorum.drivers[ONE].read_index() == 3
            assert asyncio.get_running_loop().time() - begin < 0.05, "no election timeout"

    run_virtual(main())


def test_concurrent_proposals_share_syncs() -> None:
    async def main() -> None:
        async with Quorum(1) as quorum:
            await quorum.drivers[ONE].propose(b"first")
            before = quorum.disks[ONE].counts["sync"]
            values = [b"%d" % number for number in range(64)]
            indices = await asyncio.gather(*map(quorum.drivers[ONE].propose, values))
            assert indices == list(range(3, 67))
            assert quorum.journals[ONE].values[1:] == values
            assert quorum.disks[ONE].counts["sync"] - before <= 2

    run_virtual(main())


def test_three_nodes_apply_the_same_and_followers_name_the_leader() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            index = await leader.propose(b"a")
            follower = next(each for each in quorum.drivers.values() if each is not leader)
            with pytest.raises(NotLeader, match=f"ask node {leader.node}") as caught:
                await follower.propose(b"b")
            assert caught.value.leader == leader.node
            assert caught.value.is_retriable
            assert await follower.read_index() >= index
            assert quorum.journals[follower.node].values == [b"a"]

    run_virtual(main())


def test_a_new_leader_goes_on_when_the_old_one_is_gone() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            old = await quorum.leader()
            await old.propose(b"a")
            await quorum.stop(old.node)
            leader = await quorum.leader()
            await leader.propose(b"b")
            assert quorum.journals[leader.node].values == [b"a", b"b"]
            back = await quorum.start(old.node, quorum.members)
            await quorum.until(lambda: quorum.journals[back.node].values == [b"a", b"b"])

    run_virtual(main())


def test_no_timeout_passes_before_a_leader_is_replaced_that_does_not_run_any_more() -> None:
    async def main() -> None:
        patient = RaftSettings(election_timeout_ms=60_000, heartbeat_ms=20)
        async with Quorum(1, 2, 3, settings=patient) as quorum:
            quorum.drivers[ONE].receive([TimeoutNow(TWO, ONE, quorum.drivers[ONE].state.term)])
            old = await quorum.leader()
            await old.propose(b"a")
            await quorum.stop(old.node)
            for driver in quorum.drivers.values():
                driver.note_gone(old.node)
            leader = await quorum.leader()  # gives up after 10 seconds
            await leader.propose(b"b")
            assert quorum.journals[leader.node].values == [b"a", b"b"]

    run_virtual(main())


def test_split_votes_are_cast_again_before_an_election_timeout_has_passed() -> None:
    async def main() -> None:
        patient = RaftSettings(election_timeout_ms=60_000, heartbeat_ms=20)
        async with Quorum(1, 2, 3, settings=patient) as quorum:
            await quorum.stop(ONE)
            for driver in quorum.drivers.values():
                driver.receive([TimeoutNow(ONE, driver.node, driver.state.term)])
            leader = await quorum.leader()  # gives up after 10 seconds
            await leader.propose(b"a")

    run_virtual(main())


def test_a_leader_that_one_follower_takes_for_gone_leads_on() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            term = leader.state.term
            mistaken = next(each for each in quorum.drivers.values() if each is not leader)
            for _ in range(20):
                mistaken.note_gone(leader.node)
                await leader.propose(b"a")
                await asyncio.sleep(0.05)
            assert leader.state.role is Role.LEADER
            assert leader.state.term == term
            assert mistaken.leader == leader.node

    run_virtual(main())


def test_a_follower_holds_still_as_promised_even_if_the_leader_seems_gone() -> None:
    async def main() -> None:
        leased = msgspec.structs.replace(FAST, has_lease_reads=True)
        async with Quorum(1, 2, 3, settings=leased) as quorum:
            leader = await quorum.leader()
            await leader.propose(b"a")
            quorum.cut.add(leader.node)
            others = [each for each in quorum.drivers.values() if each is not leader]
            for driver in others:
                driver.note_gone(leader.node)
            held = [driver for driver in others if driver.state.is_held]
            while any(driver.state.hold_until_ms > quorum.now_ms(driver.node) for driver in others):
                assert all(driver.state.role is Role.FOLLOWER for driver in others)
                await asyncio.sleep(0.001)
            assert held
            new = await quorum.leader(other_than=leader.node)
            await new.propose(b"b")

    run_virtual(main())


def test_a_proposal_that_was_replaced_is_lost_for_sure() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            old = await quorum.leader()
            await old.propose(b"a")
            quorum.cut = {old.node}
            lost = asyncio.ensure_future(old.propose(b"lost"))
            leader = await quorum.leader(other_than=old.node)
            await leader.propose(b"b")
            quorum.cut = set()
            with pytest.raises(ProposalLost, match="propose it again"):
                await lost
            assert b"lost" not in quorum.journals[leader.node].values

    run_virtual(main())


def test_a_proposal_without_a_quorum_ends_in_uncertainty() -> None:
    async def main() -> None:
        settings = msgspec.structs.replace(FAST, proposal_timeout_ms=500)
        async with Quorum(1, 2, 3, settings=settings) as quorum:
            leader = await quorum.leader()
            quorum.cut = {ONE, TWO, THREE}
            with pytest.raises(ProposalUncertain, match=r"proposal\.timeout\.ms has passed"):
                await leader.propose(b"a")

    run_virtual(main())


def test_a_read_without_a_quorum_is_dropped_not_served() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            await leader.propose(b"a")
            quorum.cut = {ONE, TWO, THREE}
            with pytest.raises(ReadDropped):
                await leader.read_index()
            with pytest.raises(NotLeader):
                await leader.read_index()

    run_virtual(main())


def test_an_answer_to_a_read_of_a_former_life_answers_no_other_read() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            await leader.propose(b"a")
            node = next(each for each in quorum.drivers if each != leader.node)
            quorum.held = (ReadAnswer,)
            before = asyncio.ensure_future(quorum.drivers[node].read_index())
            await quorum.until(lambda: len(quorum.late) == 1)
            await quorum.stop(node)
            with pytest.raises(RaftStopped):
                await before
            await leader.propose(b"b")

            follower = await quorum.start(node)
            await quorum.until(lambda: follower.state.leader == leader.node)
            assert follower.state.term == leader.state.term, "else the answer is void anyhow"
            true_index = await leader.propose(b"c")
            quorum.held = (ReadAnswer, ReadRequest)  # nobody answers the new read
            read = asyncio.ensure_future(follower.read_index())
            await quorum.until(lambda: len(quorum.late) == 2)
            quorum.late = [each for each in quorum.late if isinstance(each, ReadAnswer)]
            quorum.send_late()
            with pytest.raises(ReadDropped):
                assert await read >= true_index

    run_virtual(main())


def test_leadership_goes_where_it_is_sent() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            await leader.propose(b"a")
            target = next(each for each in quorum.drivers if each != leader.node)
            leader.transfer(target)
            assert (await quorum.leader(other_than=leader.node)).node == target

    run_virtual(main())


def test_members_come_and_go() -> None:
    async def main() -> None:
        async with Quorum(1) as quorum:
            leader = quorum.drivers[ONE]
            await leader.propose(b"a")
            await quorum.start(4)
            await leader.add_learner(FOUR)
            await quorum.until(lambda: quorum.journals[FOUR].values == [b"a"])
            index = await leader.promote(FOUR)
            assert leader.state.membership == Membership((ONE, FOUR))
            assert await leader.remove(FOUR) == index + 1
            await quorum.stop(FOUR)
            await leader.propose(b"b")

    run_virtual(main())


def test_a_read_does_not_wait_for_a_leader_that_was_replaced() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            other = quorum.drivers[min(set(quorum.drivers) - {leader.node})]
            await quorum.until(lambda: other.leader == leader.node)
            reading = asyncio.ensure_future(other.read_index())
            await asyncio.sleep(0)
            other.state.set_leader(None)
            other.receive([])
            with pytest.raises(ReadDropped):
                await reading

    run_virtual(main())


def test_a_demoted_voter_stays_and_hears_of_everything() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            other, third = sorted(set(quorum.drivers) - {leader.node})
            await leader.demote(other)
            voters = tuple(sorted((leader.node, third)))
            assert leader.state.membership == Membership(voters, (other,))
            await leader.propose(b"a")
            await quorum.until(lambda: quorum.journals[other].values == [b"a"])
            with pytest.raises(MembershipRefused):
                await leader.demote(other)
            await leader.promote(other)
            assert leader.state.membership == Membership((ONE, TWO, THREE))

    run_virtual(main())


def test_a_leader_that_demotes_itself_lets_another_lead() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            demoting = asyncio.ensure_future(leader.demote(leader.node))
            await asyncio.sleep(0)
            with pytest.raises(MembershipRefused):
                await leader.promote(leader.node)
            await demoting
            successor = await quorum.leader(other_than=leader.node)
            await successor.propose(b"a")
            assert successor.state.membership.learners == (leader.node,)
            await quorum.until(lambda: quorum.journals[leader.node].values == [b"a"])

    run_virtual(main())


def test_a_leader_knows_when_members_had_everything() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            await leader.propose(b"a")
            other = min(set(quorum.drivers) - {leader.node})
            progress = leader.state.progress[other]
            await quorum.until(lambda: progress.caught_up_ms == progress.contact_ms)
            await quorum.stop(other)
            await leader.propose(b"b")
            assert progress.match_index < leader.state.log.last_index
            before_ms = progress.caught_up_ms
            await leader.propose(b"c")
            assert progress.caught_up_ms == before_ms

    run_virtual(main())


def test_snapshots_by_size_keep_the_log_short_and_bring_newcomers_up() -> None:
    async def main() -> None:
        settings = msgspec.structs.replace(
            FAST, snapshot_trigger_bytes=1024, kept_entries=2, segment_bytes=1024
        )
        async with Quorum(1, settings=settings) as quorum:
            leader = quorum.drivers[ONE]
            for number in range(200):
                await leader.propose(b"value %d" % number)
            await quorum.until(lambda: leader.state.snapshot.index > 150)
            assert len(leader.state.log.entries) < 60
            await quorum.until(lambda: len(quorum.disks[ONE].list("raft")) < 8)
            await quorum.start(4)
            await leader.add_learner(FOUR)
            await quorum.until(lambda: len(quorum.journals[FOUR].applied) == 200)
            assert quorum.journals[FOUR].applied == quorum.journals[ONE].applied
            await quorum.stop(ONE)
            quorum.disks[ONE].crash()
            again = await quorum.start(1)
            assert await again.propose(b"more") > 200
            assert len(quorum.journals[ONE].applied) == 201

    run_virtual(main())


def test_a_snapshot_that_cannot_be_written_stops_nothing() -> None:
    async def main() -> None:
        settings = msgspec.structs.replace(FAST, snapshot_trigger_bytes=1024)
        async with Quorum(1, settings=settings) as quorum:
            quorum.disks[ONE].fail("create", "raft/snapshot*")
            for number in range(100):
                await quorum.drivers[ONE].propose(b"value %d" % number)
            await quorum.until(lambda: quorum.drivers[ONE].state.snapshot.index > 50)

    run_virtual(main())


def test_a_snapshot_beyond_the_bound_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        settings = msgspec.structs.replace(
            FAST, snapshot_trigger_bytes=1024, snapshot_bytes_max=1024
        )
        async with Quorum(1, settings=settings) as quorum:
            for number in range(200):
                await quorum.drivers[ONE].propose(b"value %d" % number)
            assert len(quorum.journals[ONE].applied) == 200

    run_virtual(main())
    assert "keeps its whole log" in caplog.text


def test_a_leader_with_a_slow_disk_leads_on() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            await leader.propose(b"a")
            term = leader.state.term
            quorum.hosts[leader.node].work_seconds = lambda: 5 * FAST.election_timeout_ms / 1000
            begin = asyncio.get_running_loop().time()
            await leader.propose(b"b")
            assert asyncio.get_running_loop().time() - begin > 0.4, "its disk was waited for"
            assert (leader.state.role, leader.state.term) == (Role.LEADER, term)
            assert all(driver.state.term == term for driver in quorum.drivers.values())

    run_virtual(main())


def test_a_follower_with_a_slow_disk_does_not_disturb_the_leader() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            await leader.propose(b"a")
            term = leader.state.term
            slow = next(each for each in quorum.drivers if each != leader.node)
            quorum.hosts[slow].work_seconds = lambda: 5 * FAST.election_timeout_ms / 1000
            for number in range(20):
                await leader.propose(b"%d" % number)
                await asyncio.sleep(0.1)
            assert (leader.state.role, leader.state.term) == (Role.LEADER, term)
            await quorum.until(lambda: len(quorum.journals[slow].applied) == 21)

    run_virtual(main())


def test_a_leader_whose_disk_is_stuck_is_replaced() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            old = await quorum.leader()
            await old.propose(b"a")
            quorum.hosts[old.node].work_seconds = lambda: 1_000_000
            stuck = asyncio.ensure_future(old.propose(b"b"))
            leader = await quorum.leader(other_than=old.node)
            await leader.propose(b"c")
            assert quorum.journals[leader.node].values[-1] == b"c"
            quorum.hosts[old.node].kill()
            await quorum.stop(old.node)
            with pytest.raises(RaftStopped):
                await stuck

    run_virtual(main())


def test_a_leaders_snapshot_waits_for_one_that_is_being_written() -> None:
    async def main() -> None:
        settings = msgspec.structs.replace(
            FAST, snapshot_trigger_bytes=1024, kept_entries=0, segment_bytes=1024
        )
        async with Quorum(1, 2, 3, settings=settings) as quorum:
            leader = await quorum.leader()
            slow = next(each for each in quorum.drivers if each != leader.node)
            quorum.hosts[slow].work_seconds = lambda: 0.05
            for number in range(12):
                await leader.propose(b"value %d" % number + b"." * 60)
            await quorum.until(lambda: bool(quorum.hosts[slow].workers[1].is_busy))
            quorum.hosts[slow].work_seconds = lambda: 1.0
            quorum.cut = {slow}
            for number in range(100):
                await leader.propose(b"value %d" % number + b"." * 60)
            quorum.cut = set()
            applied = quorum.journals[leader.node].applied
            await quorum.until(lambda: quorum.journals[slow].applied == applied)
            await quorum.stop(slow)
            quorum.disks[slow].crash()
            await quorum.start(slow)
            await quorum.until(lambda: quorum.journals[slow].applied == applied)

    run_virtual(main())


def test_who_waits_for_the_end_is_told_why_it_came() -> None:
    async def main() -> None:
        async with Quorum(1) as quorum:
            driver = quorum.drivers[ONE]
            waiting = asyncio.ensure_future(driver.wait_stopped())
            await driver.propose(b"a")
            assert not waiting.done()
            quorum.disks[ONE].fail("sync", "*.raft")
            with pytest.raises(RaftStopped):
                await driver.propose(b"b")
            assert "Input/output error" in await waiting

    run_virtual(main())


def test_stopping_what_was_never_started_is_fine() -> None:
    async def main() -> None:
        driver = RaftDriver(ONE, SimulatedDisk(), "raft", machine=Journal())
        await driver.stop()
        with pytest.raises(RaftStopped, match="it was not started"):
            await driver.propose(b"a")

    run_virtual(main())


def test_a_disk_that_fails_stops_the_node_and_everybody_is_told_why() -> None:
    async def main() -> None:
        async with Quorum(1) as quorum:
            driver = quorum.drivers[ONE]
            await driver.propose(b"a")
            quorum.disks[ONE].fail("sync", "*.raft")
            results = await asyncio.gather(
                driver.propose(b"b"), driver.propose(b"c"), return_exceptions=True
            )
            for result in results:
                assert isinstance(result, RaftStopped)
                assert "Input/output error" in str(result)
            with pytest.raises(RaftStopped, match="Input/output error"):
                await driver.propose(b"d")
            assert driver.failure is not None
            again = await quorum.start(1)
            assert quorum.journals[ONE].values == []
            await again.propose(b"e")
            assert quorum.journals[ONE].values == [b"a", b"e"], "what failed was not promised"

    run_virtual(main())


def test_a_node_with_an_older_copy_of_its_disk_says_so_and_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            number = next(node for node in quorum.drivers if node != leader.node)
            await leader.propose(b"a")
            await quorum.stop(number)
            old = quorum.disks[number].clone()
            follower = await quorum.start(number, quorum.members)
            index = await leader.propose(b"b")
            await quorum.until(lambda: follower.applied_index == index)
            await quorum.stop(number)
            quorum.disks[number] = old
            back = await quorum.start(number, quorum.members)
            reason = await back.wait_stopped()
            assert f"node {number} has confirmed the metadata log up to entry {index}" in reason
            assert "older copy" in reason
            assert f"headrace cluster remove {number}" in reason
            with pytest.raises(RaftStopped, match="older copy"):
                await back.propose(b"c")
            assert await leader.propose(b"d") == index + 1

    run_virtual(main())
    assert not any(record.exc_info for record in caplog.records), "a traceback tells nobody"


def test_an_entry_that_cannot_be_applied_stops_the_node() -> None:
    async def main() -> None:
        async with Quorum(1) as quorum:
            with pytest.raises(RaftStopped, match="ValueError: cannot apply poison"):
                await quorum.drivers[ONE].propose(b"poison")

    run_virtual(main())


def test_who_waits_when_the_node_is_stopped_is_told() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            quorum.cut = {ONE, TWO, THREE}
            waiting = asyncio.ensure_future(leader.propose(b"a"))
            await asyncio.sleep(0.01)
            await quorum.stop(leader.node)
            with pytest.raises(RaftStopped, match="told to stop"):
                await waiting

    run_virtual(main())


def test_a_cancelled_proposal_is_applied_all_the_same() -> None:
    async def main() -> None:
        async with Quorum(1) as quorum:
            waiting = asyncio.ensure_future(quorum.drivers[ONE].propose(b"a"))
            await asyncio.sleep(0)
            waiting.cancel()
            await quorum.drivers[ONE].propose(b"b")
            assert quorum.journals[ONE].values == [b"a", b"b"]

    run_virtual(main())


def test_messages_that_nobody_would_send_are_dropped_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with Quorum(1) as quorum:
            driver = quorum.drivers[ONE]
            await driver.propose(b"a")
            term = driver.state.term
            driver.receive([Heartbeat(TWO, ONE, term, 0, 1), Heartbeat(TWO, THREE, term, 0, 1)])
            await driver.propose(b"b")
            assert driver.state.role is Role.LEADER

    run_virtual(main())
    assert "node 2 leads term 1, and so does 1" in caplog.text
    assert "a message from 2 to 3 at 1" in caplog.text


def test_many_messages_at_once_leave_a_turn_to_others() -> None:
    async def main() -> None:
        async with Quorum(1, 2, 3) as quorum:
            leader = await quorum.leader()
            follower = next(each for each in quorum.drivers.values() if each is not leader)
            heartbeat = Heartbeat(leader.node, follower.node, leader.state.term, 0, 1)
            sent: list[Message] = []
            quorum.held = (HeartbeatAnswer,)
            quorum.late = sent
            follower.receive([heartbeat] * 5000)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert 0 < len(sent) <= 500, "others on the loop have not waited for all of them"
            await quorum.until(lambda: len(sent) >= 5000)

    run_virtual(main())


def test_more_messages_than_the_inbox_holds_are_dropped() -> None:
    async def main() -> None:
        settings = msgspec.structs.replace(FAST, inbox_messages_max=2)
        async with Quorum(1, settings=settings) as quorum:
            driver = quorum.drivers[ONE]
            driver.receive([Heartbeat(TWO, ONE, 0, 0, 1)] * 5)
            assert len(driver._inbox) == 2

    run_virtual(main())


def test_on_a_real_disk_with_real_threads(tmp_path: Path) -> None:
    settings = RaftSettings(snapshot_trigger_bytes=1024, segment_bytes=1024, kept_entries=5)

    async def main() -> list[bytes]:
        disk, journal = RealDisk(tmp_path), Journal()
        driver = RaftDriver(ONE, disk, "raft", machine=journal, settings=settings)
        await driver.start(bootstrap=Membership((ONE,)))
        await asyncio.gather(*(driver.propose(b"%d" % number) for number in range(100)))
        await driver.read_index()
        values = journal.values
        await driver.stop()
        disk.close()
        return values

    expected = [b"%d" % number for number in range(100)]
    assert asyncio.run(main()) == expected
    assert asyncio.run(main()) == expected * 2
