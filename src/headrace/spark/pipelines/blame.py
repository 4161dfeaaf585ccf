"""Find the record at which a step failed, by running the step on parts of the failed batch."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.spark.pipelines.building import Frames
from headrace.spark.pipelines.culprit import Places, batch_of, find_culprit
from headrace.spark.pipelines.definition import Defined
from headrace.spark.pipelines.failures import StepFailed, describe_record
from headrace.spark.pipelines.model import Place, Query, Step
from headrace.spark.pipelines.sink import LOG_FORMAT
from headrace.spark.pipelines.state import checkpoint_of, local_folder


class Blamed(msgspec.Struct, frozen=True):
    """The record at which a query fails, in a line, and the step of it that does."""

    record: str
    step: Step


def find_record(defined: Defined, spark: SparkSession, query: Query) -> Blamed | None:
    """Return the record that makes a query fail, and the first step that fails at it.

    None if no single record does. Only for queries that read offsets of topics from a checkpoint
    on this machine: what other sources gave cannot be read again in part.
    """
    place = _only_log(defined, query)
    folder = local_folder(checkpoint_of(defined, query.step.name))
    if place is None or folder is None:
        return None
    batch = _failed_batch(folder)
    if not batch:
        return None

    def fails(places: Places, step: Step = query.step) -> bool:
        ranges = {place.name: _range(batch, places)}
        try:
            frame = Frames(defined, spark, ranges).of_step(step)
            frame.write.format("noop").mode("overwrite").save()
        except (PySparkException, StepFailed):
            return True
        return False

    with _quiet(spark):
        if fails({}):
            return None  # it fails without records
        found = find_culprit(batch, fails)
        if found is None:
            return None
        topic, partition, offset = found
        only: Places = {(topic, partition): (offset, offset + 1)}
        steps = [defined.pipeline.steps[name] for name in query.through[:-1]]
        first = next((each for each in steps if fails(only, each)), query.step)
    return Blamed(_describe(spark, place, batch, found), first)


@contextmanager
def _quiet(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from logging every failed try; not with Spark Connect, where the server logs."""
    if not isinstance(spark, SparkSession):
        yield
        return
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield
    finally:
        spark.sparkContext.setLogLevel("ERROR")


def _only_log(defined: Defined, query: Query) -> Place | None:
    pipeline = defined.pipeline
    places = [pipeline.sources[name] for name in query.sources]
    places += [pipeline.sinks[name] for name in query.stored]
    streams = [each for each in places if each.is_stream]
    if len(streams) == 1 and streams[0].format == LOG_FORMAT:
        return streams[0]
    return None


def _failed_batch(folder: Path) -> Places:
    """Return the offsets of the last batch that was planned and not committed."""
    planned = _numbers(folder / "offsets")
    if not planned or planned[-1] in _numbers(folder / "commits"):
        return {}
    before = _offset(folder, planned[-2]) if len(planned) > 1 else {}
    return batch_of(before, _offset(folder, planned[-1]))


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(each.name) for each in folder.iterdir() if each.name.isdigit())


def _offset(folder: Path, number: int) -> Any:
    """Return the offset of the only source, as Spark's log of offsets has it in its third line."""
    lines = (folder / "offsets" / str(number)).read_text().splitlines()
    try:
        return json.loads(lines[2])
    except (IndexError, ValueError):
        return {}


def _range(batch: Places, places: Places) -> Mapping[str, str]:
    """Return the options that read these offsets, and nothing of the other partitions."""
    starts: dict[str, dict[str, int]] = {}
    stops: dict[str, dict[str, int]] = {}
    for (topic, partition), (_, end) in batch.items():
        start, stop = places.get((topic, partition), (end, end))
        starts.setdefault(topic, {})[str(partition)] = start
        stops.setdefault(topic, {})[str(partition)] = stop
    return {
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(stops),
        "failOnDataLoss": "false",
    }


def _describe(spark: SparkSession, place: Place, batch: Places, found: tuple[str, int, int]) -> str:
    topic, partition, offset = found
    only = _range(batch, {(topic, partition): (offset, offset + 1)})
    keys = {name: value for name, value in place.options.items() if name.startswith("kafka.")}
    topics = ",".join(sorted({each for each, _ in batch}))
    reader = spark.read.format(LOG_FORMAT).options(**keys).option("subscribe", topics)
    rows = reader.options(**only).load().select("key", "value").collect()
    key, value = (rows[0]["key"], rows[0]["value"]) if rows else (None, None)
    return describe_record(topic, partition, offset, key, value)
