"""What is committed, planned, merged and backfilled: the arithmetic of tables."""

import pytest

from headrace.client.topics import TopicPartition
from headrace.spark.tables.alarms import crowded, overtaken
from headrace.spark.tables.backfilling import plan_down
from headrace.spark.tables.commits import (
    Batch,
    Head,
    Superseded,
    Verdict,
    from_properties,
    judge,
    judge_letters,
    to_properties,
)
from headrace.spark.tables.definition import Definition, Mode
from headrace.spark.tables.maintenance import pieces_of
from headrace.spark.tables.planning import Gap, TopicState, check_cuts, plan_batch, ranges_of
from headrace.spark.tables.table_store import LiveFile

TABLE = Definition(name="t", id="i", topic="orders", location="file:///lake")


def batch(start: dict[int, int], stop: dict[int, int], epoch: int = 1) -> Batch:
    return Batch(start=start, stop=stop, epoch=epoch, number=0, query="q")


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ({}, Verdict.COMMIT),
        ({0: 5, 1: 3}, Verdict.COMMIT),
        ({0: 9, 1: 7}, Verdict.SKIP),
        ({0: 12, 1: 7}, Verdict.SKIP),
        ({0: 9, 1: 3}, Verdict.PLAN_AGAIN),
        ({0: 6, 1: 3}, Verdict.PLAN_AGAIN),
        ({0: 4, 1: 3}, Verdict.PLAN_AGAIN),
    ],
)
def test_a_batch_is_committed_only_where_the_table_ends(
    offsets: dict[int, int], expected: Verdict
) -> None:
    assert judge(Head(offsets=offsets), batch({0: 5, 1: 3}, {0: 9, 1: 7})) is expected


def test_an_older_writer_stops() -> None:
    with pytest.raises(Superseded):
        judge(Head(offsets={0: 5}, epoch=2), batch({0: 5}, {0: 6}))


def test_dead_letters_may_be_behind_and_are_never_committed_twice() -> None:
    wanted = batch({0: 5}, {0: 9})
    assert judge_letters(Head(offsets={0: 2}), wanted) is Verdict.COMMIT
    assert judge_letters(Head(offsets={0: 9}), wanted) is Verdict.SKIP
    assert judge_letters(Head(offsets={0: 7}), wanted) is Verdict.PLAN_AGAIN


def test_what_a_commit_carries_is_read_back() -> None:
    head = Head(offsets={0: 5, 2: 1}, begins={0: 3, 2: 1})
    found = from_properties(to_properties(head, batch({0: 5, 1: 0}, {0: 9, 1: 2})), "v")
    assert found.offsets == {0: 9, 1: 2, 2: 1}
    assert found.begins == {0: 3, 1: 0, 2: 1}
    assert (found.epoch, found.batch) == (1, 0)


def state(earliest: dict[int, int], latest: dict[int, int], topic_id: str = "a") -> TopicState:
    return TopicState(topic_id=topic_id, earliest=earliest, latest=latest)


def plan(state: TopicState, offsets: dict[int, int], letters: dict[int, int] | None = None,
         **more: bool) -> tuple[dict[int, int], dict[int, int]]:  # fmt: skip
    head = Head(offsets=offsets, topic_id="a")
    made = plan_batch(TABLE, state, head, Head(offsets=letters or {}), records_max=100, **more)
    return made.start, made.stop


def test_a_batch_continues_at_the_head_and_new_partitions_at_their_beginning() -> None:
    assert plan(state({0: 0, 1: 4}, {0: 9, 1: 6}), {0: 7}) == ({0: 7, 1: 4}, {0: 9, 1: 6})


def test_a_batch_whose_letters_are_committed_is_planned_again_exactly() -> None:
    assert plan(state({0: 0}, {0: 50}), {0: 7}, {0: 20})[1] == {0: 20}


def test_what_is_gone_is_never_passed_over_silently() -> None:
    with pytest.raises(Gap, match="offsets 3 to 4 are gone"):
        plan(state({0: 5}, {0: 9}), {0: 3})
    assert plan(state({0: 5}, {0: 9}), {0: 3}, accepts_loss=True) == ({0: 5}, {0: 9})
    with pytest.raises(Gap, match="truncated: orders-0 ends at offset 2"):
        plan(state({0: 0}, {0: 2}), {0: 3}, accepts_loss=True)
    with pytest.raises(Gap, match="re-created"):
        plan(state({0: 0}, {0: 2}, "b"), {0: 1}, accepts_loss=True)
    with pytest.raises(Gap, match="no partition 1"):
        plan(state({0: 0}, {0: 2}), {0: 1, 1: 5})


def test_a_batch_that_a_loss_has_passed_is_not_waited_for() -> None:
    there = state({0: 200}, {0: 300})
    lost = plan(there, {0: 100}, {0: 150}, accepts_loss=True)
    assert lost == ({0: 200}, {0: 300})
    assert plan(there, {0: 100}, {0: 250}, accepts_loss=True) == ({0: 200}, {0: 250})


def test_dead_letters_beyond_the_end_of_the_log_are_a_cut() -> None:
    with pytest.raises(Gap, match="truncated: orders-0 ends at offset 120, and dead letters"):
        plan(state({0: 0}, {0: 120}), {0: 100}, {0: 150})


def test_a_log_that_was_cut_and_grew_beyond_the_table_is_known_by_its_epochs() -> None:
    head = Head(offsets={0: 10, 1: 5}, leaders={0: 3, 1: 3})
    check_cuts(TABLE, head, {0: 10, 1: -1})
    with pytest.raises(Gap, match="truncated: orders-0 has other records from offset 5 on"):
        check_cuts(TABLE, head, {0: 5, 1: 9})


def test_a_partition_of_an_upserted_table_is_one_task() -> None:
    made = plan_batch(
        TABLE, state({0: 0}, {0: 900_000}), Head(offsets={}), Head(offsets={}), records_max=10**6
    )
    assert len(ranges_of(TABLE, made, bytes(16), 4)) == 4
    upserted = Definition(name="t", id="i", topic="orders", location="x", mode=Mode.UPSERT)
    assert len(ranges_of(upserted, made, bytes(16), 4)) == 1


def test_a_backfill_goes_down_from_the_beginning_without_a_hole() -> None:
    assert plan_down({0: 10, 1: 4}, {0: 0, 1: 4}, {}, 6) == {0: 4}
    assert plan_down({0: 10, 1: 4}, {0: 0, 1: 0}, {}, 6) == {0: 7, 1: 1}
    assert plan_down({0: 10}, {0: 0}, {0: 8}, 6) == {0: 8}
    assert plan_down({0: 10}, {0: 10}, {}, 6) == {}


def test_only_small_files_of_one_partition_are_merged() -> None:
    def file(key: str, size: int, partition: int) -> LiveFile:
        bounds = {"_partition": (partition, partition)}
        return LiveFile(key=key, size_bytes=size, rows=1, bounds=bounds)

    files = [file("a", 10, 0), file("b", 10, 0), file("c", 10, 1), file("d", 90, 0)]
    assert [[each.key for each in piece] for piece in pieces_of(files, 100)] == [["a", "b"]]
    many = [file(str(number), 40, 0) for number in range(5)]
    assert [len(piece) for piece in pieces_of(many, 100)] == [2, 2]


def test_alarms_name_the_partition_and_the_offset() -> None:
    here = TopicPartition("orders", 0)
    assert "from offset 3 on" in overtaken({here: 3}, {here: 5}, {here: 9}, 1000)[0]
    assert "from offset 3 on" in overtaken({here: 3}, {here: -1}, {here: 9}, 1000)[0]
    assert overtaken({here: 5}, {here: 5}, {here: 9}, 1000) == []
    assert crowded({here: 11}, {here: 10}, {here: 100})
    assert crowded({here: 90}, {here: 10}, {here: 100}) == []
    assert crowded({here: 0}, {here: 0}, {here: 100}) == []
