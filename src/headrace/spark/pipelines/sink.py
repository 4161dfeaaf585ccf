"""A sink as functions see it that write each batch themselves."""

from collections.abc import Mapping
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

LOG_FORMAT: Final = "headrace"


class Sink(msgspec.Struct, frozen=True):
    """A sink, for a function that writes each batch itself."""

    name: str
    format: str
    options: dict[str, str]
    partition_by: tuple[str, ...] = ()

    def write(self, frame: DataFrame, mode: str = "append") -> None:
        """Write a plain frame to the sink."""
        writer = frame.write.format(self.format).options(**self.options).mode(mode)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.save()

    def read(self, spark: SparkSession) -> DataFrame:
        """Return what the sink has, as a plain frame."""
        options = as_source(self.options) if self.format == LOG_FORMAT else self.options
        return spark.read.format(self.format).options(**options).load()


def as_source(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with which a topic is read that a sink writes."""
    known = {name: value for name, value in options.items() if name.startswith("kafka.")}
    known = {
        name: value
        for name, value in known.items()
        if not name.startswith(("kafka.compression", "kafka.batch", "kafka.transaction"))
        and name not in ("kafka.max.request.size", "kafka.delivery.timeout.ms")
    }
    return {**known, "subscribe": options.get("topic", "")}
