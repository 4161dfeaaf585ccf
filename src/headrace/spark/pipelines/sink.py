"""A sink as functions see it that write each batch themselves."""

import msgspec
from pyspark.sql import DataFrame, SparkSession


class Sink(msgspec.Struct, frozen=True):
    """A sink, for a function that writes each batch itself."""

    name: str
    format: str
    options: dict[str, str]

    def write(self, frame: DataFrame, mode: str = "append") -> None:
        """Write a plain frame to the sink."""
        frame.write.format(self.format).options(**self.options).mode(mode).save()

    def read(self, spark: SparkSession) -> DataFrame:
        """Return what the sink has, as a plain frame."""
        return spark.read.format(self.format).options(**self.options).load()
