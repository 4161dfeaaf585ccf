from hypothesis import given
from hypothesis import strategies as st

from headrace.client.share.session import SharedPartition
from headrace.ids import TopicId
from headrace.spark.share.journal import Run
from headrace.spark.share.tasks import GAP_MAX, Task, plan

A, B = (SharedPartition(TopicId(bytes(16)), "orders", index) for index in range(2))


@st.composite
def some_runs(draw: st.DrawFn) -> list[Run]:
    edges = sorted(draw(st.sets(st.integers(0, 500), max_size=12)))
    pairs = zip(edges[::2], edges[1::2], strict=False)
    return [Run(first, last - 1, 1 + first % 3) for first, last in pairs]


def offsets(tasks: list[Task]) -> list[tuple[int, int, int]]:
    return [
        (span.range.partition, offset, run.delivery_count)
        for task in tasks
        for span in task
        for run in span.runs
        for offset in range(run.first, run.last + 1)
    ]


@given(some_runs(), some_runs(), st.none() | st.integers(1, 9))
def test_tasks_have_every_record_once_and_equal_parts(
    first: list[Run], second: list[Run], tasks_min: int | None
) -> None:
    tasks = plan({B: second, A: first}, tasks_min)
    wanted = [
        (shared.partition_index, offset, run.delivery_count)
        for shared, runs in ((A, first), (B, second))
        for run in runs
        for offset in range(run.first, run.last + 1)
    ]
    assert offsets(tasks) == wanted
    partitions = bool(first) + bool(second)
    if tasks_min is None or tasks_min <= partitions:
        assert len(tasks) == partitions
    else:
        assert len(tasks) == min(tasks_min, len(wanted))
        sizes = [len(offsets([task])) for task in tasks]
        assert not sizes or max(sizes) - min(sizes) <= 1
    for task in tasks:
        for span in task:
            assert span.range.start == span.runs[0].first
            assert span.range.stop == span.runs[-1].last + 1


def test_runs_that_are_near_are_fetched_together() -> None:
    near, far = Run(10, 19, 2), Run(20 + GAP_MAX, 20 + GAP_MAX, 1)
    (task,) = plan({A: [Run(0, 4, 1), near, far]}, None)
    assert [span.runs for span in task] == [(Run(0, 4, 1), near, far)]
    further = Run(far.first + 1, far.last + 1, 1)
    (task,) = plan({A: [Run(0, 4, 1), near, further]}, None)
    assert [span.runs for span in task] == [(Run(0, 4, 1), near), (further,)]
