"""The format "headrace-table": a table and the part of the log that it does not have yet, as one.

    spark.read.format("headrace-table").option("kafka.bootstrap.servers", "127.0.0.1:9092")
        .option("table", "orders_t").load()

Where the table ends and the log begins is fixed when the read is planned: rows below come from the
table's files, records above from the brokers, decoded as a writer would. So there is no gap and no
overlap, and the read is as fresh as the topic. Of an upserted table the last row of a key counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.spark.options import (
    CLIENT_NAMES,
    IDLE_CLIENT_NAMES,
    Connecting,
    Options,
    connecting,
)
from headrace.spark.planning import Range, split

if TYPE_CHECKING:
    from headrace.spark.tables.table_store import LiveFile
    from headrace.spark.tables.task import Job

NAMES: Final = (*CLIENT_NAMES, *IDLE_CLIENT_NAMES, "table", "minPartitions")
REFUSED: Final = {"path": "the option 'table' names the table", "subscribe": "give 'table' instead"}
SLICE_ROWS: Final = 10_000


class TableDataSource(DataSource):
    """Tables that `headrace table` keeps."""

    @classmethod
    def name(cls) -> str:
        return "headrace-table"

    def schema(self) -> StructType:
        from headrace.spark.tables.reading import plan_read  # noqa: PLC0415  workers need none

        table = plan_read(table_options(cast(Mapping[str, str], self.options)))
        return from_arrow_schema(_bare(table.schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(table_options(cast(Mapping[str, str], self.options)), schema)


class TableOptions(msgspec.Struct, frozen=True):
    """Which table of which cluster."""

    connecting: Connecting
    table: str
    partitions_min: int | None


def table_options(given: Mapping[str, str]) -> TableOptions:
    """Check the options of a read."""
    options = Options(given, NAMES, "a read of a table", REFUSED)
    return TableOptions(
        connecting(options),
        options.required("table", "the name of a table, see `headrace table list`"),
        options.number("minPartitions", least=1),
    )


class TablePartition(InputPartition):
    """One task: files, a range of the log, or both."""

    def __init__(self, job: "Job", files: "list[LiveFile]", tail: Range | None) -> None:
        super().__init__(tail)
        self.job = job
        self.files = files
        self.tail = tail


class TableReader(DataSourceReader):
    """One read. Pickled to executors: plain data only."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        from headrace.spark.tables.reading import plan_read  # noqa: PLC0415  the driver's

        plan = plan_read(self._options)
        if plan.is_upsert:
            return [
                TablePartition(plan.job, plan.files_of(each.partition), each) for each in plan.tails
            ]
        tails = split(plan.tails, self._options.partitions_min, None)
        return [
            *(TablePartition(plan.job, [file], None) for file in plan.files),
            *(TablePartition(plan.job, [], each) for each in tails),
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TablePartition):
            return
        from headrace.spark.tables.reading import rows_of  # noqa: PLC0415  executors need it here

        # Columns that the table got since Spark asked for its schema are left out.
        whole = partition.job.table_schema()
        schema = _bare(pa.schema([whole.field(name) for name in self._schema.fieldNames()]))
        for rows in rows_of(partition.job, partition.files, partition.tail):
            yield from _fitted(rows, schema)


def _fitted(rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows exactly as Spark wants them."""
    from headrace.spark.tables.data_files import fit_rows  # noqa: PLC0415  executors need it here

    if rows.num_rows:
        yield from fit_rows(rows, schema).combine_chunks().to_batches(max_chunksize=SLICE_ROWS)


def _bare(schema: pa.Schema) -> pa.Schema:
    """Return columns as Spark would make them: without ids, and lists of elements."""
    return pa.schema([pa.field(each.name, _plain(each.type)) for each in schema])


def _plain(kind: Any) -> Any:
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([pa.field(each.name, _plain(each.type)) for each in fields])
    return kind
