"""The format "headrace-system": the control plane of a cluster as DataFrames.

spark.read.format("headrace-system").option("kafka.bootstrap.servers", "127.0.0.1:9092")
    .option("frame", "groups").load()
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, cast

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.spark.blocking import cluster_of
from headrace.spark.options import (
    CLIENT_NAMES,
    IDLE_CLIENT_NAMES,
    Connecting,
    InvalidOption,
    Options,
    connecting,
)
from headrace.spark.system import frames
from headrace.spark.system.frames import FRAMES, Frame, find_frame
from headrace.spark.system.parts import Part
from headrace.spark.system.selection import Selection


class SystemDataSource(DataSource):
    """One frame of a cluster."""

    PRESET: ClassVar[Mapping[str, str]] = {}
    """Options of a table in SQL: Spark does not hand a reader those that a table was made with."""

    @classmethod
    def name(cls) -> str:
        return "headrace-system"

    def schema(self) -> StructType:
        """The columns of the frame, with their meanings as comments."""
        return frame_schema(system_options(self._given()).frame)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = system_options(self._given())
        fixed = frame_schema(options.frame)
        if [(each.name, each.dataType) for each in schema.fields] != [
            (each.name, each.dataType) for each in fixed.fields
        ]:
            raise InvalidOption(
                f"system frame {options.frame.name!r} has a fixed schema; leave .schema(...) out, "
                "and drop and attach tables again that another version of Headrace made"
            )
        return SystemReader(options)

    def _given(self) -> Mapping[str, str]:
        # What Spark hands the source of a table are properties of the table, such as its owner.
        return self.PRESET or cast(Mapping[str, str], self.options)


_TYPES: Final[Mapping[str, DataType]] = {
    frames.STRING: StringType(),
    frames.INT: IntegerType(),
    frames.LONG: LongType(),
    frames.BOOLEAN: BooleanType(),
    frames.TIMESTAMP: TimestampType(),
    frames.INTS: ArrayType(IntegerType()),
    frames.STRINGS: ArrayType(StringType()),
    frames.CONFIGS: MapType(StringType(), StringType()),
}


def frame_schema(frame: Frame) -> StructType:
    """Return Spark's schema of a frame."""
    return StructType(
        [
            StructField(each.name, _TYPES[each.type], True, {"comment": each.doc})
            for each in frame.columns
        ]
    )


class SystemOptions(msgspec.Struct, frozen=True):
    """Which frame, and of which cluster. Plain data, as it is pickled."""

    frame: Frame
    connecting: Connecting


def system_options(given: Mapping[str, str]) -> SystemOptions:
    """Check the options of a system frame."""
    known = ("frame", *CLIENT_NAMES, *IDLE_CLIENT_NAMES)
    options = Options(given, known, "a system frame", {})
    name = options.required("frame", f"one of {', '.join(FRAMES)}")
    return SystemOptions(find_frame(name), connecting(options))


class FramePart(InputPartition):
    """One task."""

    def __init__(self, part: Part) -> None:
        super().__init__(None)
        self.part = part


class SystemReader(DataSourceReader):
    """One read. Pickled to executors: plain data only."""

    def __init__(self, options: SystemOptions) -> None:
        self._options = options
        self._selection = Selection()
        self.pushFilters = NotesFilters(self._selection)  # type: ignore[method-assign]

    def partitions(self) -> Sequence[InputPartition]:
        from headrace.spark.system.collecting import plan  # noqa: PLC0415  as in TierDataSource

        blocking = cluster_of(self._options.connecting)
        work = plan(blocking.cluster, self._options.frame.name, self._selection)
        return [FramePart(each) for each in blocking.run(work)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        if not isinstance(partition, FramePart):
            return iter(())  # nothing to read: Spark makes a task nevertheless
        from headrace.spark.system.collecting import collect  # noqa: PLC0415  as above

        blocking = cluster_of(self._options.connecting)
        blocking.connect(is_patient=True)
        name = self._options.frame.name
        work = collect(blocking.cluster, name, partition.part, self._selection)
        return iter(blocking.run(work))


class NotesFilters:
    """A pushFilters that narrows what is asked for and leaves the filters to Spark.

    Called only if Spark's switch for pushdown is on, and not missed if it is off: see
    `batch.PushesWhenAsked`.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        self._selection.take(filters)
        return filters


__all__ = ["SystemDataSource", "SystemReader", "frame_schema", "system_options"]
