"""What happens to segments next, for every log and every tier that can be."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.ids import BrokerId
from headrace.log.epochs import EpochStart
from headrace.remote.cache import SegmentCache
from headrace.remote.lineage import Claim
from headrace.remote.segments import (
    RemoteSegment,
    SegmentEpoch,
    SegmentId,
    SegmentState,
    SegmentUpdate,
)
from headrace.tier.life import (
    NOTHING,
    Deletion,
    Expiry,
    ExpiryPlan,
    Lineage,
    LocalSegment,
    Reason,
    Terms,
    choose_copy,
    find_remote_end,
)
from tests.unit.remote.segments import ORDERS

KEY = ORDERS.key
STARTED, FINISHED, DELETING, DELETED = SegmentState
HISTORY = (EpochStart(0, 0), EpochStart(1, 40), EpochStart(3, 70))
"""The log of a leader in epoch 3 that ends at 100; epoch 2 had another lineage."""
END = 100


def segment(
    number: int,
    start: int,
    end: int,
    *epochs: tuple[int, int],
    state: SegmentState = FINISHED,
    size_bytes: int = 100,
    timestamp: int = 1000,
) -> RemoteSegment:
    if not epochs:
        known = [entry for entry in HISTORY if entry.start_offset <= end]
        first = max(entry for entry in known if entry.start_offset <= start)
        epochs = (
            (first.epoch, start),
            *(tuple(entry) for entry in known if entry.start_offset > start),  # type: ignore[arg-type]
        )
    return RemoteSegment(
        partition=ORDERS,
        id=SegmentId(number.to_bytes(16, "big")),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=timestamp,
        broker_id=BrokerId(1),
        event_timestamp_ms=0,
        size_bytes=size_bytes,
        epochs=tuple(SegmentEpoch(*each) for each in epochs),
        state=state,
    )


def cache_of(segments: Sequence[RemoteSegment]) -> SegmentCache:
    cache = SegmentCache()
    for each in segments:
        cache.restore(each)
    return cache


def plan(
    segments: Sequence[RemoteSegment],
    *,
    epochs: Sequence[EpochStart] = HISTORY,
    leader_epoch: int = 3,
    start: int = 0,
    local_start: int = 0,
    uncopied_bytes: int = 0,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    is_tiered: bool = True,
    now_ms: int = 2000,
    copying: SegmentId | None = None,
) -> Expiry:
    cache = cache_of(segments)
    terms = Terms(
        lineage=Lineage(epochs, END),
        leader_epoch=leader_epoch,
        start_offset=start,
        local_start_offset=local_start,
        uncopied_bytes=uncopied_bytes,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        is_tiered=is_tiered,
        now_ms=now_ms,
        is_copying=lambda each: each == copying,
        find=lambda epoch, offset: cache.find(KEY, epoch, offset),
    )
    deciding = ExpiryPlan(terms)
    for each in cache.segments(KEY):
        deciding.look_at(each)
    return deciding.finish()


def remote_end(
    segments: Sequence[RemoteSegment],
    local_start: int = 0,
    *,
    epochs: Sequence[EpochStart] = HISTORY,
    proved: int = 0,
) -> int:
    cache = cache_of(segments)
    return find_remote_end(
        Lineage(epochs, END),
        local_start,
        lambda epoch, offset: cache.find(KEY, epoch, offset),
        lambda epoch: cache.highest_offset(KEY, epoch),
        proved=proved,
    )


# Copying


LOCAL = [LocalSegment(0, 10, 50), LocalSegment(10, 20, 0), LocalSegment(20, 35, 50)]


def test_the_oldest_segment_that_is_not_in_the_tier_is_copied() -> None:
    def choose(remote_end: int, stable_offset: int = END, start_offset: int = 0) -> int | None:
        found = choose_copy(
            LOCAL, remote_end=remote_end, start_offset=start_offset, stable_offset=stable_offset
        )
        return None if found is None else found.base_offset

    assert choose(0) == 0
    assert choose(9) == 0
    assert choose(10) == 20
    assert choose(35) is None
    assert choose(0, stable_offset=9) is None
    assert choose(10, stable_offset=34) is None
    assert choose(0, start_offset=12) == 20


def test_the_tiers_end_is_where_the_first_gap_is() -> None:
    parts = [segment(1, 0, 39), segment(2, 40, 59), segment(3, 60, 79)]
    assert remote_end(parts) == 80
    assert remote_end(parts, local_start=55) == 80
    assert remote_end([parts[0], parts[2]]) == 40
    assert remote_end([parts[0], parts[2]], local_start=60) == 80
    assert remote_end([parts[1], parts[2]]) == 0
    assert remote_end(parts[:1], local_start=60) == 40
    assert remote_end([]) == 0


def test_only_what_a_copy_shares_with_the_log_counts() -> None:
    diverged = segment(1, 30, 90, (0, 30), (1, 40), (2, 60))
    assert remote_end([segment(2, 0, 29), diverged]) == 60
    foreign = segment(1, 40, 90, (2, 40))
    assert remote_end([segment(2, 0, 39), foreign]) == 40


def test_an_earlier_result_is_taken_unless_the_tier_lost_it() -> None:
    parts = [segment(1, 0, 39), segment(2, 40, 59), segment(3, 60, 79)]
    assert remote_end(parts, proved=60) == 80
    assert remote_end(parts[:1], proved=60) == 40
    assert remote_end([], proved=60) == 0


# Deleting


def reasons(expiry: Expiry) -> dict[int, Reason]:
    return {each.segment.id[-1]: each.reason for each in expiry.deletions}


def test_age_and_size_take_the_oldest_and_stop_at_the_first_that_stays() -> None:
    parts = [
        segment(1, 0, 9, timestamp=100),
        segment(2, 10, 19, timestamp=900),
        segment(3, 20, 29, timestamp=100),
    ]
    expiry = plan(parts, retention_ms=1500)
    assert reasons(expiry) == {1: Reason.TOO_OLD}
    assert expiry.start_offset == 10
    assert expiry.due_ms == 900 + 1500 + 1
    expiry = plan(parts, retention_bytes=100, uncopied_bytes=0)
    assert reasons(expiry) == {1: Reason.TOO_MUCH, 2: Reason.TOO_MUCH}
    assert plan(parts, retention_bytes=100, uncopied_bytes=99).start_offset == 20
    assert plan(parts, retention_bytes=0, uncopied_bytes=10).start_offset == 30


def test_a_segment_without_a_timestamp_ages_from_its_last_event_and_holds_up_nothing() -> None:
    parts = [
        replace(segment(1, 0, 9, timestamp=-1), event_timestamp_ms=800),
        segment(2, 10, 19, timestamp=100),
        segment(3, 20, 29, timestamp=900),
    ]
    kept = plan(parts, retention_ms=300, now_ms=1000)
    assert (reasons(kept), kept.due_ms) == ({}, 1101)
    assert reasons(plan(parts, retention_ms=150, now_ms=1000)) == {
        1: Reason.TOO_OLD,
        2: Reason.TOO_OLD,
    }


def test_what_was_left_half_done_is_deleted_and_what_is_under_way_is_not() -> None:
    left = [segment(1, 0, 9, state=STARTED), segment(2, 0, 9, state=DELETING)]
    assert reasons(plan(left)) == {1: Reason.DANGLING, 2: Reason.UNFINISHED}
    assert reasons(plan(left, copying=left[0].id)) == {2: Reason.UNFINISHED}


def test_another_lineage_goes_and_one_that_shares_a_part_stays() -> None:
    foreign = segment(1, 60, 90, (2, 60))
    shared = segment(2, 30, 90, (0, 30), (1, 40), (2, 60))
    assert reasons(plan([foreign, shared])) == {1: Reason.UNREFERENCED}


def test_a_log_that_shares_nothing_with_the_tier_gives_nothing_of_it_up() -> None:
    lost = [EpochStart(4, 0)]
    parts = [segment(1, 0, 39), segment(2, 40, 79), segment(3, 0, 9, (4, 0), state=STARTED)]
    expiry = plan(parts, epochs=lost, leader_epoch=4)
    assert expiry.is_foreign
    assert reasons(expiry) == {3: Reason.DANGLING}
    assert not plan([segment(1, 0, 9)]).is_foreign
    assert not plan([]).is_foreign


def test_a_log_that_does_not_know_its_whole_history_keeps_what_it_cannot_judge() -> None:
    foreign = segment(1, 60, 90, (2, 60))
    kept = segment(2, 40, 59)
    assert plan([kept, foreign]).deletions
    assert not plan([kept, foreign], epochs=HISTORY[1:]).deletions
    assert not plan([foreign], epochs=()).deletions


def test_a_deposed_leader_does_nothing() -> None:
    later = segment(1, 90, 99, (5, 90))
    assert plan([segment(2, 0, 9, state=DELETING), later]) == NOTHING


def test_a_gap_at_the_start_is_passed_over_only_if_the_tier_knows_of_the_log() -> None:
    expiry = plan([segment(1, 20, 39)], local_start=40)
    assert (expiry.start_offset, expiry.lost) == (20, Claim(0, 19))
    expiry = plan([segment(1, 0, 39, state=DELETING)], local_start=40)
    assert (expiry.start_offset, expiry.lost) == (40, Claim(0, 39))
    expiry = plan([], local_start=40)
    assert (expiry.start_offset, expiry.lost) == (None, Claim(0, 39))
    forgetful = [EpochStart(1, 30), *HISTORY[2:]]
    expiry = plan([], local_start=40, epochs=forgetful)
    assert (expiry.start_offset, expiry.lost) == (30, Claim(0, 29))
    expiry = plan([segment(1, 20, 39)], local_start=40, epochs=forgetful)
    assert (expiry.start_offset, expiry.lost) == (20, Claim(0, 19))
    expiry = plan([segment(1, 0, 39)], local_start=40)
    assert (expiry.start_offset, expiry.lost) == (None, None)


def test_a_topic_that_left_the_tier_starts_on_the_disk() -> None:
    expiry = plan([segment(1, 0, 39), segment(2, 40, 49)], is_tiered=False, local_start=40)
    assert set(reasons(expiry).values()) == {Reason.NOT_TIERED}
    assert expiry.start_offset == 40


# Whatever comes


epoch_histories = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 30)), min_size=1, max_size=5
).map(
    lambda steps: [
        EpochStart(sum(step + 1 for step, _ in steps[: at + 1]), sum(n for _, n in steps[:at]))
        for at in range(len(steps))
    ]
)


@st.composite
def tiers(draw: st.DrawFn) -> tuple[list[EpochStart], list[RemoteSegment]]:
    """Return the epochs of a log, and copies that its leaders and others made, in any state."""
    own = draw(epoch_histories)
    other = draw(epoch_histories)
    shared = draw(st.integers(0, len(own)))
    diverged = own[:shared] + [
        EpochStart(entry.epoch + own[shared - 1].epoch, entry.start_offset)
        for entry in other
        if shared and entry.start_offset > own[shared - 1].start_offset
    ]
    found = []
    for number in range(draw(st.integers(0, 8))):
        history = draw(st.sampled_from([own, diverged or own]))
        start = draw(st.integers(0, END - 1))
        end = draw(st.integers(start, END - 1))
        known = [entry for entry in history if entry.start_offset <= start]
        later = [entry for entry in history if start < entry.start_offset <= end]
        if known:
            epochs = (
                (known[-1].epoch, start),
                *((each.epoch, each.start_offset) for each in later),
            )
            state = draw(st.sampled_from([STARTED, FINISHED, FINISHED, FINISHED, DELETING]))
            timestamp = draw(st.integers(-1, 2000))
            found.append(segment(number, start, end, *epochs, state=state, timestamp=timestamp))
    return own, found


def readable(cache: SegmentCache, epochs: Sequence[EpochStart]) -> set[int]:
    """Return the offsets of a log that the tier answers for."""
    found = set()
    ends = [entry.start_offset for entry in epochs[1:]] + [END]
    for entry, end in zip(epochs, ends, strict=True):
        for offset in range(entry.start_offset, end):
            if cache.find(KEY, entry.epoch, offset) is not None:
                found.add(offset)
    return found


def carry_out(cache: SegmentCache, deletions: Sequence[Deletion]) -> None:
    for each, _ in deletions:
        for state in (DELETING, DELETED):
            cache.apply(SegmentUpdate(ORDERS, each.id, 0, state, BrokerId(1)))


@given(tiers(), st.integers(0, 60), st.integers(-1, 1500), st.integers(-1, 800))
def test_no_record_of_the_log_is_lost_and_nothing_useless_stays(
    tier: tuple[list[EpochStart], list[RemoteSegment]],
    start: int,
    retention_ms: int,
    retention_bytes: int,
) -> None:
    epochs, segments = tier
    latest = max([epochs[-1].epoch, *(each.epochs[-1].epoch for each in segments)])
    cache = cache_of(segments)
    before = readable(cache, epochs)
    expiry = plan(
        segments,
        epochs=epochs,
        leader_epoch=latest,
        start=start,
        local_start=END,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
    )
    assert start <= END
    new_start = start if expiry.start_offset is None else expiry.start_offset
    carry_out(cache, expiry.deletions)
    after = readable(cache, epochs)
    assert {each for each in before if each >= new_start} <= after
    # A second look, of whoever leads then, finds nothing to do but what retention still wants.
    again = plan(
        cache.segments(KEY),
        epochs=[
            EpochStart(entry.epoch, max(entry.start_offset, new_start))
            for entry, end in zip(
                epochs, [*(each.start_offset for each in epochs[1:]), END], strict=True
            )
            if end > new_start
        ]
        or epochs,
        leader_epoch=latest,
        start=new_start,
        local_start=END,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
    )
    assert {each.reason for each in again.deletions} <= {
        Reason.TOO_OLD,
        Reason.TOO_MUCH,
        Reason.UNREFERENCED,
    }
    kept = [each for each in cache.segments(KEY) if each.state != FINISHED]
    assert not kept


@given(tiers(), st.integers(0, END))
def test_everything_between_the_local_start_and_the_tiers_end_is_in_the_tier(
    tier: tuple[list[EpochStart], list[RemoteSegment]], local_start: int
) -> None:
    epochs, segments = tier
    end = remote_end(segments, local_start, epochs=epochs)
    known = readable(cache_of(segments), epochs)
    assert set(range(local_start, end)) <= known
    if end > local_start:
        assert end not in known
    assert remote_end(segments, local_start, epochs=epochs, proved=end) == end
