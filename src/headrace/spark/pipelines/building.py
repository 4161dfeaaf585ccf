"""DataFrames of a pipeline: its sources read, its steps computed from them.

The same code builds streams, and plain frames of a few offsets when the record is looked for that
made a step fail.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.spark.pipelines.definition import Defined
from headrace.spark.pipelines.failures import StepFailed, reason_of
from headrace.spark.pipelines.model import Place, Step, kind_of
from headrace.spark.pipelines.sink import LOG_FORMAT, as_source

FILE_FORMATS: Final = ("parquet", "orc", "json", "csv", "text", "avro")
_STARTS: Final = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")


class Frames:
    """The frames of a pipeline in one session, each built once."""

    def __init__(
        self,
        defined: Defined,
        spark: SparkSession,
        ranges: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """With `ranges`, the sources and sinks of these names are read whole with these options."""
        self._defined = defined
        self._spark = spark
        self._ranges = ranges
        self._built: dict[str, DataFrame] = {}

    def of_step(self, step: Step) -> DataFrame:
        """Return the frame that a step computes; of one that writes by itself, what it is given."""
        return self._input(step.reads[0]) if step.is_per_batch else self._step(step)

    def _input(self, name: str) -> DataFrame:
        pipeline = self._defined.pipeline
        kind = kind_of(pipeline, name)
        if kind == "step":
            return self._step(pipeline.steps[name])
        key = f"{kind}:{name}"
        if key not in self._built:
            place = pipeline.sources[name] if kind == "source" else pipeline.sinks[name]
            self._built[key] = self._read(place, is_sink=kind == "sink")
        return self._built[key]

    def _step(self, step: Step) -> DataFrame:
        key = f"step:{step.name}"
        if key not in self._built:
            inputs = [self._input(name) for name in step.reads]
            try:
                frame = self._compute(step, inputs)
            except PySparkException as error:
                raise StepFailed(step.name, step.file, reason_of(str(error))) from error
            except StepFailed:
                raise
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                raise StepFailed(step.name, step.file, reason) from error
            self._built[key] = frame
        return self._built[key]

    def _compute(self, step: Step, inputs: list[DataFrame]) -> DataFrame:
        statement = self._defined.statements.get(step.name)
        if statement is not None:
            for name, frame in zip(step.reads, inputs, strict=True):
                frame.createOrReplaceTempView(name)
            found = self._spark.sql(statement, args=self._arguments(statement))
        else:
            found = self._defined.functions[step.name](*inputs)
            if not hasattr(type(found), "writeStream"):  # the property fails for plain frames
                what = type(found).__name__
                raise StepFailed(step.name, step.file, f"it returned {what}, not a DataFrame")
        if step.watermark is not None:
            found = found.withWatermark(*step.watermark)
        return found

    def _arguments(self, statement: str) -> dict[str, Any]:
        """Return the parameters that a statement names, as `:name`."""
        parameters = self._defined.parameters
        return {
            name: value
            for name, value in parameters.items()
            if re.search(rf"(?<![\w:]):{re.escape(name)}\b", statement)
        }

    def _read(self, place: Place, *, is_sink: bool) -> DataFrame:
        options = dict(place.options)
        if is_sink and place.format == LOG_FORMAT:
            options = as_source(options)
        if self._ranges is not None and place.name in self._ranges:
            return self._load(self._spark.read, place, {**options, **self._ranges[place.name]})
        if not place.is_stream or self._ranges is not None:
            return self._load(self._spark.read, place, options)
        if place.format == LOG_FORMAT and not any(key.lower() in _STARTS for key in options):
            options["startingOffsets"] = "earliest"
        reader: Any = self._spark.readStream
        if is_sink and place.format in FILE_FORMATS:
            writer = next(
                each for each in self._defined.pipeline.steps.values() if each.writes == place.name
            )
            reader = reader.schema(self.of_step(writer).schema)
        return self._load(reader, place, options)

    def _load(self, reader: Any, place: Place, options: Mapping[str, str]) -> DataFrame:
        given = {name: value for name, value in options.items() if name != "schema"}
        if "schema" in options:
            reader = reader.schema(options["schema"])
        try:
            frame: DataFrame = reader.format(place.format).options(**given).load()
        except PySparkException as error:
            name = place.name
            raise StepFailed(name, "pipeline.toml", reason_of(str(error))) from error
        return frame
