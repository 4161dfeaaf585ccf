"""A leader's followers: who is in sync, what is committed, which ISRs are proposed."""

from collections.abc import Iterable
from random import Random

import pytest
from msgspec.structs import replace

from headrace.ids import BrokerId, LeaderEpoch
from headrace.metadata.state import Partition
from headrace.replication.in_sync import InSync, IsrChange, Position

LAG_MS_MAX = 1000
ME, A, B = BrokerId(1), BrokerId(2), BrokerId(3)
EPOCHS = {ME: 11, A: 12, B: 13}


def a_row(
    isr: Iterable[BrokerId] = (ME, A, B), epoch: int = 0, replicas: Iterable[BrokerId] = (ME, A, B)
) -> Partition:
    return Partition(
        tuple(replicas), tuple(isr), ME, 0, leader_epoch=LeaderEpoch(5), partition_epoch=epoch
    )


class Leader:
    """A partition's leader, its log reduced to its end, and the brokers that may be in sync."""

    def __init__(self, row: Partition | None = None, end_offset: int = 0) -> None:
        self.row = row or a_row()
        self.end_offset = end_offset
        self.now_ms = 0
        self.high_watermark = 0
        self.epochs: dict[BrokerId, int] = dict(EPOCHS)
        self.in_sync = InSync(ME, self.row, start_offset=end_offset, now_ms=0)

    def fetch(self, node: BrokerId, offset: int, start_offset: int = 0) -> IsrChange | None:
        position = Position(EPOCHS[node], offset, start_offset)
        self.in_sync.fetched(node, position, end_offset=self.end_offset, now_ms=self.now_ms)
        change = self.in_sync.plan_join(node, self.high_watermark, self.epochs.get)
        self.advance()
        return change

    def advance(self) -> int:
        reached = self.in_sync.high_watermark(
            self.end_offset, self.now_ms, LAG_MS_MAX, self.epochs.get
        )
        self.high_watermark = max(self.high_watermark, reached)
        return self.high_watermark

    def shrink(self) -> IsrChange | None:
        return self.in_sync.plan_shrink(self.end_offset, self.now_ms, LAG_MS_MAX, self.epochs.get)

    def apply(self, isr: Iterable[BrokerId]) -> None:
        self.row = replace(self.row, isr=tuple(isr), partition_epoch=self.row.partition_epoch + 1)
        self.in_sync.altered(self.row)


def test_a_follower_that_had_everything_is_caught_up_since_its_last_fetch() -> None:
    """Its session does not note fetches of partitions in which nothing happens."""
    leader = Leader(end_offset=5)
    leader.fetch(A, 5)
    leader.fetch(B, 4)
    leader.now_ms = 10 * LAG_MS_MAX
    for node in (A, B):
        leader.in_sync.unchanged(node, leader.now_ms - 10)
    assert leader.in_sync.caught_up_ms(A) == leader.now_ms - 10
    assert leader.in_sync.caught_up_ms(B) == 0
    leader.end_offset = 6
    leader.fetch(A, 5)  # it has not taken the new record yet
    change = leader.shrink()
    assert change is not None
    assert change.isr == (ME, A)


def test_what_every_member_has_is_committed() -> None:
    leader = Leader()
    leader.end_offset = 10
    leader.fetch(A, 10)
    assert leader.high_watermark == 0
    leader.fetch(B, 7)
    assert leader.high_watermark == 7
    leader.fetch(B, 10)
    assert leader.high_watermark == 10


def test_nothing_is_committed_before_every_member_was_heard() -> None:
    leader = Leader(end_offset=10)
    leader.fetch(A, 10)
    reached = leader.in_sync.high_watermark(10, 0, LAG_MS_MAX, leader.epochs.get)
    assert reached < 0


def test_a_follower_that_lags_for_too_long_is_to_leave() -> None:
    leader = Leader()
    leader.end_offset = 10
    leader.now_ms = 900
    leader.fetch(A, 10)
    leader.fetch(B, 3)
    assert leader.shrink() is None
    leader.now_ms = 1001
    change = leader.shrink()
    assert change == IsrChange((ME, A), (11, 12), 0, LeaderEpoch(5), is_join=False)


def test_who_has_all_that_there_was_at_its_last_fetch_does_not_lag() -> None:
    """A busy leader is always ahead; its follower is as fast as it can be."""
    leader = Leader()
    for _ in range(50):
        leader.now_ms += 100
        before, leader.end_offset = leader.end_offset, leader.end_offset + 10
        leader.fetch(A, before)
        leader.fetch(B, before)
    assert leader.shrink() is None


def test_who_falls_behind_a_little_more_with_each_fetch_lags() -> None:
    leader = Leader()
    for number in range(50):
        leader.now_ms += 100
        leader.end_offset += 10
        leader.fetch(A, leader.end_offset)
        leader.fetch(B, 5 * number)
    change = leader.shrink()
    assert change is not None
    assert change.isr == (ME, A)


def test_a_pending_shrink_commits_nothing_until_the_log_has_it() -> None:
    leader = Leader()
    leader.end_offset, leader.now_ms = 10, 2000
    leader.fetch(A, 10)
    assert leader.shrink() is not None
    assert leader.advance() == 0
    leader.apply((ME, A))
    assert leader.advance() == 10


def test_a_pending_member_counts_already() -> None:
    leader = Leader(a_row((ME, A)))
    change = leader.fetch(B, 0)
    assert change is not None
    assert change.is_join
    assert change.isr == (ME, A, B)
    leader.end_offset, leader.now_ms = 10, 5000
    leader.fetch(A, 10)
    assert leader.high_watermark == 0


def test_a_refused_member_does_not_count() -> None:
    leader = Leader(a_row((ME, A)))
    change = leader.fetch(B, 0)
    assert change is not None
    leader.end_offset, leader.now_ms = 10, 5000
    leader.fetch(A, 10)
    leader.in_sync.refused(change)
    assert leader.advance() == 10


def test_the_refusal_of_an_older_change_is_not_that_of_the_pending_one() -> None:
    leader = Leader(a_row((ME, A)))
    first = leader.fetch(B, 0)
    assert first is not None
    leader.apply((ME, A))
    second = leader.fetch(B, 0)
    assert second is not None
    leader.in_sync.refused(first)
    assert leader.in_sync.pending == (ME, A, B)


def test_nobody_joins_without_what_is_committed() -> None:
    leader = Leader(a_row((ME, A)))
    leader.end_offset = 10
    leader.fetch(A, 10)
    assert leader.high_watermark == 10
    assert leader.fetch(B, 9) is None
    assert leader.fetch(B, 10) is not None


def test_nobody_joins_before_it_has_what_the_leader_began_with() -> None:
    """The leader may not know yet how much of that is committed."""
    leader = Leader(a_row((ME, A)), end_offset=10)
    assert leader.high_watermark == 0
    assert leader.fetch(B, 9) is None
    assert leader.fetch(B, 10) is not None


@pytest.mark.parametrize("epoch", [None, 14])
def test_nobody_joins_who_is_fenced_or_has_another_life(epoch: int | None) -> None:
    leader = Leader(a_row((ME, A)))
    if epoch is None:
        del leader.epochs[B]
    else:
        leader.epochs[B] = epoch
    assert leader.fetch(B, 0) is None


def test_one_change_at_a_time() -> None:
    leader = Leader(a_row((ME,)))
    assert leader.fetch(A, 0) is not None
    assert leader.fetch(B, 0) is None
    leader.apply((ME, A))
    assert leader.fetch(B, 0) is not None


def test_one_that_is_about_to_join_holds_the_watermark_while_it_is_quick_and_up() -> None:
    leader = Leader(a_row((ME,)))
    leader.fetch(A, 0)
    leader.in_sync.pending = None
    leader.end_offset = 10
    assert leader.advance() == 0
    del leader.epochs[A]  # it is fenced
    assert leader.advance() == 10
    leader.epochs[A] = EPOCHS[A]
    leader.end_offset, leader.now_ms = 20, LAG_MS_MAX + 1
    assert leader.advance() == 20


def test_replicas_that_are_added_follow_from_then_on() -> None:
    leader = Leader(a_row((ME,), replicas=(ME, A)))
    row = a_row((ME,), epoch=1)
    leader.row = row
    leader.in_sync.altered(row)
    assert leader.fetch(B, 0) is not None


def test_a_stranger_is_nobody() -> None:
    leader = Leader(a_row((ME, A), replicas=(ME, A)))
    leader.end_offset = 10
    assert leader.fetch(B, 10) is None
    assert leader.in_sync.position_of(B) is None
    assert leader.high_watermark == 0


def test_the_low_watermark_is_the_lowest_start_of_a_member() -> None:
    leader = Leader()
    leader.end_offset = 10
    leader.fetch(A, 10, start_offset=5)
    assert leader.in_sync.low_watermark(5) < 5
    leader.fetch(B, 10, start_offset=3)
    assert leader.in_sync.low_watermark(5) == 3
    leader.apply((ME, A))
    assert leader.in_sync.low_watermark(5) == 5


def test_a_leader_that_cannot_write_leaves_to_the_first_of_the_others() -> None:
    leader = Leader()
    del leader.epochs[A]
    change = leader.in_sync.plan_resignation((ME, A, B), leader.epochs.get)
    assert change is not None
    assert (change.leader, change.isr, change.epochs) == (B, (B,), (13,))
    assert leader.advance() == 0


def test_a_leader_that_is_alone_in_the_isr_stays() -> None:
    leader = Leader(a_row((ME,)))
    assert leader.in_sync.plan_resignation((ME, A, B), leader.epochs.get) is None


@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_committed_records_are_with_every_member(seed: int) -> None:
    """Two followers fetch, lag, are fenced and come back; proposals are applied late or refused."""
    random = Random(seed)
    leader = Leader()
    ends = {A: 0, B: 0}
    proposed: list[IsrChange] = []
    for _ in range(200):
        leader.now_ms += random.randrange(300)
        node = random.choice((A, B))
        match random.randrange(7):
            case 0:
                leader.end_offset += random.randrange(5)
            case 1 | 2:
                ends[node] = random.randint(ends[node], leader.end_offset)
                change = leader.fetch(node, ends[node])
                proposed += [change] if change is not None else []
            case 3:
                change = leader.shrink()
                proposed += [change] if change is not None else []
            case 4 if proposed:
                change = proposed.pop()
                is_current = change.partition_epoch == leader.row.partition_epoch
                if is_current and random.random() < 0.7:
                    leader.apply(change.isr)
                else:
                    leader.in_sync.refused(change)
            case 5:
                if leader.epochs.pop(node, None) is None:
                    leader.epochs[node] = EPOCHS[node]
                elif node in leader.row.isr:
                    leader.apply(each for each in leader.row.isr if each != node)
            case _:
                leader.advance()
        for member in leader.row.isr:
            assert member == ME or ends[member] >= leader.high_watermark, (seed, member)
        assert len(proposed) <= 200


def test_a_new_life_that_is_far_behind_does_not_hold_the_watermark() -> None:
    """That its former life was quick a moment ago does not say that it joins soon."""
    leader = Leader(end_offset=10)
    leader.fetch(A, 10)
    leader.fetch(B, 10)
    leader.apply((ME, A))
    leader.end_offset, leader.now_ms = 5000, 200
    leader.epochs[B] = 20
    position = Position(20, 10, 0)
    leader.in_sync.fetched(B, position, end_offset=5000, now_ms=200)
    leader.fetch(A, 5000)
    assert leader.high_watermark == 5000
