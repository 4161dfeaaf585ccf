"""Where tasks run: on Spark, one task per piece of work, or here."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.spark.pipelines.failures import reason_of

T = TypeVar("T")
R = TypeVar("R")

_SCHEMA: Final = "number long, result binary"


class TaskFailed(HeadraceError):
    """A task ended with an error that is none of ours, such as a worker that was killed."""


class Engine(Protocol):
    """Runs the same function on many inputs."""

    def run(self, work: Callable[[T], R], inputs: Sequence[T]) -> list[R]:
        """Return the results, in the order of the inputs; the first error is raised."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""


class Here:
    """Runs tasks in this process, one after the other."""

    parallelism = 1

    def run(self, work: Callable[[T], R], inputs: Sequence[T]) -> list[R]:
        return [work(each) for each in inputs]


class OnSpark:
    """Runs tasks on the executors of a session.

    An error of ours is the result of its task, as it would be the same the next time. Anything else
    fails the task, which Spark repeats as its settings say.
    """

    def __init__(self, open_session: Callable[[], Any]) -> None:
        """`open_session` is called when there is something to run: a session takes seconds."""
        self._open_session = open_session
        self._opened: Any = None

    @property
    def _spark(self) -> Any:
        if self._opened is None:
            self._opened = self._open_session()
        return self._opened

    @property
    def parallelism(self) -> int:
        try:
            return int(self._spark.sparkContext.defaultParallelism)
        except Exception:  # Spark Connect has no context
            return 4

    def run(self, work: Callable[[T], R], inputs: Sequence[T]) -> list[R]:
        if not inputs:
            return []
        sent = [pickle.dumps(each) for each in inputs]

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                numbers: list[Any] = batch.column(0).to_pylist()
                for number in numbers:
                    result: Any
                    try:
                        result = work(pickle.loads(sent[number]))
                    except HeadraceError as error:
                        result = error
                    yield pa.RecordBatch.from_arrays(
                        [pa.array([number], pa.int64()), pa.array([pickle.dumps(result)])],
                        names=["number", "result"],
                    )

        count = len(inputs)
        try:
            found = self._spark.range(0, count, 1, count).mapInArrow(task, _SCHEMA).collect()
        except Exception as error:  # Spark's, and of the bridge to its JVM
            raise TaskFailed(
                f"a task failed on Spark: {reason_of(str(error))}. Nothing of it was committed; "
                "run it again"
            ) from error
        rows = {row.number: pickle.loads(bytes(row.result)) for row in found}
        results = [rows[number] for number in range(count)]
        for each in results:
            if isinstance(each, HeadraceError):
                raise each
        return results
