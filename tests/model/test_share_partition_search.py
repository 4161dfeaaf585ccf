"""Every state that a small share partition can get into, one by one.

Four records in two batches, two members, two deliveries each. Members fetch, accept, release,
reject and leave; locks time out, one by one; a write takes its time, while all but another write
goes on, and is durable or fails; the leader crashes, with or without what was being written, and
begins anew with what is durable. The search ends when there is no state left that was not seen; it
fails if it has to stop before. More writes at once, in any order, are in
test_share_partition_model.py.

In every state:

- No record is leased to two members: what is delivered was available, and is in one run.
- A record is available, leased, or ended: acknowledged, or archived for a reason.
- The start has not passed a record that is not ended.
- What a member was told is accepted is not delivered again, after a crash neither.

States that differ only in which member is which, or in the time of day, are one.
"""

import gc
from collections.abc import Iterator
from functools import cache
from itertools import chain

import pytest

from headrace.share.durable import DurableState, StateBatch, StateWrite
from headrace.share.partition.changes import Change, Outcome
from headrace.share.partition.machine import SharePartition
from headrace.share.partition.types import (
    Acknowledgement,
    AckType,
    Cause,
    FetchedBatch,
    Limits,
    Wanted,
)
from headrace.share.partition.window import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, Run, Window
from headrace.share.partition.writes import Writes

RECORDS = 4
LOG = (FetchedBatch(0, 1), FetchedBatch(2, 3))
MEMBERS = ("a", "b")
OTHER = {"a": "b", "b": "a", None: None}
LOCK_MS = 2
LIMITS = Limits(lock_duration_ms=LOCK_MS, delivery_count_limit=2, in_flight_max=RECORDS)
WANTED = Wanted(max_records=2, batch_size=10)
UNDER_WAY_MAX = 1
NOW_MS = 10
"""Locks are kept as what is left of them, so that every state is of this time."""
STATES_MIN = 1_000_000
STATES_MAX = 3_000_000

RunState = tuple[int, int, int, int, str | None, int, int, Cause | None]
ChangeState = tuple[tuple[Outcome, ...], bool, bool, tuple[StateBatch, ...], int]
Durable = tuple[int, tuple[tuple[int, int], ...]]
State = tuple[
    int, tuple[RunState, ...], tuple[ChangeState, ...], tuple[StateBatch, ...], Durable, int
]
"""Start, runs, changes under way, what was left behind, what is durable, what was accepted."""

BEGINNING: State = (0, (), (), (), (0, ((0, 0),) * RECORDS), 0)


class World:
    """One state, come to life: a real machine, and what surrounds it."""

    def __init__(self, state: State) -> None:
        start, runs, changes, left_behind, durable, accepted = state
        self.before = state
        self.ended = 0
        """Records that may be ended by what happens now."""
        self.durable = durable
        self.accepted = accepted
        self.machine = SharePartition.__new__(SharePartition)
        self.machine.__dict__.update(BLANK)
        self.changes = [_change(each) for each in changes]
        window = Window(start)
        for first, last, run_state, count, member_id, left_ms, change, cause in runs:
            run = Run(first, last, run_state, count)
            run.batch_size = 1
            run.cause = cause
            if run_state == ACQUIRED:
                run.member_id = member_id
                run.until_ms = NOW_MS + left_ms
                if change >= 0:
                    run.change = self.changes[change]
                else:
                    window.note_deadline(run.until_ms)
            window.append(run)
        writes = Writes(window, state_epoch=0, leader_epoch=0)
        writes._under_way.update(self.changes)
        writes._left_behind.extend(left_behind)
        self.machine._window = window
        self.machine._writes = writes

    def state(self, now_ms: int = NOW_MS) -> State:
        """Give what is seen of it, the first member as "a"."""
        window = self.machine._window
        if window.start_offset > self.before[0]:
            self._check_passed(self.before[0], window.start_offset)
        changes = self.changes
        if len(changes) > 1:
            changes = sorted(changes, key=_order)
        places = {change: place for place, change in enumerate(changes)}
        runs: list[RunState] = []
        names: dict[str | None, str | None] | None = None
        for run in window.runs:
            if run.state != ACQUIRED:
                runs.append((run.first, run.last, run.state, run.count, None, 0, -1, run.cause))
                continue
            member_id = run.member_id
            if names is None and member_id is not None:
                names = SAME if member_id == "a" else OTHER
            left_ms = max(run.until_ms - now_ms, 0)
            place = -1 if run.change is None else places[run.change]
            name = names[member_id] if names is not None else None
            runs.append((run.first, run.last, ACQUIRED, run.count, name, left_ms, place, None))
        return (
            window.start_offset,
            tuple(runs),
            tuple([_seen(change) for change in changes]),
            tuple(self.machine._writes._left_behind),
            self.durable,
            self.accepted,
        )

    # What can happen

    def fetch(self, member_id: str) -> None:
        offset = self.machine.next_fetch_offset(NOW_MS)
        fetched = [batch for batch in LOG if batch.last_offset >= offset]
        free = 0
        for run in self.machine._window.runs:
            if run.state == AVAILABLE:
                free |= _mask(run.first, run.last)
        free |= _mask(self.machine.end_offset + 1, RECORDS - 1)
        acquired = self.machine.acquire(member_id, fetched, WANTED, NOW_MS, fetch_offset=offset)
        assert acquired, "nothing acquired of what could be"
        for first, last, count in acquired:
            assert count <= LIMITS.delivery_count_limit
            leased = _mask(first, last)
            assert leased & free == leased, "leased twice"
            assert not leased & self.accepted, "accepted, and delivered again"
            free &= ~leased

    def acknowledge(self, member_id: str, first: int, last: int, kind: AckType) -> None:
        said = [Acknowledgement(first, last, (kind,))]
        self.changes.append(self.machine.acknowledge(member_id, said, NOW_MS))

    def leave(self, member_id: str) -> None:
        change = self.machine.release_member(member_id, NOW_MS)
        if change is not None:
            self.changes.append(change)

    def wait(self) -> State:
        self.ended = self._exhausted()
        change = self.machine.on_deadline(NOW_MS + 1)
        if change is not None:
            self.changes.append(change)
        return self.state(NOW_MS + 1)

    def succeed(self, place: int) -> None:
        change = self.changes.pop(place)
        self.persist(change)
        for outcome in change.outcomes:
            if outcome.state in ENDED:
                self.ended |= _mask(outcome.first, outcome.last)
            if outcome.state == ACKNOWLEDGED:
                self.accepted |= _mask(outcome.first, outcome.last)
        self.machine.succeeded(change, NOW_MS)

    def fail(self, place: int) -> None:
        self.ended = self._exhausted()
        self.machine.failed(self.changes.pop(place), NOW_MS)

    def crash(self) -> None:
        start, offsets = self.durable
        self.ended = _mask(0, start - 1)
        for offset, (_, state) in enumerate(offsets):
            if state in ENDED:
                self.ended |= 1 << offset
        batches = [
            StateBatch(offset, offset, state, count)
            for offset, (count, state) in enumerate(offsets)
            if offset >= start and count
        ]
        self.changes = []
        self.machine = SharePartition(_limits)
        durable = DurableState(0, 0, start, 0, tuple(batches))
        self.machine.load(durable, leader_epoch=0, start_offset=start)
        for run in self.machine._window.runs:
            run.batch_size = 1

    def _check_passed(self, start: int, new_start: int) -> None:
        """Raise if the start passed a record that was not ended, nor is by what happened."""
        ended = self.ended
        for first, last, state, *_ in self.before[1]:
            if state in ENDED:
                ended |= _mask(first, last)
        passed = _mask(start, new_start - 1)
        assert passed & ended == passed, "the start passed what is not ended"

    def _exhausted(self) -> int:
        """Give the records that have no delivery left, so that the end of their lock ends them."""
        exhausted = 0
        for first, last, state, count, *_ in self.before[1]:
            if state == ACQUIRED and count == LIMITS.delivery_count_limit:
                exhausted |= _mask(first, last)
        return exhausted

    def persist(self, change: Change) -> None:
        """Do what the state coordinator does: each offset keeps what is further on its way."""
        assert change.write is not None
        start, known = self.durable
        offsets = list(known)
        for first, last, state, count in change.write.batches:
            for offset in range(first, last + 1):
                offsets[offset] = max(offsets[offset], (count, state))
        self.durable = max(start, change.write.start_offset), tuple(offsets)


ACCEPT, RELEASE, REJECT = AckType.ACCEPT, AckType.RELEASE, AckType.REJECT
ENDED = (ACKNOWLEDGED, ARCHIVED)
SAME: dict[str | None, str | None] = {"a": "a", "b": "b", None: None}


def successors(state: State) -> Iterator[State]:
    """Give every state that can follow."""
    start, runs, changes, _, _, _ = state
    end = runs[-1][1] if runs else start - 1
    if end < RECORDS - 1 or any(run[2] == AVAILABLE for run in runs):
        # Without anything held the members are alike.
        for member_id in MEMBERS if any(run[2] == ACQUIRED for run in runs) else MEMBERS[:1]:
            world = World(state)
            world.fetch(member_id)
            yield world.state()
    if len(changes) < UNDER_WAY_MAX:
        yield from _after_members(state)
    for place in range(len(changes)):
        world = World(state)
        world.succeed(place)
        yield world.state()
        world = World(state)
        world.fail(place)
        yield world.state()


def after_crashes(state: State, known: set[tuple[Durable, int]]) -> Iterator[State]:
    """Give every state that a crash can lead to, unless it is among those that are known."""
    for is_durable in (False, True) if state[2] else (False,):
        world = World(state)
        for change in world.changes if is_durable else ():
            world.persist(change)
        left = world.durable, world.accepted
        if left not in known:
            known.add(left)
            world.crash()
            yield world.state()


def _after_members(state: State) -> Iterator[State]:
    """Give what follows if a member says something, leaves, or lets its locks end."""
    held = [run for run in state[1] if run[2] == ACQUIRED]
    for first, last, _, _, member_id, _, change, _ in held:
        if change < 0 and member_id is not None:
            said = {(first, last), (first, first), (last, last)}
            for said_first, said_last, kind in (
                *((*offsets, kind) for offsets in said for kind in (ACCEPT, RELEASE)),
                (first, last, REJECT),
            ):
                world = World(state)
                world.acknowledge(member_id, said_first, said_last, kind)
                yield world.state()
    for member_id in {run[4] for run in held}:
        if member_id is None:
            continue
        world = World(state)
        world.leave(member_id)
        yield world.state()
    if held:
        yield World(state).wait()


def check(state: State) -> None:
    """Raise if a state must not be."""
    start, runs, _, _, (durable_start, durable), accepted = state
    position = start
    for first, last, run_state, count, _, _, _, cause in runs:
        assert first == position
        assert last >= first
        position = last + 1
        assert (run_state == ARCHIVED) == (cause is not None)
        assert count <= LIMITS.delivery_count_limit
        if run_state not in ENDED:
            assert not accepted & _mask(first, last)
    assert position <= RECORDS
    assert durable_start <= start
    for offset in range(start, RECORDS):
        if accepted >> offset & 1:
            # A refusal that was durable after all, and said to have failed, outweighs what came
            # after it. Either way it is over.
            assert durable[offset][1] in ENDED


def _mask(first: int, last: int) -> int:
    """Give a number with a bit for each offset."""
    return (1 << last + 1) - (1 << first)


def _limits() -> Limits:
    return LIMITS


BLANK = vars(SharePartition(_limits))
"""What a machine begins with; copied, because there are millions of them."""


@cache
def _change(seen: ChangeState) -> Change:
    """Give a change that looks like this; it can be in many worlds, none of which alters it."""
    outcomes, is_applied, is_release, carried, start = seen
    change = Change(list(outcomes), is_applied=is_applied, is_release=is_release)
    change.carried = list(carried)
    batches = [StateBatch(*outcome[:4]) for outcome in outcomes]
    change.write = StateWrite(0, 0, start, 0, (*batches, *carried))
    return change


def _seen(change: Change) -> ChangeState:
    assert change.write is not None
    return (
        tuple(change.outcomes),
        change.is_applied,
        change.is_release,
        tuple(change.carried),
        change.write.start_offset,
    )


def _order(change: Change) -> tuple[int, ...]:
    first = change.outcomes[0]
    return (*first[:4], change.is_applied, change.is_release)


@pytest.fixture
def _no_collection() -> Iterator[None]:
    """Do not look for cycles among millions of tuples, which would take half the time."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("_no_collection")
def test_no_state_of_a_small_share_partition_is_wrong() -> None:
    assert search() >= STATES_MIN


def search() -> int:
    """See every state; give how many there are.

    Of those that are done only the hash is kept. That two share one, and the second is left out, is
    one chance in ten million.
    """
    seen = {hash(BEGINNING)}
    crashes: set[tuple[Durable, int]] = set()
    waiting = [BEGINNING]
    while waiting:
        following: list[State] = []
        for state in waiting:
            check(state)
            for successor in chain(successors(state), after_crashes(state, crashes)):
                code = hash(successor)
                if code not in seen:
                    seen.add(code)
                    following.append(successor)
        assert len(seen) <= STATES_MAX, "cut short: there are more states than expected"
        waiting = following
    return len(seen)
