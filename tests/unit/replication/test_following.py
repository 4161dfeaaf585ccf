"""What a response means to a follower, and that its log becomes the leader's."""

from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ErrorCode
from headrace.log.epochs import EpochEnd, LeaderEpochs
from headrace.replication.following import (
    APPEND,
    ASK_EARLIEST,
    ASK_LATEST,
    ASK_LOCAL_START,
    DROP,
    FOLLOW,
    Append,
    AskLatest,
    Follow,
    Follower,
    Pause,
    Phase,
    Place,
    Rebuild,
    Restart,
    Row,
    Truncate,
)


@dataclass
class Records:
    """A log of which only the leader epoch of each record matters."""

    written: list[tuple[int, int]] = field(default_factory=list)
    """The epoch of each record, and what tells it from others."""
    start_offset: int = 0
    first_offset: int = 0
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)

    @property
    def local_start_offset(self) -> int:
        return max(self.start_offset, self.first_offset)

    @property
    def end_offset(self) -> int:
        return self.first_offset + len(self.written)

    def append(self, epoch: int, mark: int = 0) -> None:
        self.epochs.assign(epoch, self.end_offset)
        self.written.append((epoch, mark))

    def cut(self, offset: int) -> None:
        del self.written[offset - self.first_offset :]
        self.epochs.truncate_from_end(offset)

    def restart(self, offset: int) -> None:
        self.written.clear()
        self.first_offset = self.start_offset = offset
        self.epochs.clear()

    def delete_before(self, offset: int) -> None:
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        self.epochs.truncate_from_start(offset)
        del self.written[: offset - self.first_offset]
        self.first_offset = offset

    def kept(self) -> list[tuple[int, int]]:
        return self.written[self.start_offset - self.first_offset :]


class NoEndError(Exception):
    """A follower that has not got everything."""


def records(*epochs: int, mark: int = 0) -> Records:
    log = Records()
    for epoch in epochs:
        log.append(epoch, mark)
    return log


def answer(leader: Records, place: Place) -> Row:
    """What a leader answers to a fetch (KIP-595)."""
    if place.last_epoch >= 0:
        end = leader.epochs.end_offset_for(place.last_epoch, leader.end_offset)
        if end.end_offset < 0:
            return Row(ErrorCode.OFFSET_OUT_OF_RANGE, False, None)
        if end.epoch < place.last_epoch or end.end_offset < place.offset:
            return Row(ErrorCode.NONE, False, end)
    if not leader.start_offset <= place.offset <= leader.end_offset:
        return Row(ErrorCode.OFFSET_OUT_OF_RANGE, False, None)
    return Row(ErrorCode.NONE, place.offset < leader.end_offset, None)


def copy(leader: Records, log: Records, leader_epoch: int, rounds_max: int = 100) -> int:
    """Follow a leader until there is nothing more to do; return how many rounds that took."""
    follower = Follower(leader_epoch)
    for number in range(rounds_max):
        if follower.phase is not Phase.FETCHING:
            follower.fetch()
        place = follower.ask(log)
        step = follower.on_row(answer(leader, place), log)
        if isinstance(step, AskLatest):
            step = follower.on_latest(leader.end_offset, log)
            if step is ASK_EARLIEST:
                step = follower.on_earliest(leader.start_offset, log)
        match step:
            case Append():
                log.append(*leader.written[log.end_offset - leader.first_offset])
                log.delete_before(min(leader.start_offset, log.end_offset))
            case Truncate(offset=offset):
                assert offset < log.end_offset
                log.cut(offset)
            case Restart(offset=offset):
                log.restart(offset)
            case Follow():
                log.delete_before(min(leader.start_offset, log.end_offset))
                return number
            case _:
                raise AssertionError(step)
    raise NoEndError(f"{rounds_max} rounds")


def row(
    code: ErrorCode = ErrorCode.NONE,
    *,
    has_records: bool = False,
    diverging: EpochEnd | None = None,
) -> Row:
    return Row(code, has_records, diverging)


def asking(log: Records, leader_epoch: int = 5) -> Follower:
    follower = Follower(leader_epoch)
    follower.ask(log)
    return follower


def test_a_follower_asks_from_its_end_with_the_epoch_of_its_last_record() -> None:
    log = records(1, 1, 3)
    log.start_offset = 1
    assert Follower(5).ask(log) == Place(5, 3, 3, 1)
    assert Follower(5).ask(Records()) == Place(5, 0, -1, 0)


def test_records_are_appended_and_without_any_the_high_watermark_is_taken() -> None:
    log = records(1)
    assert asking(log).on_row(row(has_records=True), log) == APPEND
    assert asking(log).on_row(row(), log) == FOLLOW


def test_an_empty_response_keeps_the_last_fetched_epoch() -> None:
    """KAFKA-15510."""
    log = records(1, 3)
    follower = asking(log)
    assert follower.on_row(row(), log) is FOLLOW
    assert follower.ask(log).last_epoch == 3


def test_what_is_in_the_leaders_tier_is_not_copied() -> None:
    log = records(1, 1)
    follower = asking(log)
    assert follower.on_row(row(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE), log) == ASK_LOCAL_START
    assert follower.on_local_start(90, 10, log) == Rebuild(90, 10)
    assert follower.on_local_start(90, 95, log) == Rebuild(90, 90)
    step = follower.on_local_start(2, 0, log)
    assert isinstance(step, Pause), "the leader has what we lack on its disk again"


def test_a_cut_below_our_disk_begins_again_where_the_log_starts() -> None:
    """Not at the cut: it would have neither epochs nor producers of what the tier has before."""
    log = Records(first_offset=50, start_offset=20)
    log.epochs.assign(3, 20)
    log.epochs.assign(4, 45)
    for _ in range(10):
        log.append(4)
    follower = asking(log)
    assert follower.on_row(row(diverging=EpochEnd(3, 45)), log) == Restart(20)
    assert follower.on_latest(45, log) == Restart(20)
    assert follower.on_latest(10, log) == Restart(10), "the leader's log ends before ours starts"
    log.restart(20)
    assert asking(log).on_local_start(40, 0, log) == Rebuild(40, 0)


def test_a_response_to_another_question_is_dropped() -> None:
    log = records(1)
    follower = asking(log)
    log.append(1)
    assert follower.on_row(row(has_records=True), log) is DROP
    follower = asking(log)
    follower.work()
    assert follower.on_row(row(has_records=True), log) is DROP
    follower.fetch()
    assert follower.on_row(row(has_records=True), log) is DROP


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_every_other_error_pauses_the_partition(code: ErrorCode) -> None:
    log = records(1)
    step = asking(log).on_row(row(code), log)
    assert isinstance(step, Pause)
    assert step.code == code


def test_pauses_double_up_to_a_limit_and_start_over_with_success() -> None:
    follower = Follower(5)
    assert [follower.pause_ms(100) for _ in range(4)] == [20, 40, 80, 100]
    follower.failures = 1000
    assert follower.pause_ms(1000) == 1000
    follower.failures = 0
    assert follower.pause_ms(100) == 20


def test_out_of_range_is_never_fatal_and_asks_before_it_removes_anything() -> None:
    """KAFKA-7414, KAFKA-2143."""
    log = records(1, 1, 1)
    follower = asking(log)
    assert follower.on_row(row(ErrorCode.OFFSET_OUT_OF_RANGE), log) is ASK_LATEST
    assert follower.on_latest(2, log) == Truncate(2)
    assert follower.on_latest(3, log) is ASK_EARLIEST
    assert follower.on_latest(9, log) is ASK_EARLIEST
    assert follower.on_earliest(9, log) == Restart(9)
    assert isinstance(follower.on_earliest(3, log), Pause)
    log.start_offset = 2
    assert follower.on_latest(1, log) == Restart(1)


def test_a_leader_that_contradicts_itself_is_not_asked_without_end() -> None:
    log = records(1, 1)
    step = asking(log).on_row(Row(ErrorCode.NONE, False, EpochEnd(9, 2)), log)
    assert isinstance(step, Pause)


def test_kip_101_records_above_the_high_watermark_are_kept_if_the_leader_has_them() -> None:
    """Scenario 1: both have the record, and the follower's high watermark is behind."""
    leader, log = records(0, 0), records(0, 0)
    leader.epochs.assign(1, 2)
    assert copy(leader, log, 1) == 0
    assert log.written == leader.written


def test_kip_101_diverging_records_at_the_same_offset_go() -> None:
    """Scenario 2: both wrote offset 1, in different epochs."""
    leader = records(0, 1, mark=1)
    log = records(0, 0, mark=2)
    log.written[0] = leader.written[0]
    copy(leader, log, 1)
    assert log.written == leader.written


def test_kafka_6361_fast_leader_changes_leave_no_divergence() -> None:
    """KIP-279: the leader does not know the follower's last epoch, nor the follower its own."""
    leader = records(0, 0, 2, 2)
    log = records(0, 0, 1, 1)
    copy(leader, log, 2)
    assert log.written == leader.written
    leader = records(1, 1, 1, 4, 4)
    log = records(1, 1, 2, 2, 3)
    copy(leader, log, 4)
    assert log.written == leader.written


def test_kafka_10706_an_epoch_without_records_does_not_hold_up_a_follower() -> None:
    """It led for a moment, appended nothing, and follows a leader that never heard of it."""
    leader = records(1, 1, 1)
    leader.epochs.assign(4, 3)
    log = records(1, 1)
    log.epochs.assign(3, 2)
    copy(leader, log, 4)
    assert log.written == leader.written
    assert log.epochs.entries() == [(1, 0)]


def test_a_follower_of_deleted_records_begins_where_its_leader_begins() -> None:
    leader = records(1, 1, 1, 2, 2)
    leader.delete_before(4)
    log = records(1, 1)
    copy(leader, log, 2)
    assert (log.start_offset, log.kept()) == (4, leader.kept())


def test_an_unclean_leader_takes_away_what_it_lacks() -> None:
    leader = records(1)
    leader.epochs.assign(5, 1)
    log = records(1, 2, 2, 3)
    copy(leader, log, 5)
    assert log.written == leader.written


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Records], int]:
    """Replicas after some leaders: each wrote, others copied a part, from then on any may lead."""
    logs = [Records() for _ in range(3)]
    mark = 0
    epoch = 0
    for _ in range(draw(st.integers(1, 8))):
        epoch += draw(st.integers(1, 2))
        leader = logs[draw(st.integers(0, 2))]
        leader.epochs.assign(epoch, leader.end_offset)
        for _ in range(draw(st.integers(0, 4))):
            mark += 1
            leader.append(epoch, mark)
        if draw(st.booleans()) and leader.end_offset > leader.start_offset:
            leader.delete_before(draw(st.integers(leader.start_offset, leader.end_offset)))
        for log in logs:
            if log is not leader and draw(st.booleans()):
                copy_part(leader, log, epoch, draw(st.integers(0, 5)))
    return logs, epoch + 1


def copy_part(leader: Records, log: Records, epoch: int, rounds: int) -> None:
    """Follow a leader for some rounds, then lose it."""
    log.epochs.truncate_from_end(log.end_offset)
    with suppress(NoEndError):
        copy(leader, log, epoch, rounds)


@given(histories(), st.integers(0, 2))
def test_every_follower_gets_the_leaders_log_whoever_is_elected(
    history: tuple[list[Records], int], elected: int
) -> None:
    logs, epoch = history
    leader = logs[elected]
    leader.epochs.truncate_from_end(leader.end_offset)
    leader.epochs.assign(epoch, leader.end_offset)
    for log in logs:
        if log is leader:
            continue
        log.epochs.truncate_from_end(log.end_offset)
        copy(leader, log, epoch)
        assert log.end_offset == leader.end_offset
        shared = max(log.start_offset, leader.start_offset)
        assert (
            log.written[shared - log.first_offset :]
            == (leader.written[shared - leader.first_offset :])
        )
        known = {entry.epoch for entry in leader.epochs.entries()}
        for entry in log.epochs.entries():
            if shared <= entry.start_offset < log.end_offset:
                assert entry.epoch in known
