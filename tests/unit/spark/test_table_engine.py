"""Where tasks of tables run."""

from typing import Any

import pytest

from headrace.spark.tables.engine import OnSpark, TaskFailed


class Session:
    """A session whose tasks fail, as when a worker is killed."""

    def range(self, *_: Any) -> Any:
        return self

    def mapInArrow(self, *_: Any) -> Any:  # noqa: N802  Spark's name
        return self

    def collect(self) -> Any:
        raise RuntimeError(
            "An error occurred while calling o228.collectToPython.\n"
            ": org.apache.spark.SparkException: Job aborted: Python worker exited unexpectedly\n"
            "\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1136)"
        )


def test_a_worker_that_was_killed_is_told_in_a_line() -> None:
    with pytest.raises(TaskFailed) as failed:
        OnSpark(Session).run(abs, [1])
    assert str(failed.value) == (
        "a task failed on Spark: org.apache.spark.SparkException: Job aborted: Python worker "
        "exited unexpectedly. Nothing of it was committed; run it again"
    )
