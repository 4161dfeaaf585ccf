"""The format "headrace-share": queues as streams. Only the entry points for Spark."""

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

from headrace.errors import HeadraceError
from headrace.spark.share.options import share_options, share_schema
from headrace.spark.share.streaming import ShareStreamReader


class StreamsOnly(HeadraceError):
    """An operation that a queue does not support."""


class ShareDataSource(DataSource):
    """The records of a share group."""

    @classmethod
    def name(cls) -> str:
        return "headrace-share"

    def schema(self) -> StructType:
        """The columns of a topic and `deliveryCount`, or those that `columns` names."""
        return share_schema(self._given())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's
        return ShareStreamReader(share_options(self._given()), schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        raise StreamsOnly(
            "a queue is worked off by a stream, as a batch read could not say what became of its "
            "records: use readStream, with trigger(availableNow=True) if it is to end, or "
            'read.format("headrace") to see the topic without taking anything from the queue'
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        raise _write_elsewhere()

    def streamWriter(  # noqa: N802  Spark's
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        raise _write_elsewhere()

    def _given(self) -> Mapping[str, str]:
        return cast(Mapping[str, str], self.options)


def _write_elsewhere() -> StreamsOnly:
    return StreamsOnly('a queue is written to as a topic: use format("headrace")')
