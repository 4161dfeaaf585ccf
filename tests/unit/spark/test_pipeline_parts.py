"""The parts of pipelines that need no Spark: headers, folders, progress, failures, locks."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.errors import HeadraceError
from headrace.spark.pipelines.culprit import Places, batch_of, find_culprit
from headrace.spark.pipelines.definition import Defined, load
from headrace.spark.pipelines.example import FILES, write_example
from headrace.spark.pipelines.failures import describe_record, reason_of
from headrace.spark.pipelines.headers import parse_sql
from headrace.spark.pipelines.model import InvalidPipeline
from headrace.spark.pipelines.progress import StepProgress, left_of
from headrace.spark.pipelines.sink import Sink
from headrace.spark.pipelines.state import (
    ForeignCheckpoint,
    PipelineBusy,
    Status,
    claim,
    hold,
    is_held,
    read_status,
    write_status,
)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    write_example(tmp_path / "orders")
    return tmp_path / "orders"


def test_the_header_of_a_sql_step_says_what_it_reads_and_writes() -> None:
    text = (
        "-- Totals: by customer\n-- reads: orders, products\n-- writes: totals\n-- mode: complete\n"
    )
    text += "-- trigger: 10 seconds\n-- watermark: at 5 minutes\nselect 1;\n"
    step, statement = parse_sql("totals", "steps/totals.sql", text)
    assert (step.reads, step.writes, step.mode) == (("orders", "products"), "totals", "complete")
    assert (step.trigger, step.watermark) == ("10 seconds", ("at", "5 minutes"))
    assert statement.endswith("select 1")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "-- read: orders\nselect 1",
            r"a\.sql:1: a header 'read' is not known, did you mean 'reads'",
        ),
        ("-- reads: a\n-- reads: b\nselect 1", r"a\.sql:2: the header 'reads' is there twice"),
        ("select 1", r"say what it reads"),
        ("-- reads: a\n", r"there is no SQL statement"),
        ("-- reads: a\n-- trigger: soon\nselect 1", r"trigger 'soon'; an interval is"),
        ("-- reads: a\n-- trigger: 1.5 minutes\nselect 1", r"trigger '1.5 minutes'; an interval"),
        (f"-- reads: a\n-- trigger: {'9' * 30} days\nselect 1", r"trigger '9+ days'; an interval"),
        ("-- reads: a\n-- watermark: at\nselect 1", r"watermark 'at'; a column and an interval"),
        ("-- reads: a\n-- watermark: at 1.5 hours\nselect 1", r"a column and an interval"),
    ],
)
def test_a_wrong_header_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(InvalidPipeline, match=told):
        parse_sql("a", "steps/a.sql", text)


def test_a_trigger_may_have_parts_of_seconds() -> None:
    step, _ = parse_sql("a", "steps/a.sql", "-- reads: a\n-- trigger: 1.5 Seconds\nselect 1")
    assert step.trigger == "1.5 seconds"


def test_the_example_loads_with_its_parameters(example: Path) -> None:
    defined = load(example, {"bootstrap": "broker:1"})
    assert defined.pipeline.sources["orders"].options["kafka.bootstrap.servers"] == "broker:1"
    assert defined.pipeline.steps["totals"].reads == ("paid",)
    assert defined.pipeline.steps["totals"].is_per_batch
    assert defined.pipeline.sinks["totals"].options["path"] == str(example / "out/totals")
    with pytest.raises(InvalidPipeline, match="is not empty"):
        write_example(example)


def test_a_table_that_a_step_reads_is_found_by_the_common_options(example: Path) -> None:
    path = example / "pipeline.toml"
    table = '[sources.kept]\nformat = "headrace-table"\ntable = "orders_t"\nstream = false\n'
    path.write_text(path.read_text() + table)
    (example / "steps/both.sql").write_text("-- reads: paid, kept\n-- writes: totals\nselect 1")
    (example / "steps/totals.py").unlink()
    kept = load(example, {"bootstrap": "broker:1"}).pipeline.sources["kept"].options
    assert kept == {"table": "orders_t", "kafka.bootstrap.servers": "broker:1"}


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("pipeline.toml", "nam = 'x'\n", r"'nam' is not known, did you mean 'name'\?"),
        ("pipeline.toml", "name = \n", r"pipeline\.toml: .*line 1"),
        (
            "pipeline.toml",
            FILES["pipeline.toml"].replace("${bootstrap}", "${bootstrp}"),
            r"no parameter 'bootstrp', did you mean 'bootstrap'\?",
        ),
        (
            "pipeline.toml",
            FILES["pipeline.toml"].replace('format = "headrace"', ""),
            r"sources\.orders needs a format",
        ),
        ("steps/totals.py", "import nowhere\n", r"steps/totals\.py:1: ModuleNotFoundError"),
        ("steps/totals.py", "x = 1\ndef :\n", r"steps/totals\.py:2: SyntaxError"),
        ("steps/totals.py", "x = 1\n", r"steps/totals\.py has no function with @step"),
        *(
            (
                "steps/totals.py",
                f"from headrace.spark.pipelines import step\n@step({given})\ndef f(paid): ...\n",
                r"steps/totals\.py: @step of 'f' .*" + told,
            )
            for given, told in (
                ("writes='totals', trigger=10", r"Expected `str \| null`, got `int`"),
                ("writes='totals', watermark=('at', '10 minutes')", r"`\$\.watermark`"),
                ("writes=['totals']", r"`\$\.writes`"),
                ("writes='totals', reads=[3]", r"`\$\.reads\[0\]`"),
                ("writes='totals', name=3", r"`\$\.name`"),
            )
        ),
        *(
            (
                "pipeline.toml",
                f"{FILES['pipeline.toml']}\n[sinks.more]\nformat = 'parquet'\n{given}",
                r"sinks\.more: partition_by is the name of a column",
            )
            for given in ("partition_by = 5", "partition_by = [1]", "partition_by = {a = 1}")
        ),
        ("steps/paid2.sql", "-- reads: ordrs\nselect 1", r"paid2.*did you mean 'orders'\?"),
    ],
)
def test_a_folder_with_an_error_is_told_where(
    example: Path, file: str, text: str, told: str
) -> None:
    (example / file).write_text(text)
    with pytest.raises(InvalidPipeline, match=told):
        load(example)


def test_a_statement_is_text_with_or_without_a_mark_in_front(example: Path) -> None:
    path = example / "steps/paid.sql"
    text = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + text)
    assert load(example).statements["paid"] == text.decode().strip().removesuffix(";")
    path.write_bytes(text + b"-- \xff")
    with pytest.raises(InvalidPipeline, match=r"steps/paid\.sql is not text"):
        load(example)


def test_an_unknown_parameter_and_a_missing_folder_are_told(example: Path) -> None:
    with pytest.raises(InvalidPipeline, match=r"no parameter 'botstrap', did you mean"):
        load(example, {"botstrap": "x"})
    with pytest.raises(InvalidPipeline, match="headrace pipeline init"):
        load(example / "nowhere")


def test_rows_are_counted_once_however_often_spark_reports_them() -> None:
    progress = StepProgress("totals", "running")
    sources = [{"endOffset": {"orders": {"0": 7}}, "latestOffset": {"orders": {"0": 10}}}]
    report: dict[str, Any] = {"runId": "a", "batchId": 3, "numInputRows": 7, "sources": sources}
    progress.take([report, report])
    progress.take([report, {**report, "batchId": 4, "numInputRows": 2}])
    assert (progress.rows, progress.batch, progress.left) == (9, 4, 3)
    assert progress.share == 9 / 12


def test_progress_stays_small_however_long_a_query_runs() -> None:
    progress = StepProgress("totals", "running")
    reports = [{"runId": "a", "batchId": each, "numInputRows": 1} for each in range(5000)]
    for each in range(0, 5000, 50):
        progress.take(reports[max(0, each - 50) : each + 50])
    assert progress.rows == 5000
    assert len(msgspec.json.encode(progress)) < 1000


def test_what_is_left_is_known_of_topics_only() -> None:
    assert (
        left_of([{"endOffset": '{"t":{"0":5},"#group":"g"}', "latestOffset": '{"t":{"0":9}}'}]) == 4
    )
    assert left_of([{"endOffset": {"logOffset": 3}, "latestOffset": {"logOffset": 5}}]) is None


@pytest.mark.parametrize("bad", [100, 150, 399])
def test_the_record_that_fails_is_found_by_halving(bad: int) -> None:
    tries = []

    def fails(places: Places) -> bool:
        tries.append(places)
        start, stop = places.get(("t", 1), (0, 0))
        return start <= bad < stop

    assert find_culprit({("t", 0): (0, 500), ("t", 1): (100, 400)}, fails) == ("t", 1, bad)
    assert len(tries) < 25


def test_a_failure_of_several_records_together_blames_none() -> None:
    assert find_culprit({("t", 0): (0, 9)}, lambda places: places.get(("t", 0)) == (0, 9)) is None


def test_a_batch_begins_where_the_one_before_ended() -> None:
    before, now = {"t": {"0": 5}}, {"t": {"0": 9, "1": 2}, "#topicIds": {"t": "x"}}
    assert batch_of(before, now) == {("t", 0): (5, 9), ("t", 1): (0, 2)}


def test_the_reason_is_the_last_line_of_a_python_traceback() -> None:
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "x.py", line 3, in f
    int(value)
ValueError: invalid literal for int() with base 10: 'x'

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""
    assert reason_of(text) == "ValueError: invalid literal for int() with base 10: 'x'"
    java = "[CAST_INVALID_INPUT] The value 'x' cannot be cast\n\tat org.apache.spark.A.b(A.scala:1)"
    assert reason_of(java) == "[CAST_INVALID_INPUT] The value 'x' cannot be cast"


def test_a_record_is_shown_short() -> None:
    shown = describe_record("orders", 0, 17, None, b"x" * 500)
    assert shown.startswith("record orders-0 offset 17 (key null, value 'xxx")
    assert len(shown) < 300


@pytest.mark.slow
def test_a_second_run_is_refused_until_the_first_one_is_gone(example: Path) -> None:
    defined = load(example)
    code = "import sys,time; from pathlib import Path; "
    code += "from headrace.spark.pipelines.definition import load; "
    code += "from headrace.spark.pipelines.state import hold\n"
    code += "with hold(load(Path(sys.argv[1]))): print('held', flush=True); time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(example)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert is_held(defined)
        with (
            pytest.raises(PipelineBusy, match=f"is running already: process {process.pid}"),
            hold(defined),
        ):
            pass
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert not is_held(defined)
    with hold(defined):  # what was killed holds nothing
        assert is_held(defined)


def test_checkpoints_of_another_pipeline_are_refused(example: Path) -> None:
    claim(load(example))
    claim(load(example, {"bootstrap": "elsewhere:9092"}))
    toml = example / "pipeline.toml"
    toml.write_text(toml.read_text().replace('name = "orders"', 'name = "bills"'))
    with pytest.raises(ForeignCheckpoint, match="belong to the pipeline 'orders', not to 'bills'"):
        claim(load(example))


def test_a_step_that_reads_something_else_needs_a_new_checkpoint(example: Path) -> None:
    claim(load(example))
    kept = example / ".headrace/checkpoints/steps/totals"
    (kept / "offsets").mkdir(parents=True)
    (kept / "offsets/0").touch()
    toml = example / "pipeline.toml"
    toml.write_text(toml.read_text().replace('subscribe = "orders"', 'subscribe = "bills"'))
    changed: Defined = load(example)
    with pytest.raises(ForeignCheckpoint, match=r"what it reads has changed .*--reset totals"):
        claim(changed)
    claim(changed, ("totals",))
    assert not kept.exists()
    claim(changed)
    with pytest.raises(HeadraceError, match="no step of that name writes"):
        claim(changed, ("paid",))


def test_a_step_that_has_read_nothing_may_be_corrected(example: Path) -> None:
    toml = example / "pipeline.toml"
    right = toml.read_text()
    toml.write_text(right.replace('subscribe = "orders"', 'subscribe = "ordrs"'))
    claim(load(example))
    # What Spark leaves behind if there is no such topic.
    for name in ("offsets", "commits"):
        (example / ".headrace/checkpoints/steps/totals" / name).mkdir(parents=True)
    toml.write_text(right)
    claim(load(example))
    (example / ".headrace/checkpoints/steps/totals/offsets/0").touch()
    claim(load(example))
    toml.write_text(right.replace('subscribe = "orders"', 'subscribe = "bills"'))
    with pytest.raises(ForeignCheckpoint, match=r"what it reads has changed"):
        claim(load(example))


def test_a_folder_with_spark_checkpoints_of_something_else_is_refused(example: Path) -> None:
    (example / ".headrace/checkpoints/offsets").mkdir(parents=True)
    with pytest.raises(ForeignCheckpoint, match="has checkpoints of something else"):
        claim(load(example))


def test_the_status_of_the_last_run_is_kept(example: Path) -> None:
    defined = load(example)
    assert read_status(defined) is None
    with hold(defined):
        write_status(defined, Status("orders", "done", 7, 1, 2, ({"step": "totals"},)))
    found = read_status(defined)
    assert found is not None
    assert (found.state, found.steps) == ("done", ({"step": "totals"},))


class Recorder:
    """Notes what is called on a frame's writer, or a session's reader."""

    def __init__(self) -> None:
        self.calls: dict[str, Any] = {}
        self.write = self.read = self

    def __getattr__(self, name: str) -> Any:
        def note(*given: Any, **named: Any) -> "Recorder":
            self.calls[name] = given or named
            return self

        return note


def test_a_function_that_writes_each_batch_writes_it_as_the_sink_is_defined() -> None:
    frame: Any = Recorder()
    Sink("out", "parquet", {"path": "out"}, ("day", "hour")).write(frame)
    assert frame.calls == {
        "format": ("parquet",),
        "options": {"path": "out"},
        "mode": ("append",),
        "partitionBy": ("day", "hour"),
        "save": {},
    }


def test_a_function_that_writes_each_batch_can_read_a_topic_that_it_writes() -> None:
    spark: Any = Recorder()
    options = {"topic": "out", "kafka.bootstrap.servers": "b:1", "kafka.compression.type": "zstd"}
    Sink("out", "headrace", options).read(spark)
    assert spark.calls["options"] == {"subscribe": "out", "kafka.bootstrap.servers": "b:1"}
