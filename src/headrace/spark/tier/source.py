"""The format "headrace-tier": topics as DataFrames, read from the object store.

spark.read.format("headrace-tier").option("store", "s3://bucket/prefix")
    .option("subscribe", "orders").load()
"""

from collections.abc import Mapping
from typing import cast

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from headrace.spark.schema import topic_schema


class TierDataSource(DataSource):
    """Topics in the tier of a Kafka cluster, which may be gone."""

    @classmethod
    def name(cls) -> str:
        return "headrace-tier"

    def schema(self) -> StructType:
        """The schema of "headrace"."""
        from headrace.spark.tier.options import tier_columns  # noqa: PLC0415  as below

        return topic_schema(tier_columns(self._given()))

    def reader(self, schema: StructType) -> DataSourceReader:
        # Workers of other formats import this module, too, and need no object store.
        from headrace.spark.tier.batch import TierReader  # noqa: PLC0415
        from headrace.spark.tier.options import tier_options  # noqa: PLC0415

        return TierReader(tier_options(self._given()), schema)

    def _given(self) -> Mapping[str, str]:
        return cast(Mapping[str, str], self.options)
