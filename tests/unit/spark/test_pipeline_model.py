"""Pipelines as data: what is refused and how it is put, in which order queries run."""

from typing import Any

import pytest

from headrace.spark.pipelines.drawing import layers, mermaid, svg
from headrace.spark.pipelines.model import (
    InvalidPipeline,
    Pipeline,
    Place,
    Step,
    check,
    edges,
    problems,
    queries,
    stages,
)


def step(name: str, *reads: str, **more: Any) -> Step:
    return Step(name, f"steps/{name}.sql", reads, **more)


def pipeline(*steps: Step, sources: str = "orders", sinks: str = "") -> Pipeline:
    return Pipeline(
        "shop",
        {each: Place(each, "headrace", {"subscribe": each}) for each in sources.split()},
        {each.name: each for each in steps},
        {each: Place(each, "parquet", {"path": f"/{each}"}) for each in sinks.split()},
    )


CHAIN = pipeline(
    step("paid", "orders"),
    step("totals", "paid", writes="totals"),
    step("late", "paid", "products", writes="late"),
    step("report", "totals", writes="weekly"),
    sources="orders products",
    sinks="totals late weekly",
)


def test_a_sound_pipeline_has_no_problems_and_its_stages_follow_what_is_stored() -> None:
    assert problems(CHAIN) == []
    assert [[each.step.name for each in stage] for stage in stages(CHAIN)] == [
        ["totals", "late"],
        ["report"],
    ]


def test_a_query_knows_all_that_it_is_computed_from() -> None:
    found = {each.step.name: each for each in queries(CHAIN)}
    assert found["late"].through == ("paid", "late")
    assert found["late"].sources == ("orders", "products")
    assert found["report"].through == ("report",)
    assert found["report"].stored == ("totals",)


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (
            pipeline(
                step("a", "order", writes="out"), step("b", "orders", writes="o2"), sinks="out o2"
            ),
            r"step 'a' \(steps/a.sql\) reads 'order', which does not exist, did you mean 'orders'",
        ),
        (
            pipeline(step("a", "orders", writes="uot"), sinks="out"),
            r"writes 'uot', which is no sink, did you mean 'out'\?",
        ),
        (
            pipeline(
                step("a", "orders", writes="out"), step("b", "orders", writes="out"), sinks="out"
            ),
            r"step 'b' \(steps/b.sql\) and step 'a' \(steps/a.sql\) both write 'out'",
        ),
        (
            pipeline(step("a", "b"), step("b", "a", "orders", writes="out"), sinks="out"),
            r"read each other in a circle: (a -> b -> a|b -> a -> b)",
        ),
        (
            pipeline(step("a", "orders", "y", writes="x"), step("b", "x", writes="y"), sinks="x y"),
            r"in a circle: .*x -> b -> y",
        ),
        (pipeline(step("a", "orders")), r"neither writes a sink nor is read"),
        (pipeline(step("a", "orders", writes="out"), sinks="out more"), r"sink 'more' is written"),
        (
            pipeline(step("a", "orders", writes="out"), sources="orders x", sinks="out"),
            r"source 'x' is read by no step",
        ),
        (
            pipeline(step("a", "orders", writes="out", mode="apend"), sinks="out"),
            r"mode 'apend'; it is one of append, update, complete",
        ),
        (pipeline(), "it has no steps"),
        (
            pipeline(step("orders", "orders", writes="out"), sinks="out"),
            r"'orders' is a source and also a step",
        ),
    ],
)
def test_what_is_wrong_is_told_with_step_and_file(broken: Pipeline, told: str) -> None:
    with pytest.raises(InvalidPipeline, match=told):
        check(broken)


def test_the_drawing_has_every_box_once_and_flows_to_the_right() -> None:
    columns = layers(CHAIN)
    place = {node: at for at, column in enumerate(columns) for node in column}
    assert all(place[giver] < place[taker] for giver, taker in edges(CHAIN))
    drawn = svg(CHAIN)
    for node in place:
        assert drawn.count(f'id="{node}"') == 1
    assert drawn.count("marker-end") == len(list(edges(CHAIN)))
    assert mermaid(CHAIN).count("-->") == len(list(edges(CHAIN)))


def test_names_cannot_break_out_of_the_drawing() -> None:
    odd = Pipeline(
        "<b>",
        {"orders": Place("orders", "headrace", {"subscribe": "<script>&"})},
        {"a": step("a", "orders", writes="out")},
        {"out": Place("out", "parquet")},
    )
    assert "<script>" not in svg(odd)
    assert "<b>" not in svg(odd)
