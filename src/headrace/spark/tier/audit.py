"""The checksums of all objects of the tier, as a Spark job.

The driver sends descriptions of segments, tasks read their objects and send back what is wrong.
"""

import pickle
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.remote.checking import check_segment
from headrace.remote.segments import RemoteSegment, SegmentId
from headrace.remote.store_options import StoreOptions
from headrace.spark.session import session
from headrace.spark.tier.stores import store_of

SEGMENTS_PER_TASK: Final = 4
TASKS_MAX: Final = 10_000
_SCHEMA: Final = "id binary, problem string"


def check_all(
    master: str, url: str, options: StoreOptions, segments: Sequence[RemoteSegment]
) -> dict[SegmentId, str]:
    """Return what is wrong with segments, by their ids; nothing for those that are sound."""
    if not segments:
        return {}
    spark = session(master, app_name="headrace tier audit", banner=False)
    return check_with(spark, url, options, segments)


def check_with(
    spark: SparkSession, url: str, options: StoreOptions, segments: Sequence[RemoteSegment]
) -> dict[SegmentId, str]:
    """Check segments with a session of the caller's."""
    rows = [(pickle.dumps(segment),) for segment in segments]
    tasks = min(TASKS_MAX, -(-len(rows) // SEGMENTS_PER_TASK))

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocking = store_of(url, options)
        for batch in batches:
            ids: list[bytes] = []
            problems: list[str] = []
            for value in batch.column(0):
                segment: RemoteSegment = pickle.loads(value.as_py())
                problem = blocking.run(check_segment(blocking.store, segment))
                if problem is not None:
                    ids.append(segment.id)
                    problems.append(problem)
            yield pa.RecordBatch.from_arrays(
                [pa.array(ids, pa.binary()), pa.array(problems, pa.string())],
                names=["id", "problem"],
            )

    frame = spark.createDataFrame(rows, "segment binary").repartition(tasks)
    found = frame.mapInArrow(check, _SCHEMA).collect()
    return {SegmentId(bytes(row.id)): row.problem for row in found}
