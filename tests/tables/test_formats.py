"""Avro, Protobuf and raw values; partitions and sort orders."""

import datetime
import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from headrace.spark.tables.engine import Here
from headrace.spark.tables.protobuf_decoding import compile_proto
from headrace.spark.tables.verifying import verify_table
from headrace.testing.broker import TestBroker
from tests.tables.worlds import create, iceberg_rows, produce, run_once, stored_rows

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
    ],
}
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum State { NEW = 0; PAID = 1; }
message Item { string name = 1; uint32 count = 2; }
message Order {
  int64 id = 1; State state = 2; repeated Item items = 3; optional string note = 4;
  google.protobuf.Timestamp at = 5; map<string, double> prices = 6;
}
"""


def avro(record: dict[str, Any], header: bytes = b"") -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(AVRO), record)
    return header + sink.getvalue()


def equals_topic(broker: TestBroker) -> bool:
    return verify_table(broker.bootstrap, "orders_t", Here()).is_equal


def test_avro_values_become_columns(headrace: TestBroker, tmp_path: Path) -> None:
    headrace.create_topic("orders")
    create(
        headrace,
        tmp_path / "lake",
        format="avro",
        schema_text=json.dumps(AVRO),
        has_registry_header=True,
    )
    at = datetime.datetime(2024, 5, 6, tzinfo=datetime.UTC)
    good = avro({"id": 1, "note": None, "at": at, "tags": {"b": 2, "a": 1}}, b"\0\0\0\0\7")
    produce(headrace, "orders", good, good[:-1], good[5:], b"")
    (done,) = run_once(headrace)
    assert (done.rows, done.dead_letters) == (1, 3)
    (row,) = iceberg_rows(tmp_path / "lake")
    assert (row["id"], row["note"], row["at"]) == (1, None, at)
    assert row["tags"] == [{"key": "a", "value": 1}, {"key": "b", "value": 2}]
    assert equals_topic(headrace)


def test_times_of_avro_that_no_column_has_are_numbers(headrace: TestBroker, tmp_path: Path) -> None:
    kinds = {
        "a": ("int", "time-millis"),
        "b": ("long", "time-micros"),
        "c": ("long", "local-timestamp-millis"),
        "d": ("long", "local-timestamp-micros"),
    }
    fields = [
        {"name": name, "type": ["null", {"type": kind, "logicalType": logical}]}
        for name, (kind, logical) in kinds.items()
    ]
    inside = {"type": "record", "name": "In", "fields": fields}
    schema = {"type": "record", "name": "Out", "fields": [{"name": "n", "type": inside}, *fields]}
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", format="avro", schema_text=json.dumps(schema), to="parquet")
    plain = {"a": 1, "b": -2, "c": 1_700_000_000_000, "d": 2**62}
    for each in fields:
        each["type"][1].pop("logicalType")  # type: ignore[attr-defined]
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), {"n": plain, **plain})
    produce(headrace, "orders", sink.getvalue())
    run_once(headrace)
    (row,) = stored_rows(tmp_path / "lake", "parquet")
    assert row["n"] == plain
    assert {name: row[name] for name in plain} == plain


def test_protobuf_values_become_columns(headrace: TestBroker, tmp_path: Path) -> None:
    path = tmp_path / "order.proto"
    path.write_text(PROTO)
    headrace.create_topic("orders")
    create(
        headrace,
        tmp_path / "lake",
        format="protobuf",
        schema_text=compile_proto(path),
        message="shop.Order",
    )
    value = b"\x08\x05\x10\x01\x1a\x07\n\x03tea\x10\x02*\x02\x08\x0a"
    produce(headrace, "orders", value, b"\xff\xff")
    (done,) = run_once(headrace)
    assert (done.rows, done.dead_letters) == (1, 1)
    (row,) = iceberg_rows(tmp_path / "lake")
    assert (row["id"], row["state"], row["note"]) == (5, "PAID", None)
    assert row["items"] == [{"name": "tea", "count": 2}]
    assert row["at"] == datetime.datetime(1970, 1, 1, 0, 0, 10, tzinfo=datetime.UTC)
    assert equals_topic(headrace)


def test_a_message_without_what_it_requires_is_a_dead_letter(
    headrace: TestBroker, tmp_path: Path
) -> None:
    path = tmp_path / "order.proto"
    path.write_text('syntax = "proto2"; message Order { required int64 id = 1; }')
    headrace.create_topic("orders")
    compiled = compile_proto(path)
    create(headrace, tmp_path / "lake", format="protobuf", schema_text=compiled, message="Order")
    produce(headrace, "orders", b"\x08\x05", b"")
    (done,) = run_once(headrace)
    assert (done.rows, done.dead_letters) == (1, 1)
    (letter,) = iceberg_rows(tmp_path / "lake", "orders_t_dead_letters")
    assert letter["reason"] == "not of the message type: required fields are missing: id"
    assert equals_topic(headrace)


def test_raw_values_stay_as_they_are(headrace: TestBroker, tmp_path: Path) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", format="raw")
    headrace.produce("orders", ("k", b"\x00\xff"), ("gone", None))
    (done,) = run_once(headrace)
    assert (done.rows, done.dead_letters) == (1, 1)
    (row,) = iceberg_rows(tmp_path / "lake")
    assert (row["_key"], row["value"]) == (b"k", b"\x00\xff")
    assert equals_topic(headrace)


def test_partitions_and_sort_order_are_those_of_iceberg(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    create(
        headrace,
        tmp_path / "lake",
        columns=("country:string", "id:long"),
        partition_by=("country", "day(_timestamp)", "bucket(4, id)"),
        sort_by=("id",),
    )
    rows = [{"country": "de" if number % 3 else None, "id": 9 - number} for number in range(10)]
    produce(headrace, "orders", *rows)
    run_once(headrace)
    assert len(iceberg_rows(tmp_path / "lake")) == 10
    assert equals_topic(headrace)
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415  slow to import

    catalog = load_catalog("t", type="sql", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    table = catalog.load_table("headrace.orders_t")
    found = table.scan(row_filter="country = 'de' and id = 8").to_arrow()
    assert found.num_rows == 1
    assert all(each.file.partition[1] > 20_000 for each in table.scan().plan_files())
    catalog.close()


@pytest.mark.parametrize("to", ["delta", "parquet"])
def test_other_formats_are_partitioned_by_days(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, partition_by=("day(_timestamp)",))
    produce(headrace, "orders", {"id": 1}, {"id": 2})
    run_once(headrace)
    assert [row["id"] for row in stored_rows(tmp_path / "lake", to)] == [1, 2]
    if to == "parquet":
        assert list((tmp_path / "lake").rglob("_timestamp_day=20*"))
    assert equals_topic(headrace)
