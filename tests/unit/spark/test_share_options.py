import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StructType

from headrace.spark.options import InvalidOption
from headrace.spark.share.journal import Run
from headrace.spark.share.options import check_schema, share_options, share_schema
from headrace.spark.share.reading import select
from headrace.spark.share.source import ShareDataSource, StreamsOnly

GIVEN = {
    "kafka.bootstrap.servers": "127.0.0.1:9092",
    "subscribe": "orders, returns",
    "kafka.group.id": "billing",
}


def test_a_queue_is_named_by_its_topics_and_its_group() -> None:
    options = share_options({**GIVEN, "maxrecordspertrigger": "10", "MINPARTITIONS": "4"})
    assert (options.topics, options.group) == (("orders", "returns"), "billing")
    assert (options.trigger_records_max, options.partitions_min) == (10, 4)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"maxRecordPerTrigger": "1"}, "did you mean 'maxRecordsPerTrigger'"),
        ({"startingOffsets": "earliest"}, r"share\.auto\.offset\.reset"),
        ({"maxOffsetsPerTrigger": "5"}, "maxRecordsPerTrigger"),
        ({"maxRecordsPerTrigger": "0"}, "the least is 1"),
        ({"assign": "{}"}, "subscribe"),
        ({"kafka.isolation.level": "read_committed"}, r"share\.isolation\.level"),
        ({"columns": "offset,deliveries"}, "deliveryCount"),
        ({"kafka.group.id": ""}, "share group"),
        ({"subscribe": " , "}, "subscribe"),
    ],
)
def test_a_wrong_option_is_named_with_what_to_do(more: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        share_options({**GIVEN, **more})


def test_the_delivery_count_is_a_column() -> None:
    assert share_schema(GIVEN)["deliveryCount"].dataType == IntegerType()
    assert "headers" not in share_schema(GIVEN).names
    assert share_schema({**GIVEN, "includeHeaders": "true"}).names[-1] == "headers"
    chosen = share_schema({**GIVEN, "columns": "deliverycount,OFFSET"})
    assert chosen.names == ["deliveryCount", "offset"]
    with pytest.raises(InvalidOption, match="fixed schema"):
        check_schema(StructType([]), ("offset",))


def test_a_queue_is_no_batch_and_no_sink() -> None:
    source = ShareDataSource(GIVEN)
    with pytest.raises(StreamsOnly, match="readStream"):
        source.reader(source.schema())
    with pytest.raises(StreamsOnly, match='format\\("headrace"\\)'):
        source.writer(source.schema(), False)
    with pytest.raises(StreamsOnly, match='format\\("headrace"\\)'):
        source.streamWriter(source.schema(), False)


def test_only_leased_rows_are_selected_each_with_its_count() -> None:
    rows = pa.record_batch({"offset": pa.array([3, 4, 6, 9], pa.int64())})
    runs = [Run(0, 1, 9), Run(2, 3, 1), Run(6, 8, 2), Run(10, 12, 5)]
    chosen = select(rows, runs, ("deliveryCount", "offset"))
    assert chosen.to_pydict() == {"deliveryCount": [1, 2], "offset": [3, 6]}
    assert select(rows, [Run(7, 8, 1)], ("offset",)).num_rows == 0
    assert select(rows, [Run(0, 9, 1)], ("offset",)).equals(rows)
