from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.ids import BrokerId
from headrace.remote.audit import (
    Ages,
    Class,
    PartitionFacts,
    PartitionGap,
    Report,
    audit_partition,
    sort_objects,
)
from headrace.remote.fingerprints import Fingerprint, encode_fingerprints
from headrace.remote.layout import ObjectKind
from headrace.remote.segments import (
    DeleteState,
    PartitionDelete,
    RemoteSegment,
    SegmentEpoch,
    SegmentState,
)
from headrace.remote.store import StoredObject
from tests.unit.remote.described import PARTITION, objects_of, segment

NOW = 1_000_000
GRACE = 1000
AGES = Ages(NOW, GRACE)
FINISHED = SegmentState.COPY_FINISHED


def audit(
    segments: Sequence[RemoteSegment],
    objects: Sequence[StoredObject],
    **facts: object,
) -> Report:
    of_partitions, others = sort_objects(objects)
    facts.setdefault("states_before", {each.id: each.state for each in segments})
    report = audit_partition(
        PartitionFacts(
            partition=PARTITION,
            segments=segments,
            objects=of_partitions.get(PARTITION.key, []),
            **facts,  # type: ignore[arg-type]
        ),
        AGES,
    )
    report.objects += others
    return report


def classes(report: Report) -> list[Class]:
    return [each.verdict for each in report.segments]


def test_a_whole_tier_is_clean() -> None:
    segments = [segment(1, 0, 9), segment(2, 10, 19)]
    report = audit(segments, [*objects_of(segments[0]), *objects_of(segments[1])])
    assert classes(report) == [Class.OK, Class.OK]
    assert report.is_clean


@pytest.mark.parametrize(
    ("state", "event_ms", "expected"),
    [
        (SegmentState.COPY_STARTED, NOW - 10, Class.COPYING),
        (SegmentState.COPY_STARTED, NOW - GRACE - 1, Class.DANGLING),
        (SegmentState.DELETE_STARTED, NOW - 10, Class.DELETING),
        (SegmentState.DELETE_STARTED, NOW - GRACE - 1, Class.DANGLING),
    ],
)
def test_a_step_that_began_long_ago_is_dangling(
    state: SegmentState, event_ms: int, expected: Class
) -> None:
    report = audit([segment(1, 0, 9, state=state, event_ms=event_ms)], [])
    assert classes(report) == [expected]


def test_a_finished_segment_without_an_object_is_missing_it() -> None:
    one = segment(1, 0, 9)
    report = audit([one], objects_of(one, without=[ObjectKind.LEADER_EPOCHS]))
    assert classes(report) == [Class.MISSING_OBJECT]
    assert ".leader_epoch_checkpoint" in report.segments[0].why
    assert not report.gaps


def test_a_log_of_another_size_is_a_mismatch() -> None:
    one = segment(1, 0, 9, size_bytes=1000)
    objects = [
        each._replace(size_bytes=999) if each.key.endswith(".log") else each
        for each in objects_of(one)
    ]
    assert classes(audit([one], objects)) == [Class.MISMATCH]


def test_objects_are_compared_with_what_was_written() -> None:
    written = {
        ObjectKind.LOG: Fingerprint(1000, 1),
        ObjectKind.TXN_INDEX: Fingerprint(34, 2),
        ObjectKind.LEADER_EPOCHS: Fingerprint(10, 3),
    }
    one = replace(segment(1, 0, 9), custom_metadata=encode_fingerprints(written))
    assert "there is no .txnindex" in audit([one], objects_of(one)).segments[0].why


def test_damage_that_reading_showed_is_a_mismatch() -> None:
    one = segment(1, 0, 9)
    report = audit([one], objects_of(one), damaged={one.id: "CRC"})
    assert classes(report) == [Class.MISMATCH]


def test_offsets_that_are_nowhere_are_a_gap() -> None:
    segments = [segment(1, 0, 9), segment(2, 15, 19)]
    report = audit(segments, [*objects_of(segments[0]), *objects_of(segments[1])])
    assert classes(report) == [Class.OK, Class.GAP]
    assert report.gaps == [PartitionGap(PARTITION, 10, 14)]
    assert not report.is_clean


def test_offsets_between_the_tier_and_the_disk_are_a_gap() -> None:
    one = segment(1, 0, 9)
    report = audit([one], objects_of(one), log_start_offset=0, local_start_offset=12)
    assert report.gaps == [PartitionGap(PARTITION, 10, 11)]
    assert classes(report) == [Class.OK]
    report = audit([one], objects_of(one), log_start_offset=0, local_start_offset=5)
    assert report.is_clean


def test_what_no_segment_has_is_a_gap_also_if_there_is_none_at_all() -> None:
    orphans = objects_of(segment(1, 0, 9))
    report = audit([], orphans, log_start_offset=0, local_start_offset=10)
    assert report.gaps == [PartitionGap(PARTITION, 0, 9)]
    assert not audit([], orphans, log_start_offset=10, local_start_offset=10).gaps


@pytest.mark.parametrize("state", [SegmentState.COPY_STARTED, SegmentState.DELETE_STARTED])
def test_what_only_unfinished_segments_have_is_a_gap(state: SegmentState) -> None:
    """As when all events are lost, and the leader has begun to copy what is on its disk."""
    orphans = objects_of(segment(1, 0, 9))
    unfinished = replace(segment(2, 10, 19), state=state)
    report = audit([unfinished], orphans, log_start_offset=0, local_start_offset=10)
    assert report.gaps == [PartitionGap(PARTITION, 0, 9)]


def test_a_segment_that_others_cover_is_an_overlap_unless_they_are_damaged() -> None:
    segments = [segment(1, 0, 100), segment(2, 101, 200), segment(3, 0, 150)]
    objects = [each for one in segments for each in objects_of(one)]
    assert classes(audit(segments, objects)) == [Class.OVERLAP, Class.OK, Class.OK]
    report = audit(segments, objects, damaged={segments[2].id: "CRC"})
    assert classes(report) == [Class.OK, Class.OK, Class.MISMATCH]


def test_records_of_a_leader_that_lost_them_are_a_foreign_lineage() -> None:
    segments = [
        segment(1, 0, 9, epochs=[(0, 0)]),
        segment(2, 10, 19, epochs=[(0, 10)]),
        segment(3, 10, 29, epochs=[(0, 10), (2, 12)]),
    ]
    objects = [each for one in segments for each in objects_of(one)]
    assert classes(audit(segments, objects)) == [Class.OK, Class.FOREIGN_LINEAGE, Class.OK]
    alone = audit(segments[:2], objects[:10], epochs=[SegmentEpoch(0, 0), SegmentEpoch(1, 10)])
    assert classes(alone) == [Class.OK, Class.FOREIGN_LINEAGE]


def test_a_segment_whose_first_records_are_nowhere_else_is_kept() -> None:
    """Brokers read them there, and may have deleted their own."""
    segments = [segment(1, 0, 9, epochs=[(0, 0)]), segment(2, 10, 19, epochs=[(0, 10), (1, 15)])]
    objects = [each for one in segments for each in objects_of(one)]
    known = [SegmentEpoch(0, 0), SegmentEpoch(3, 12)]
    report = audit(segments, objects, epochs=known, local_start_offset=12)
    assert classes(report) == [Class.OK, Class.OK]
    assert report.is_clean
    report = audit(segments, objects, epochs=known, local_start_offset=14)
    assert [(each.first, each.last) for each in report.gaps] == [(12, 13)]


def test_objects_that_no_event_knows_are_orphans_when_they_are_old() -> None:
    unknown = segment(9, 0, 9)
    old = audit([], objects_of(unknown, modified_ms=NOW - GRACE - 1))
    assert {each.verdict for each in old.objects} == {Class.ORPHANED_OBJECT}
    new = audit([], objects_of(unknown, modified_ms=NOW - 1))
    assert {each.verdict for each in new.objects} == {Class.COPYING}


def test_a_segment_that_was_deleted_during_the_listing_leaves_no_orphans() -> None:
    gone = segment(9, 0, 9)
    report = audit([], objects_of(gone), states_before={gone.id: SegmentState.DELETE_STARTED})
    assert {each.verdict for each in report.objects} == {Class.DELETING}


def test_a_segment_that_was_finished_during_the_listing_misses_nothing() -> None:
    one = segment(1, 0, 9)
    report = audit([one], [], states_before={one.id: SegmentState.COPY_STARTED})
    assert classes(report) == [Class.COPYING]


def test_a_disk_that_was_freed_for_a_copy_that_was_finished_meanwhile_makes_no_gap() -> None:
    one, late = segment(1, 0, 9), segment(2, 10, 19, epochs=[(4, 10)])
    report = audit(
        [one, late],
        objects_of(one),
        states_before={one.id: FINISHED},
        log_start_offset=0,
        local_start_offset=20,
    )
    assert classes(report) == [Class.OK, Class.COPYING]
    assert report.is_clean


def test_a_partition_whose_deletion_stopped_is_dangling() -> None:
    one = segment(1, 0, 9)
    for event_ms, expected in ((NOW, Class.DELETING), (0, Class.DANGLING)):
        deletion = PartitionDelete(PARTITION, event_ms, DeleteState.STARTED, BrokerId(1))
        report = audit([one], objects_of(one), deletion=deletion)
        assert classes(report) == [expected]
        assert bool(report.deletions) is (expected is Class.DANGLING)


def test_segments_of_a_topic_that_is_gone_are_dangling() -> None:
    one = segment(1, 0, 9)
    assert classes(audit([one], objects_of(one), is_topic_deleted=True)) == [Class.DANGLING]


def test_other_keys_are_foreign_or_our_own() -> None:
    report = audit(
        [], [StoredObject("backup.tar", 5, 0), StoredObject(".headrace/cluster.json", 6, 0)]
    )
    assert [each.verdict for each in report.objects] == [Class.FOREIGN_OBJECT, Class.OWN]


SEGMENTS = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.integers(0, 15),
        st.integers(0, 3),
        st.sampled_from(list(SegmentState)[:3]),
        st.sampled_from([0, NOW]),
        st.integers(0, 1000),
    ),
    max_size=8,
)


@given(
    SEGMENTS,
    st.sets(st.integers(0, 7)),
    st.lists(st.integers(0, 10), max_size=40),
    st.sets(st.integers(0, 39)),
    st.none() | st.integers(0, 60),
    st.booleans(),
)
def test_every_segment_and_object_is_in_one_class_and_bytes_add_up(
    drawn: list[tuple[int, int, int, SegmentState, int, int]],
    unknown: set[int],
    sizes: list[int],
    lost: set[int],
    local_start: int | None,
    is_topic_deleted: bool,
) -> None:
    everything = [
        segment(
            number,
            start,
            start + length,
            epochs=[(epoch, start)],
            state=state,
            event_ms=event_ms,
            size_bytes=size,
        )
        for number, (start, length, epoch, state, event_ms, size) in enumerate(drawn)
    ]
    known = [each for number, each in enumerate(everything) if number not in unknown]
    listed = [each for one in everything for each in objects_of(one)]
    listed = [each for number, each in enumerate(listed) if number not in lost]
    listed += [StoredObject(f"other/{number}", size, 0) for number, size in enumerate(sizes)]
    report = audit(
        known,
        listed,
        local_start_offset=local_start,
        log_start_offset=None if local_start is None else 0,
        is_topic_deleted=is_topic_deleted,
    )
    assert [each.segment for each in report.segments] == known
    found = [each.key for one in report.segments for each in one.objects]
    found += [each.object.key for each in report.objects]
    assert sorted(found) == sorted(each.key for each in listed)
    tallies = report.tallies()
    assert sum(each.stored_bytes for each in tallies.values()) == sum(
        each.size_bytes for each in listed
    )
    assert sum(each.segments for each in tallies.values()) == len(known)
    assert sum(each.objects for each in tallies.values()) == len(listed)
