"""The assignor of streams groups: sticky and balanced.

Every task is active at one member, and the numbers of active tasks differ by at most one. A task
stays where it is if possible; otherwise it goes where a copy of its state is. Copies (standby
tasks) run in other processes than the active task, as many as configured and as there are
processes, preferably where a copy exists already, if that keeps the load even.

Warm-up tasks are not assigned: Kafka 4.3 does not assign them either.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from headrace.groups.state import MemberId
from headrace.groups.streams.tasks import NO_TASKS, TaskId, Tasks


class MemberSpec(NamedTuple):
    """What is known of a member."""

    process_id: str
    former: Tasks
    """The target that it had."""


def assign(
    members: Mapping[MemberId, MemberSpec],
    tasks: Sequence[TaskId],
    stateful: frozenset[str],
    standby_count: int,
) -> dict[MemberId, Tasks]:
    """Return each member's tasks; `stateful` names the subtopologies with state."""
    if not members:
        return {}
    plan = _Plan(members)
    plan.assign_active(tasks)
    if standby_count:
        plan.assign_standbys(
            [task for task in tasks if task.subtopology in stateful], standby_count
        )
    return {
        member_id: Tasks(
            frozenset(plan.active[member_id]), frozenset(plan.standby[member_id]), NO_TASKS
        )
        for member_id in members
    }


class _Plan:
    """Tasks given out so far."""

    def __init__(self, members: Mapping[MemberId, MemberSpec]) -> None:
        self.members = members
        self.active: dict[MemberId, set[TaskId]] = {each: set() for each in members}
        self.standby: dict[MemberId, set[TaskId]] = {each: set() for each in members}
        self.of_process: dict[str, list[MemberId]] = {}
        for member_id, spec in sorted(members.items()):
            self.of_process.setdefault(spec.process_id, []).append(member_id)
        self.process_load = dict.fromkeys(self.of_process, 0)
        self.holders: dict[TaskId, set[str]] = {}
        """The processes that have a task, be it active or standby."""
        self.share = self.larger_shares = 0
        """How many active tasks all have in the end; how many members may still get one more."""
        self.fair = 0
        """How many tasks a member has of all that there are, rounded up."""
        self.copies: dict[tuple[str, TaskId], list[MemberId]] = {}
        """The members of a process that kept a copy of a task before."""
        self.idlest: dict[str, _Idlest] = {}
        """The member of each process with the fewest tasks of all kinds."""

    def assign_active(self, tasks: Sequence[TaskId]) -> None:
        self.share, self.larger_shares = divmod(len(tasks), len(self.members))
        formerly = self._former_processes()
        rest = []
        kept = self._keep_active(set(tasks))
        idlest = {
            process: _Idlest(members, lambda each: len(self.active[each]))
            for process, members in self.of_process.items()
        }
        for task in sorted(kept):
            # Where its state is, unless whoever is there has enough to do.
            there = [idlest[process].find() for process in formerly.get(task, ())]
            there = [each for each in there if self._has_room(each)]
            if there:
                self._give_active(min(there, key=self._load), task)
            else:
                rest.append(task)
        heap = [(*self._load(member_id), member_id) for member_id in self.members]
        heapify(heap)
        for task in rest:
            self._give_active(self._pop_least_loaded(heap), task)

    def _keep_active(self, tasks: set[TaskId]) -> set[TaskId]:
        """Keep what members run, up to their share. Return the tasks that nobody keeps."""
        for member_id, spec in sorted(self.members.items()):
            for task in sorted(spec.former.active & tasks):
                if self._has_room(member_id):
                    self._give_active(member_id, task)
                    tasks.remove(task)
        return tasks

    def _has_room(self, member_id: MemberId) -> bool:
        """Whether a member may have another active task before all have their share."""
        count = len(self.active[member_id])
        return count < self.share or (count == self.share and self.larger_shares > 0)

    def assign_standbys(self, tasks: Sequence[TaskId], count: int) -> None:
        places = len(tasks) * min(count, len(self.of_process) - 1)
        running = sum(map(len, self.active.values()))
        self.fair = -(-(running + places) // len(self.members))
        formerly = self._former_processes()
        for member_id, spec in sorted(self.members.items()):
            for task in spec.former.standby:
                self.copies.setdefault((spec.process_id, task), []).append(member_id)
        self.idlest = {
            process: _Idlest(members, self._tasks_of)
            for process, members in self.of_process.items()
        }
        missing: list[TaskId] = []
        for task in tasks:
            kept = 0
            for process in formerly.get(task, ()):
                if kept < count and self._may_hold(process, task):
                    self._give_standby(process, task)
                    kept += 1
            missing += [task] * (count - kept)
        heap = [(self._ratio(process), process) for process in self.of_process]
        heapify(heap)
        for task in missing:
            self._give_to_another(heap, task)

    def _give_to_another(self, heap: list[tuple[float, str]], task: TaskId) -> None:
        """Assign a standby to the least loaded process without the task, if there is one."""
        passed = []
        while heap:
            entry = heappop(heap)
            process = entry[1]
            if process not in self.holders[task]:
                self._give_standby(process, task)
                passed.append((self._ratio(process), process))
                break
            passed.append(entry)
        for entry in passed:
            heappush(heap, entry)

    def _give_active(self, member_id: MemberId, task: TaskId) -> None:
        process = self.members[member_id].process_id
        self.active[member_id].add(task)
        if len(self.active[member_id]) > self.share:
            self.larger_shares -= 1
        self.process_load[process] += 1
        self.holders[task] = {process}

    def _give_standby(self, process: str, task: TaskId) -> None:
        # The one that has the copy already, unless it has enough to do.
        had = self.copies.get((process, task), ())
        chosen = next((each for each in had if self._tasks_of(each) < self.fair), None)
        if chosen is None:
            chosen = self.idlest[process].find()
        self.standby[chosen].add(task)
        self.process_load[process] += 1
        self.holders[task].add(process)

    def _may_hold(self, process: str, task: TaskId) -> bool:
        if process in self.holders[task]:
            return False
        return self.process_load[process] < self.fair * len(self.of_process[process])

    def _tasks_of(self, member_id: MemberId) -> int:
        return len(self.active[member_id]) + len(self.standby[member_id])

    def _load(self, member_id: MemberId) -> tuple[int, float]:
        return len(self.active[member_id]), self._ratio(self.members[member_id].process_id)

    def _ratio(self, process: str) -> float:
        return self.process_load[process] / len(self.of_process[process])

    def _pop_least_loaded(self, heap: list[tuple[int, float, MemberId]]) -> MemberId:
        """Return the member with the fewest tasks, as if it had one more from now on."""
        while True:
            _, _, member_id = entry = heappop(heap)
            current = (*self._load(member_id), member_id)
            if entry == current:
                count, ratio, _ = entry
                heappush(heap, (count + 1, ratio, member_id))
                return member_id
            heappush(heap, current)

    def _former_processes(self) -> dict[TaskId, dict[str, None]]:
        """Return the processes that had a task; those that had a copy of it first."""
        found: dict[TaskId, dict[str, None]] = {}
        for role in (1, 2, 0):
            for _, (process, former) in sorted(self.members.items()):
                for task in former[role]:
                    found.setdefault(task, {})[process] = None
        return found


class _Idlest:
    """Finds the member with the least load, of some whose loads only grow."""

    def __init__(self, members: Sequence[MemberId], load: Callable[[MemberId], int]) -> None:
        self._load = load
        self._heap = [(load(each), each) for each in members]
        heapify(self._heap)

    def find(self) -> MemberId:
        """Return it; the first by name if there are several."""
        while (current := self._load(self._heap[0][1])) != self._heap[0][0]:
            heapreplace(self._heap, (current, self._heap[0][1]))
        return self._heap[0][1]
