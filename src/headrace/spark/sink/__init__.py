"""DataFrames into topics, each batch whole or not at all.

`batch_writer` and `stream_writer` are what Spark gets. Where to read on: `decisions` has the rules
and why they hold, `protocol` the steps that tasks and the driver take, `journal` and `coordination`
what they do to the cluster; `task`, `columns`, `batching` and `sending` are the way of the rows.
"""

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from headrace.spark.options import InvalidOption
from headrace.spark.sink.stopping import writer_of
from headrace.spark.sink.write_options import write_options
from headrace.spark.sink.writers import BatchWriter, StreamWriter


def batch_writer(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool = False
) -> DataSourceArrowWriter:
    """Return the writer of `df.write`; InvalidOption or InvalidColumns if it cannot be."""
    if overwrite:
        raise InvalidOption("a topic cannot be overwritten; write with mode('append')")
    return BatchWriter(write_options(given, schema, "a batch write"))


def stream_writer(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool = False
) -> DataSourceStreamArrowWriter:
    """Return the writer of `df.writeStream`; InvalidOption or InvalidColumns if it cannot be.

    With `overwrite`, which is Spark's word for the complete mode, every batch is appended whole.
    """
    return StreamWriter(write_options(given, schema, "a streaming write"), writer_of(given))
