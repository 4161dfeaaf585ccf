"""Running a pipeline: its queries started, watched and stopped.

    with hold(defined):
        run = Run(defined, spark, is_once=True)
        run.go(show=print_progress)         # StepFailed names the step, its file and the record
    run.stop()                              # from a signal handler: `go` returns soon

A run to the end takes stage after stage, as what a query stores is input of the next one. A run
without an end starts all queries at once.
"""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.spark.pipelines.blame import find_record
from headrace.spark.pipelines.building import Frames
from headrace.spark.pipelines.definition import Defined
from headrace.spark.pipelines.failures import StepFailed, reason_of
from headrace.spark.pipelines.model import Query, Step, queries, stages
from headrace.spark.pipelines.progress import StepProgress
from headrace.spark.pipelines.sink import Sink
from headrace.spark.pipelines.state import Status, checkpoint_of, now_ms, write_status

POLL_SECONDS: Final = 0.5

Show = Callable[[Sequence[StepProgress]], None]


class Run:
    """One run of a pipeline."""

    def __init__(self, defined: Defined, spark: SparkSession, *, is_once: bool = False) -> None:
        self._defined = defined
        self._spark = spark
        self._is_once = is_once
        self._frames = Frames(defined, spark)
        self._started_ms = now_ms()
        self._is_stopping = False
        self._running: dict[str, Any] = {}
        self.steps = {
            each.step.name: StepProgress(each.step.name) for each in queries(defined.pipeline)
        }
        """The progress of each query."""

    def stop(self) -> None:
        """End the run soon; safe to call from a signal handler."""
        self._is_stopping = True

    def go(self, show: Show | None = None, *, pid: int = 0) -> str:
        """Run until all is done or `stop` is called; return `done` or `stopped`.

        StepFailed if a step fails: the others are stopped first.
        """
        try:
            plan = stages(self._defined.pipeline)
            for stage in plan if self._is_once else [list(chain.from_iterable(plan))]:
                for query in stage:
                    self._start(query)
                self._watch(stage, show, pid)
                if self._is_stopping:
                    break
            state = "stopped" if self._is_stopping else "done"
            self._tell(state, show, pid)
            return state
        except StepFailed as failure:
            self._end_all()
            if (progress := self.steps.get(failure.step)) is not None:
                progress.state = "failed"
            self._tell("failed", show, pid, str(failure))
            raise
        finally:
            self._end_all()

    def _start(self, query: Query) -> None:
        step = query.step
        assert step.writes is not None, "a query writes"
        sink = self._defined.pipeline.sinks[step.writes]
        writer = self._frames.of_step(step).writeStream.outputMode(step.mode).queryName(step.name)
        writer = writer.option("checkpointLocation", checkpoint_of(self._defined, step.name))
        if step.is_per_batch:
            handle = Sink(sink.name, sink.format, dict(sink.options), sink.partition_by)
            given = {"sink": handle, "parameters": dict(self._defined.parameters)}
            writer = writer.foreachBatch(per_batch(step, self._defined.functions[step.name], given))
        else:
            writer = writer.format(sink.format).options(**sink.options)
            if sink.partition_by:
                writer = writer.partitionBy(*sink.partition_by)
        try:
            if self._is_once:
                writer = writer.trigger(availableNow=True)
            elif step.trigger is not None:
                writer = writer.trigger(processingTime=step.trigger)
            self._running[step.name] = writer.start()
        except PySparkException as error:
            raise StepFailed(step.name, step.file, reason_of(str(error))) from error
        self.steps[step.name].state = "running"

    def _watch(self, stage: Sequence[Query], show: Show | None, pid: int) -> None:
        """Return when the queries of a stage are done, or when the run is to stop."""
        while not self._is_stopping:
            is_active = False
            for each in stage:
                is_active |= self._look(each)
            self._tell("running", show, pid)
            if not is_active:
                return
            time.sleep(POLL_SECONDS)
        for each in stage:
            self._stop(each.step.name)

    def _look(self, query: Query) -> bool:
        """Note the progress of a query; return whether it goes on. StepFailed if it failed."""
        name = query.step.name
        running, progress = self._running[name], self.steps[name]
        is_active = bool(running.isActive)
        progress.take(running.recentProgress)
        if is_active:
            return True
        error = running.exception()
        if error is None:
            progress.state = "done"
            return False
        progress.state = "failed"
        self._end_all()
        failure = StepFailed(name, query.step.file, reason_of(str(error)))
        blamed = find_record(self._defined, self._spark, query)
        if blamed is not None:
            failure = StepFailed(blamed.step.name, blamed.step.file, failure.reason, blamed.record)
        progress.problem = str(failure)
        raise failure from None

    def _stop(self, name: str) -> None:
        running = self._running.pop(name, None)
        if running is None:
            return
        progress = self.steps[name]
        if running.isActive:
            running.stop()
            progress.take(running.recentProgress)
            progress.state = "stopped"

    def _end_all(self) -> None:
        for name in list(self._running):
            self._stop(name)

    def _tell(self, state: str, show: Show | None, pid: int, problem: str | None = None) -> None:
        rows = list(self.steps.values())
        if show is not None:
            show(rows)
        status = Status(
            self._defined.pipeline.name,
            state,
            pid,
            self._started_ms,
            now_ms(),
            tuple(each.plain() for each in rows),
            problem,
        )
        write_status(self._defined, status)


def per_batch(
    step: Step, function: Callable[..., Any], given: Mapping[str, Any]
) -> Callable[[DataFrame, int], None]:
    """Return a function for Spark's foreachBatch that passes what the user's one asks for."""
    names = list(inspect.signature(function).parameters)[1:]
    unknown = [name for name in names if name != "batch_id" and name not in given]
    if unknown:
        known = ", ".join(("batch_id", *given))
        reason = f"it asks for {unknown[0]!r}; after the batch there may be {known}"
        raise StepFailed(step.name, step.file, reason)

    def write(batch: DataFrame, batch_id: int) -> None:
        values = {**given, "batch_id": batch_id}
        function(batch, **{name: values[name] for name in names})

    return write
