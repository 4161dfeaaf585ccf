"""The assignor of streams groups: all tasks, evenly, and where they were."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.state import MemberId
from headrace.groups.streams.assignor import MemberSpec, assign
from headrace.groups.streams.tasks import NOTHING_TO_RUN, TaskId, Tasks

STATEFUL = frozenset({"1"})
Assigned = dict[MemberId, Tasks]

processes = st.dictionaries(
    st.sampled_from([MemberId(name) for name in "abcdefg"]),
    st.sampled_from(["p", "q", "r"]),
    min_size=1,
)


def all_tasks(stateless: int, stateful: int) -> list[TaskId]:
    return [TaskId("0", index) for index in range(stateless)] + [
        TaskId("1", index) for index in range(stateful)
    ]


def assigned(
    members: dict[MemberId, str],
    tasks: list[TaskId],
    former: Assigned | None = None,
    standby_count: int = 0,
) -> Assigned:
    specs = {
        member: MemberSpec(process, (former or {}).get(member, NOTHING_TO_RUN))
        for member, process in members.items()
    }
    return assign(specs, tasks, STATEFUL, standby_count)


def moved(before: Assigned, after: Assigned) -> int:
    return sum(
        len(tasks.active - before.get(each, NOTHING_TO_RUN).active) for each, tasks in after.items()
    )


@given(processes, st.integers(0, 9), st.integers(0, 9), st.integers(0, 2))
def test_every_task_is_run_once_and_evenly(
    members: dict[MemberId, str], stateless: int, stateful: int, standby_count: int
) -> None:
    tasks = all_tasks(stateless, stateful)
    found = assigned(members, tasks, standby_count=standby_count)
    assert sorted(task for each in found.values() for task in each.active) == tasks
    loads = [len(each.active) for each in found.values()]
    assert max(loads) - min(loads) <= 1


@given(processes, processes, st.integers(0, 9), st.integers(0, 9), st.integers(0, 2))
def test_copies_are_in_other_processes_and_as_many_as_asked_for(
    before: dict[MemberId, str],
    after: dict[MemberId, str],
    stateless: int,
    stateful: int,
    standby_count: int,
) -> None:
    tasks = all_tasks(stateless, stateful)
    former = assigned(before, tasks, standby_count=standby_count)
    found = assigned(after, tasks, former, standby_count)
    for task in tasks:
        holders = [
            after[member]
            for member, each in found.items()
            if task in each.active or task in each.standby
        ]
        assert len(set(holders)) == len(holders)
        copies = len(holders) - 1
        wanted = min(standby_count, len(set(after.values())) - 1)
        assert copies == (wanted if task.subtopology in STATEFUL else 0)


@given(processes, st.integers(0, 9), st.integers(0, 9), st.integers(0, 2))
def test_active_tasks_stay_if_nothing_changed(
    members: dict[MemberId, str], stateless: int, stateful: int, standby_count: int
) -> None:
    tasks = all_tasks(stateless, stateful)
    before = assigned(members, tasks, standby_count=standby_count)
    after = assigned(members, tasks, before, standby_count)
    assert {each: tasks.active for each, tasks in after.items()} == {
        each: tasks.active for each, tasks in before.items()
    }


@given(processes, st.integers(0, 9), st.integers(0, 9))
def test_new_member_takes_no_more_than_its_share(
    members: dict[MemberId, str], stateless: int, stateful: int
) -> None:
    tasks = all_tasks(stateless, stateful)
    before = assigned(members, tasks)
    after = assigned(members | {MemberId("new"): "s"}, tasks, before)
    assert moved(before, after) == len(after[MemberId("new")].active)


@given(processes, st.integers(0, 9), st.integers(0, 9))
def test_tasks_of_a_member_that_left_are_all_that_move(
    members: dict[MemberId, str], stateless: int, stateful: int
) -> None:
    tasks = all_tasks(stateless, stateful)
    before = assigned(members | {MemberId("gone"): "s"}, tasks)
    after = assigned(members, tasks, before)
    assert moved(before, after) == len(before[MemberId("gone")].active)


def test_task_goes_where_a_copy_of_it_is() -> None:
    tasks = all_tasks(0, 3)
    a, b, c = MemberId("a"), MemberId("b"), MemberId("c")
    members = {a: "p", b: "q", c: "r"}
    before = assigned(members, tasks, standby_count=1)
    (lost,) = before[a].active
    (keeper,) = (each for each in (b, c) if lost in before[each].standby)
    after = assigned({b: "q", c: "r"}, tasks, before, standby_count=1)
    assert lost in after[keeper].active


def test_copies_stay_where_they_are_if_the_load_is_even() -> None:
    tasks = all_tasks(0, 4)
    members = {MemberId("a"): "p", MemberId("b"): "q"}
    before = assigned(members, tasks, standby_count=1)
    assert assigned(members, tasks, before, standby_count=1) == before


def test_larger_process_runs_more() -> None:
    members = {MemberId("a"): "p", MemberId("b"): "p", MemberId("c"): "q"}
    found = assigned(members, all_tasks(3, 0))
    assert [len(found[MemberId(each)].active) for each in "abc"] == [1, 1, 1]
