"""Pipelines on Spark and a broker: results, restarts after a failure of each step, the graph."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from headrace.cli.program import headrace as program
from headrace.spark import session
from headrace.spark.pipelines.example import write_example
from headrace.spark.pipelines.failures import StepFailed
from headrace.spark.pipelines.model import edges, queries
from headrace.spark.pipelines.progress import StepProgress
from headrace.spark.pipelines.running import Run
from headrace.spark.pipelines.state import PipelineBusy, claim, hold
from headrace.testing.broker import TestBroker
from headrace.testing.pipelines import PipelineTest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
DEADLINE_SECONDS = 120

TOML = """
name = "shop"
[parameters]
bootstrap = "127.0.0.1:9092"
[options]
kafka.bootstrap.servers = "${bootstrap}"
[sources.orders]
format = "headrace"
subscribe = "TOPIC"
[sinks.clean]
format = "headrace"
topic = "TOPIC-clean"
[sinks.stored]
format = "parquet"
path = "out/stored"
[sinks.seen]
format = "parquet"
path = "out/seen"
"""
PARSED = """
-- reads: orders
select key, cast(cast(value as string) as int) * BROKEN as number from orders
"""
CLEAN = """
-- reads: parsed
-- writes: clean
select key, cast(number as string) as value from parsed
"""
STEPS = """
from pyspark.sql import functions as F
from headrace.spark.pipelines import step

FAILING = "WHO"


@step(writes="stored")
def stored(clean):
    number = F.udf(convert, "int")
    return clean.select(number("value").alias("number"))


def convert(value):
    number = int(value)
    if FAILING == "stored" and number == 30:
        raise ValueError(f"cannot store {number}")
    return number


@step(reads="clean", writes="seen", per_batch=True)
def seen(batch, sink):
    if FAILING == "seen":
        raise RuntimeError("nobody looks")
    sink.write(batch.selectExpr("cast(value as string) as value"))
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        yield made


@pytest.fixture(scope="module")
def spark(java: None) -> Iterator[SparkSession]:
    made = session("local[2]", banner=False)
    yield made
    made.stop()


@pytest.fixture
def shop(broker: TestBroker, spark: SparkSession, tmp_path: Path) -> Callable[[str], PipelineTest]:
    def make(topic: str) -> PipelineTest:
        folder = tmp_path / "written"
        (folder / "steps").mkdir(parents=True)
        (folder / "pipeline.toml").write_text(TOML.replace("TOPIC", topic))
        break_step(folder, "nobody")
        return PipelineTest(folder, broker, tmp_path / "run", spark=spark)

    return make


def break_step(folder: Path, name: str) -> None:
    """Write the steps, of which one fails."""
    factor = "(1 / (cast(value as string) - 30))" if name == "parsed" else "1"
    (folder / "steps/parsed.sql").write_text(PARSED.replace("BROKEN", factor))
    (folder / "steps/clean.sql").write_text(CLEAN)
    (folder / "steps/later.py").write_text(STEPS.replace("WHO", name))


def test_the_example_gives_what_its_test_expects(
    broker: TestBroker, spark: SparkSession, tmp_path: Path
) -> None:
    write_example(tmp_path / "orders")
    example = PipelineTest(tmp_path / "orders", broker, tmp_path / "run", spark=spark)
    paid = {"customer": "ada", "amount": 12.5, "state": "paid"}
    example.produce("orders", {"id": 1, **paid}, {"id": 2, **paid, "state": "open"})
    example.run()
    first = {"customer": "ada", "amount": 12.5, "n": 1, "batch": 0}
    example.expect("totals", [first])
    example.produce("orders", {"id": 3, **paid})
    example.run()
    example.expect("totals", [first, {**first, "batch": 1}])
    with pytest.raises(AssertionError, match=r"missing   .*bob"):
        example.expect("totals", [{"customer": "bob"}])


TOLD = {
    "parsed": r"step 'parsed' \(steps/parsed.sql\) failed, at record numbers-\w+-0 offset \d+ "
    r"\(key null, value '30'\): \[DIVIDE_BY_ZERO\]",
    "stored": r"step 'stored' \(steps/later.py\) failed, at record numbers-\w+-clean-0 offset \d+ "
    r"\(key null, value '30'\): ValueError: cannot store 30",
    "seen": r"step 'seen' \(steps/later.py\) failed: RuntimeError: nobody looks",
}


def test_a_run_continues_exactly_after_a_failure(shop: Callable[[str], PipelineTest]) -> None:
    check_failures_of(shop("numbers-one"), ["parsed"])


@pytest.mark.exhaustive
def test_a_run_continues_exactly_after_failures_of_each_step(
    shop: Callable[[str], PipelineTest],
) -> None:
    check_failures_of(shop("numbers-all"), ["parsed", "stored", "seen"])


def check_failures_of(pipeline: PipelineTest, names: Sequence[str]) -> None:
    """Let steps fail in turn, repair them, and compare what is stored in the end."""
    rows: list[int] = []
    for turn, name in enumerate(names):
        numbers = [30, 31 + turn]
        pipeline.produce("orders", *map(str, numbers))
        rows += numbers
        break_step(pipeline.folder, name)
        with pytest.raises(StepFailed, match=TOLD[name]):
            pipeline.run()
        break_step(pipeline.folder, "nobody")
        pipeline.run()
    pipeline.expect("stored", [{"number": each} for each in rows])
    pipeline.expect("seen", [{"value": str(each)} for each in rows])


def test_the_graph_is_what_runs_and_a_second_run_is_refused(
    shop: Callable[[str], PipelineTest], spark: SparkSession
) -> None:
    pipeline = shop("flow")
    pipeline.produce("orders", "1", "2")
    defined = pipeline.defined()
    checked: list[str] = []
    deadline = time.monotonic() + DEADLINE_SECONDS

    def look(steps: Sequence[StepProgress]) -> None:
        """Compare what runs with the graph once every step had rows, then stop."""
        assert time.monotonic() < deadline, "too late"
        if checked or not all(each.rows for each in steps):
            return
        running = {each.name: each for each in spark.streams.active}
        assert set(running) == {each.step.name for each in queries(defined.pipeline)}
        drawn = set(edges(defined.pipeline))
        for name, query in running.items():
            progress = query.lastProgress
            assert progress is not None
            reads = {giver for giver, taker in drawn if taker == f"step:{name}"}
            assert len(progress["sources"]) == len(reads)
            checked.append(name)
        with pytest.raises(PipelineBusy), hold(defined):
            pass
        run.stop()

    with hold(defined):
        claim(defined)
        run = Run(defined, spark)
        assert run.go(look) == "stopped"
    assert sorted(checked) == ["clean", "seen", "stored"]
    assert spark.streams.active == []
    assert {each.state for each in run.steps.values()} == {"stopped"}
    shown = CliRunner().invoke(program, ["pipeline", "status", str(pipeline.folder)])
    assert shown.exit_code == 0
    assert "shop  stopped" in shown.stdout


def test_a_statement_that_spark_refuses_names_its_file(
    shop: Callable[[str], PipelineTest],
) -> None:
    pipeline = shop("refused")
    (pipeline.folder / "steps/clean.sql").write_text(
        "-- reads: parsed\n-- writes: clean\nselect vlaue from parsed\n"
    )
    with pytest.raises(StepFailed, match=r"step 'clean' \(steps/clean.sql\) failed: .*vlaue"):
        pipeline.run()
