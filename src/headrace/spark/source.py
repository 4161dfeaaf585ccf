"""The format "headrace": topics as DataFrames, and DataFrames into topics.

    spark.read.format("headrace").option("kafka.bootstrap.servers", "127.0.0.1:9092")
        .option("subscribe", "orders").load()

Only the entry points for Spark; `batch` and `streaming` read, `sink` writes.
"""

from collections.abc import Mapping
from typing import cast

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headrace.spark.batch import BatchReader
from headrace.spark.read_options import read_options, stream_options
from headrace.spark.schema import spark_schema
from headrace.spark.streaming import StreamReader


class HeadraceDataSource(DataSource):
    """Topics of a Kafka cluster."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        """The connector's schema, or the part of it that `columns` names."""
        return spark_schema(self._given())

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(read_options(self._given()), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's
        return StreamReader(stream_options(self._given()), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.spark.sink import batch_writer  # noqa: PLC0415  readers need none of it

        return batch_writer(self._given(), schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802  Spark's
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from headrace.spark.sink import stream_writer  # noqa: PLC0415  readers need none of it

        return stream_writer(self._given(), schema, overwrite=overwrite)

    def _given(self) -> Mapping[str, str]:
        return cast(Mapping[str, str], self.options)
