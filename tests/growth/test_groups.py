"""What groups, transactions and their coordinators cost, as there are more of everything."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pytest

from headrace.coordinator.loading import SLICE_RECORDS_MAX
from headrace.coordinator.placement import java_hash
from headrace.groups.administration import GroupFilter, list_groups
from headrace.groups.assignors import ASSIGNORS, Assignment, AssignmentSpec, MemberSpec
from headrace.groups.assignors.simple import assign_simply
from headrace.groups.consumer import regex_subscriptions
from headrace.groups.consumer.draft import Draft
from headrace.groups.consumer.members import ConsumerMember
from headrace.groups.offsets.expiry import OFFSET_EXPIRY, forget_topic
from headrace.groups.offsets.fetches import OffsetQuery, snapshot_offsets
from headrace.groups.offsets.store import CommittedOffset
from headrace.groups.regular_expressions import (
    QUICK_COST_MAX,
    matching_cost,
    matching_parts,
    matching_topics,
)
from headrace.groups.share.states import forget_topic_states
from headrace.groups.state import MemberId
from headrace.groups.streams.assignor import MemberSpec as StreamsMemberSpec
from headrace.groups.streams.assignor import assign as assign_tasks
from headrace.groups.streams.tasks import NOTHING_TO_RUN, TaskId
from headrace.ids import TopicId
from headrace.loop.deadlines import Deadlines
from tests.growth.steps import assert_grows_linearly, assert_stays_flat, steps
from tests.unit.coordinator.shards import Clock, Journal, commit, new_log, new_shard, turn
from tests.unit.groups.classic.classic_world import World as ClassicWorld
from tests.unit.groups.consumer.consumer_world import World
from tests.unit.groups.machines import Groups, offset, topic
from tests.unit.groups.share.share_world import ShareWorld

WAITING = 200
"""Members of a share group that wait for their first partitions."""

# Offsets of topics that are deleted


def groups_with_offsets(count: int, of: str = "kept") -> Groups:
    groups = Groups()
    for number in range(count):
        groups.state.offsets.put(f"group {number}", (of, 0), CommittedOffset(5))
    return groups


def test_deleting_a_topic_costs_nothing_for_groups_that_have_no_offsets_of_it() -> None:
    def delete(count: int) -> int:
        groups = groups_with_offsets(count)
        groups.commit("reader", topic("gone", offset(0, 5)))
        return steps(lambda: groups.do(forget_topic(groups.state, "gone", groups.now_ms)))

    assert_stays_flat(delete, 100)


def test_deleting_a_topic_costs_nothing_for_share_groups_that_do_not_know_it() -> None:
    def delete(count: int) -> int:
        groups = groups_with_offsets(count)
        gone = TopicId(b"g" * 16)
        return steps(lambda: groups.do(forget_topic_states(groups.state, gone, groups.now_ms)))

    assert_stays_flat(delete, 100)


def test_members_of_a_share_group_that_wait_are_answered_one_by_one() -> None:
    def answer(count: int) -> int:
        world = ShareWorld(
            headrace_group_first_assignment_wait_ms=500, group_share_max_size=2 * WAITING
        )
        world.add_topic("t", 4)
        for number in range(count):
            world.send_share_beat(f"m{number}", 0, ["t"])

        def work() -> None:
            world.begin_states()
            world.pass_time(0)

        cost = steps(work)
        assert len(world.answers) == count
        return cost

    assert_grows_linearly(answer, WAITING)


def test_deleting_a_topic_costs_what_there_is_to_delete() -> None:
    def delete(count: int) -> int:
        groups = groups_with_offsets(count, of="gone")

        def work() -> None:
            groups.do(forget_topic(groups.state, "gone", groups.now_ms))
            while (groups.machine.next_deadline_ms() or groups.now_ms + 1) <= groups.now_ms:
                groups.do(groups.machine.on_deadline(groups.now_ms))

        return steps(work)

    assert_grows_linearly(delete, 600)


def test_a_turn_of_expiry_is_bounded_however_many_groups_there_are() -> None:
    def expire(count: int) -> int:
        groups = groups_with_offsets(count)
        groups.do(groups.machine.on_loaded(groups.now_ms))
        groups.now_ms += 10**10
        groups.machine.on_deadline(groups.now_ms)  # lists the groups, which is quick but not flat
        return steps(lambda: groups.machine.on_deadline(groups.now_ms))

    assert_stays_flat(expire, 5000)


@pytest.mark.parametrize("age_ms", [0, 10**10])
def test_a_turn_of_expiry_is_bounded_however_many_offsets_a_group_has(age_ms: int) -> None:
    def expire(count: int) -> int:
        groups = Groups()
        for number in range(count):
            groups.state.offsets.put(
                "g",
                (f"topic {number % 10}", number),
                CommittedOffset(5, commit_timestamp_ms=groups.now_ms),
            )
        groups.state.deadlines.set((OFFSET_EXPIRY,), groups.now_ms)
        groups.now_ms += age_ms
        return steps(lambda: groups.machine.on_deadline(groups.now_ms))

    assert_stays_flat(expire, 5000)


def test_deleting_a_topic_grows_with_the_partitions_that_a_group_has_offsets_of() -> None:
    def delete(count: int) -> int:
        groups = Groups()
        for index in range(count):
            groups.state.offsets.put("g", ("gone", index), CommittedOffset(5))
        return steps(lambda: groups.do(forget_topic(groups.state, "gone", groups.now_ms)))

    assert_stays_flat(delete, 2000)


@pytest.mark.parametrize("others", [0, 1])
def test_the_end_of_a_transaction_takes_no_python_for_each_offset(others: int) -> None:
    def end(count: int) -> int:
        offsets = Groups().state.offsets
        for producer_id in range(1 + others):
            for index in range(count):
                offsets.put("g", ("a", index), CommittedOffset(5), producer_id=producer_id)
        return steps(lambda: offsets.end_transaction(0, is_commit=True))

    assert_stays_flat(end, 500)


def test_a_snapshot_of_offsets_takes_no_python_for_each_of_them() -> None:
    def snapshot(count: int) -> int:
        groups = Groups()
        for index in range(count):
            groups.state.offsets.put("g", ("a", index), CommittedOffset(5))
        query = OffsetQuery("g", [("a", range(count))])
        return steps(lambda: groups.do(snapshot_offsets(groups.state, query, print)))

    assert_stays_flat(snapshot, 500)


def test_listing_groups_costs_what_is_asked_for() -> None:
    def listing(count: int) -> int:
        groups = groups_with_offsets(count)
        some = [f"group {number}" for number in range(50)]
        return steps(lambda: list_groups(groups.state, GroupFilter(), print, some))

    assert_stays_flat(listing, 100)


# Assignments


def topics(count: int) -> list[TopicId]:
    return [TopicId(number.to_bytes(16)) for number in range(count)]


def assigned_before(names: Iterable[TopicId], partitions: int) -> Assignment:
    """What a member that was alone has: everything."""
    return {name: frozenset(range(partitions)) for name in names}


def alike(member_count: int, names: list[TopicId], partitions: int) -> dict[str, MemberSpec]:
    """Members that come to one that has everything."""
    wanted, everything = frozenset(names), assigned_before(names, partitions)
    return {
        f"m{number}": MemberSpec(wanted, None, {} if number else everything)
        for number in range(member_count)
    }


def various(member_count: int, names: list[TopicId], partitions: int) -> dict[str, MemberSpec]:
    """The same, but each of them does not want one of the topics."""
    everything = assigned_before(names, partitions)
    return {
        f"m{number}": MemberSpec(
            frozenset(names) - ({names[number % len(names)]} if number else set()),
            None,
            {} if number else everything,
        )
        for number in range(member_count)
    }


Make = Callable[[int, list[TopicId], int], Mapping[str, MemberSpec]]


def cost(assignor: str, make: Make, members: int, topic_count: int, partitions: int) -> int:
    names = topics(topic_count)
    specs = make(members, names, partitions)
    if assignor == "simple":
        places = {name: frozenset(range(partitions)) for name in names}
        return steps(lambda: assign_simply(specs, places))
    spec = AssignmentSpec(specs, dict.fromkeys(names, partitions))
    return steps(lambda: ASSIGNORS[assignor](spec))


@pytest.mark.parametrize("make", [alike, various])
@pytest.mark.parametrize("assignor", ["uniform", "range", "simple"])
def test_assigning_grows_with_the_partitions(assignor: str, make: Make) -> None:
    assert_grows_linearly(lambda size: cost(assignor, make, 20, 10, size), 25)


@pytest.mark.parametrize("make", [alike, various])
@pytest.mark.parametrize("assignor", ["uniform", "range", "simple"])
def test_assigning_grows_with_the_members(assignor: str, make: Make) -> None:
    assert_grows_linearly(lambda size: cost(assignor, make, size, 10, 20), 40)


@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("member_count", [1, 8])
def test_assigning_tasks_grows_with_the_tasks(standbys: int, member_count: int) -> None:
    def assign(size: int) -> int:
        tasks = [TaskId("0", index) for index in range(size)]
        members = streams_members(member_count)
        former = assign_tasks(members, tasks, frozenset("0"), standbys)
        members = streams_members(member_count + 2, former)
        return steps(lambda: assign_tasks(members, tasks, frozenset("0"), standbys))

    assert_grows_linearly(assign, 100)


@pytest.mark.parametrize("standbys", [0, 1])
def test_assigning_tasks_grows_with_the_members_of_a_process(standbys: int) -> None:
    def assign(size: int) -> int:
        tasks = [TaskId("0", index) for index in range(200)]
        former = assign_tasks(streams_members(2), tasks, frozenset("0"), standbys)
        members = streams_members(size, former)
        return steps(lambda: assign_tasks(members, tasks, frozenset("0"), standbys))

    assert_grows_linearly(assign, 100)


def streams_members(
    count: int, former: Mapping[MemberId, Any] | None = None
) -> dict[MemberId, StreamsMemberSpec]:
    ids = [MemberId(f"m{number}") for number in range(count)]
    return {
        each: StreamsMemberSpec(f"p{number % 2}", (former or {}).get(each, NOTHING_TO_RUN))
        for number, each in enumerate(ids)
    }


# Members


def consumer_world(member_count: int, topic_count: int) -> World:
    world = World(group_consumer_max_size=10_000)
    world.machine.state.compute_elsewhere = lambda _: None
    names = [f"t{number}" for number in range(topic_count)]
    for name in names:
        world.add_topic(name, 2)
    world.join("first", *names)
    group = world.group()
    for number in range(member_count):
        group.put_member(ConsumerMember(MemberId(f"m{number}"), topic_names=tuple(sorted(names))))
    running: Any = None  # the target is not what is measured here
    world.machine.state.assigning[group.group_id] = running
    return world


def test_a_heartbeat_costs_the_same_in_a_group_of_any_size() -> None:
    def beat(count: int) -> int:
        world = consumer_world(count, 3)
        epoch = world.group().members[MemberId("first")].epoch
        return steps(lambda: world.beat("first", epoch))

    assert_stays_flat(beat, 50)


def test_joining_costs_the_same_in_a_group_of_any_size() -> None:
    def join(count: int) -> int:
        world = consumer_world(count, 3)
        return steps(lambda: world.join("new", "t0", "t1", "t2"))

    assert_stays_flat(join, 50)


def test_joining_grows_with_the_topics_that_are_wanted() -> None:
    def join(count: int) -> int:
        world = consumer_world(5, count)
        names = [f"t{number}" for number in range(count)]
        return steps(lambda: world.join("new", *names))

    assert_grows_linearly(join, 50)


def test_a_pattern_is_matched_with_new_topics_only() -> None:
    def check(count: int) -> int:
        world = World()
        for number in range(count):
            world.add_topic(f"other{number}", 1)
        world.join("m", subscribed_topic_regex="t.*")
        for name in ("late", "t"):
            world.add_topic(name, 1)
            world.pass_time(15_000)
            if name == "late":  # what the group begins with is noted with its next heartbeat
                world.beat("m", world.group().members[MemberId("m")].epoch)
        matched: list[str] = []
        with pytest.MonkeyPatch.context() as patch:

            def counted(pattern: str, names: Iterable[str]) -> frozenset[str]:
                matched.extend(names)
                return matching_topics(pattern, names)

            patch.setattr(regex_subscriptions, "matching_topics", counted)
            world.beat("m", world.group().members[MemberId("m")].epoch)
        return len(matched)

    assert check(10) == check(100) == 1


@pytest.mark.parametrize(
    ("pattern", "is_quick"), [("t.*", True), ("(.?){1000}z", False), ("t" * 1000, False)]
)
def test_a_pattern_that_takes_long_to_match_or_to_compile_is_left_to_a_thread(
    pattern: str, is_quick: bool
) -> None:
    world = World()
    for number in range(20):
        world.add_topic(f"t{number}".ljust(240, "x"), 1, topic_id=bytes([number + 1] * 16))
    world.machine.state.compute_elsewhere = lambda computation: None
    left_to_a_thread: list[Any] = []
    compiled: list[str] = []
    with pytest.MonkeyPatch.context() as patch:

        def noted(pattern: str, names: Iterable[str]) -> int:
            compiled.append(pattern)
            return matching_cost(pattern, names)

        def leave(draft: Draft, elsewhere: Any, matching: Any, running: Any) -> None:
            left_to_a_thread.append(matching)

        patch.setattr(regex_subscriptions, "matching_cost", noted)
        patch.setattr(Draft, "match_elsewhere", leave)
        world.join("m", subscribed_topic_regex=pattern)
    assert bool(left_to_a_thread) is not is_quick
    assert compiled == ([pattern] if len(pattern) < 100 else [])


def test_a_thread_matches_no_more_at_once_than_others_can_wait_for() -> None:
    names = [f"t{number}".ljust(240, "x") for number in range(100)]
    for pattern in ("(.?){1000}z", "t.*", "("):
        parts = [*matching_parts(pattern, names)]
        assert [each for some in parts for each in some] == (names if pattern != "(" else [])
        assert all(matching_cost(pattern, some[:-1]) < QUICK_COST_MAX for some in parts)


def test_a_classic_rebalance_grows_with_the_members() -> None:
    def rebalance(count: int) -> int:
        world = ClassicWorld(group_initial_rebalance_delay_ms=1000)

        def work() -> None:
            for number in range(count):
                world.join(f"m{number}", version=3)
            world.wait(5000)
            assert world.group().generation == 1

        return steps(work)

    assert_grows_linearly(rebalance, 30)


# Coordinators


def test_a_deadline_costs_the_same_however_many_there_are() -> None:
    def move(count: int) -> int:
        deadlines: Deadlines[str] = Deadlines()
        for number in range(count):
            deadlines.set(f"member {number}", 1000 + number)

        def work() -> None:
            for now_ms in range(100):
                deadlines.set("member 0", 2000 + now_ms)
                deadlines.drop("other")
                deadlines.set("other", 500)
                assert deadlines.next_ms() == 500
                deadlines.drop("other")

        return steps(work)

    assert_stays_flat(move, 1000)


def test_a_key_is_placed_by_blocks() -> None:
    assert_stays_flat(lambda size: steps(partial(java_hash, "x" * size)), 8)
    assert_grows_linearly(lambda size: steps(partial(java_hash, "x" * size)), 2000)


def test_others_get_their_turn_while_records_are_loaded() -> None:
    count = 20 * SLICE_RECORDS_MAX

    async def load() -> int:
        journal, clock, turns = Journal(new_log()), Clock(), 0
        writer = new_shard(journal, clock)
        await writer.loaded()
        for number in range(count):
            writer.write(commit(f"t{number}", number, print_nothing), print_nothing)
        await turn()
        shard = new_shard(journal, clock)
        loading = asyncio.get_running_loop().create_task(shard.loaded())
        while not loading.done():
            await asyncio.sleep(0)
            turns += 1
        assert len(shard.machine.committed) == count
        return turns

    assert asyncio.run(load()) >= count // SLICE_RECORDS_MAX


def print_nothing(_: object) -> None:
    """Nobody waits."""
