"""Verify finds every kind of difference, and says what cannot be compared."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.client import Admin
from headrace.spark.tables.administration import alter_table, drop_table
from headrace.spark.tables.backfilling import backfill_table
from headrace.spark.tables.definition import Definition, remember_schema
from headrace.spark.tables.engine import Here
from headrace.spark.tables.planning import Gap
from headrace.spark.tables.protobuf_decoding import compile_proto
from headrace.spark.tables.state import state_of
from headrace.spark.tables.verifying import RangeReport, Verification, verify_table
from headrace.testing.broker import TestBroker
from tests.tables.worlds import create, produce, run_once

TARGETS = ("iceberg", "delta", "parquet")
ROWS, LETTERS = "orders_t", "orders_t_dead_letters"


def verify(broker: TestBroker) -> Verification:
    return verify_table(broker.bootstrap, "orders_t", Here())


def found(report: RangeReport) -> tuple[list[int], list[int], list[int]]:
    return report.missing, report.surplus, report.different


def changed(name: str, row: int, value: object) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        values: list[Any] = rows.column(name).to_pylist()
        values[row] = value
        field = rows.schema.field(name)
        at = rows.schema.get_field_index(name)
        return rows.set_column(at, field, pa.array(values, field.type))

    return change


def without(row: int) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: pa.concat_tables([rows.slice(0, row), rows.slice(row + 1)])


def doubled(row: int) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: pa.concat_tables([rows, rows.slice(row, 1)])


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_one_row_or_letter_that_is_changed_missing_or_doubled_is_found(
    headrace: TestBroker, tmp_path: Path, to: str, mode: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, mode=mode)
    rows = [(f"k{number}", json.dumps({"id": number, "name": "x"})) for number in range(4)]
    headrace.produce("orders", *rows, ("b", b"bad"), ("c", b"worse"))
    run_once(headrace)
    damages: list[tuple[str, Callable[[pa.Table], pa.Table], Any]] = [
        (ROWS, changed("id", 2, 99), ([], [], [2])),
        (ROWS, changed("name", 2, None), ([], [], [2])),
        (ROWS, changed("_key", 2, b"other"), ([], [], [2])),
        (ROWS, without(2), ([2], [], [])),
        (ROWS, doubled(2), ([], [2], [])),
        (LETTERS, changed("value", 1, b"other"), ([], [], [5])),
        (LETTERS, changed("key", 1, None), ([], [], [5])),
        (LETTERS, without(0), ([4], [], [])),
        (LETTERS, doubled(0), ([], [4], [])),
    ]
    for table, damage, told in damages:
        (path,) = (tmp_path / "lake" / "headrace" / table).rglob("*.parquet")
        whole = path.read_bytes()
        pq.write_table(damage(pq.ParquetFile(path).read()), path)
        (report,) = verify(headrace).ranges
        assert found(report) == told
        assert not report.is_equal
        path.write_bytes(whole)
    assert verify(headrace).is_equal


def create_again(broker: TestBroker, count: int) -> None:
    async def delete() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_topic("orders")

    broker.run(delete())
    broker.create_topic("orders")
    produce(broker, "orders", *({"id": 100 + number} for number in range(count)))


@pytest.mark.parametrize("count", [0, 9])
def test_records_of_a_topic_that_was_created_again_are_never_taken_for_the_tables(
    headrace: TestBroker, tmp_path: Path, count: int
) -> None:
    headrace.create_topic("orders")
    produce(headrace, "orders", *({"id": number} for number in range(5)))
    create(headrace, tmp_path / "lake", to="parquet", start_offsets={0: 3})
    run_once(headrace)
    assert state_of(headrace.bootstrap, "orders_t").alarms == []
    create_again(headrace, count)
    (alarm,) = state_of(headrace.bootstrap, "orders_t").alarms
    assert "re-created: topic 'orders'" in alarm
    with pytest.raises(Gap, match="re-created"):
        verify(headrace)
    with pytest.raises(Gap, match="re-created"):
        backfill_table(headrace.bootstrap, "orders_t", Here())


@pytest.mark.parametrize("begins", [{"start": "latest"}, {"start_offsets": {0: 5}}])
def test_a_start_is_that_of_the_topic_that_it_was_fixed_for(
    headrace: TestBroker, tmp_path: Path, begins: dict[str, Any]
) -> None:
    headrace.create_topic("orders")
    produce(headrace, "orders", *({"id": number} for number in range(5)))
    create(headrace, tmp_path / "lake", to="parquet", **begins)
    create_again(headrace, 9)
    (alarm,) = state_of(headrace.bootstrap, "orders_t").alarms
    assert "re-created: topic 'orders'" in alarm
    with pytest.raises(Gap, match="re-created"):
        run_once(headrace)


def test_a_table_of_a_whole_topic_may_begin_with_one_that_was_created_again(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    produce(headrace, "orders", {"id": 0})
    create(headrace, tmp_path / "lake", to="parquet")
    create_again(headrace, 3)
    assert run_once(headrace)[0].rows == 3
    assert verify(headrace).is_equal


def test_a_table_of_a_topic_that_was_just_created_again_begins_with_that_one(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="parquet")
    create_again(headrace, 3)
    drop_table(headrace.bootstrap, "orders_t", purges=True)
    create(headrace, tmp_path / "lake", to="parquet", start_offsets={0: 1})
    assert run_once(headrace)[0].rows == 2


@pytest.mark.parametrize("to", TARGETS)
def test_what_had_no_type_yet_is_no_difference_once_it_has_one(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to)
    early = [{"id": 1, "meta": {}, "tags": []}, {"id": 2, "tags": [None], "meta": {"a": {}}}]
    produce(headrace, "orders", *early)
    run_once(headrace)
    produce(headrace, "orders", {"id": 3, "meta": {"a": {"b": 1}}, "tags": ["x"]}, {"tags": []})
    run_once(headrace)
    assert verify(headrace).is_equal
    paths = (tmp_path / "lake" / "headrace" / "orders_t").rglob("*.parquet")
    path = next(each for each in paths if "tags" in pq.read_schema(each).names)
    pq.write_table(changed("tags", 0, None)(pq.ParquetFile(path).read()), path)
    assert [found(each) for each in verify(headrace).ranges] == [([], [], [2])]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_records_that_compaction_has_removed_are_no_difference(
    headrace: TestBroker, tmp_path: Path, mode: str
) -> None:
    configs = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "segment.ms": "1",
        "delete.retention.ms": "0",
    }
    headrace.create_topic("orders", configs=configs)
    create(headrace, tmp_path / "lake", to="parquet", mode=mode)
    for number in range(4):
        row = ("a", f'{{"id": {number}}}')
        headrace.produce("orders", row, ("b", b"bad"), timestamp_ms=1_000 * number)
    run_once(headrace)
    headrace.produce("orders", ("a", '{"id": 9}'), ("b", '{"id": 9}'), timestamp_ms=10_000)
    headrace.produce("orders", ("c", '{"id": 9}'), timestamp_ms=20_000)
    headrace.run(headrace.node.upkeep.run_compaction())
    assert [each.offset for each in headrace.consume("orders")] == [8, 9, 10]
    (report,) = verify(headrace).ranges
    assert report.is_equal
    assert (report.log_rows, report.compacted) == (0, 8 if mode == "append" else 5)
    run_once(headrace)
    assert verify(headrace).is_equal


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_rows_that_were_judged_by_other_rules_are_no_difference(
    headrace: TestBroker, tmp_path: Path, mode: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="parquet", mode=mode, columns=("p:long",))

    def put(*prices: int) -> None:
        headrace.produce("orders", *((f"k{each % 2}", f'{{"p": {each}}}') for each in prices))
        run_once(headrace)

    put(4, 5, -2, -3)
    alter_table(headrace.bootstrap, "orders_t", rules=("p >= 0",))
    put(-6)
    assert verify(headrace).is_equal
    put(8)
    assert verify(headrace).is_equal
    (path, *_) = (tmp_path / "lake" / "headrace" / "orders_t").rglob("*.parquet")
    pq.write_table(changed("p", 0, -77)(pq.ParquetFile(path).read()), path)
    assert not verify(headrace).is_equal


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_what_had_no_type_is_no_difference_where_it_does_not_fit_the_one_that_came(
    headrace: TestBroker, tmp_path: Path, to: str, mode: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, mode=mode)

    def put(*texts: str, keys: str = "abcd") -> None:
        headrace.produce("orders", *zip(keys, texts, strict=False))
        run_once(headrace)

    put('{"id": 1, "meta": []}', '{"id": 2, "list": {}}', '{"s": {"x": 1, "y": []}}', '{"id": 4}')
    put('{"meta": {"k": 1}, "list": [1], "s": {"z": 5}}', keys="e")
    assert verify(headrace).is_equal
    put('{"id": 7, "meta": []}', keys="f")
    assert verify(headrace).is_equal
    put('{"id": 8}', '{"id": 9}')
    assert verify(headrace).is_equal
    (path, *_) = sorted((tmp_path / "lake" / "headrace" / "orders_t").rglob("*.parquet"))
    pq.write_table(changed("id", 0, 77)(pq.ParquetFile(path).read()), path)
    if mode == "append":
        assert [found(each)[2] for each in verify(headrace).ranges] != [[]]


def protobuf(tmp_path: Path, fields: str) -> str:
    path = tmp_path / "m.proto"
    path.write_text(f'syntax = "proto3"; message M {{ int64 id = 1; {fields} }}')
    return compile_proto(path)


def avro(*names: str) -> str:
    fields = [{"name": "id", "type": "long"}]
    return json.dumps(
        {
            "type": "record",
            "name": "M",
            "fields": [*fields, *({"name": each, "type": "long"} for each in names)],
        }
    )


@pytest.mark.parametrize("to", ["iceberg", "parquet"])
@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("kind", ["protobuf", "avro"])
def test_rows_that_were_decoded_by_an_older_schema_are_no_difference(
    headrace: TestBroker, tmp_path: Path, to: str, mode: str, kind: str
) -> None:
    headrace.create_topic("orders")
    schemas = (
        [protobuf(tmp_path, "string name = 2;"[:end]) for end in (0, 16)]
        + [protobuf(tmp_path, "string name = 2; repeated int32 n = 3;")]
        if kind == "protobuf"
        else [avro(), avro("b"), avro("b", "c")]
    )
    message = {"message": "M"} if kind == "protobuf" else {}
    create(headrace, tmp_path / "lake", to=to, mode=mode, format=kind, schema_text=schemas[0],
           **message)  # fmt: skip
    heads = (b"\x08", b"\x08", b"\x08") if kind == "protobuf" else (b"", b"", b"")
    tails = (b"", b"\x12\x01x", b"") if kind == "protobuf" else (b"", b"\x02", b"\x02\x04")
    for number, (schema, head, tail) in enumerate(zip(schemas, heads, tails, strict=True)):
        if number:
            alter_table(headrace.bootstrap, "orders_t", schema_text=schema)
        keys = (f"a{number}", f"b{number}", "same")
        headrace.produce("orders", *((key, head + b"\x02" + tail) for key in keys), ("x", b"\xff"))
        run_once(headrace)
        assert verify(headrace).is_equal
    (path, *_) = sorted((tmp_path / "lake" / "headrace" / "orders_t").rglob("*.parquet"))
    whole = pq.ParquetFile(path).read()
    pq.write_table(changed("id", 0, 77)(whole), path)
    told = [found(each) for each in verify(headrace).ranges]
    if mode == "append":
        assert [len(different) for _, _, different in told] == [1]


def test_a_definition_keeps_the_newest_of_its_older_schemas() -> None:
    definition = Definition(name="t", id="i", topic="orders", location="file:///t")
    for letter in "abcde":
        newer = msgspec.structs.replace(definition, schema_text=letter * 100_000)
        definition = remember_schema(newer, definition)
    assert [each.schema_text[0] for each in definition.older_schemas] == ["d", "c"]
    assert remember_schema(definition, definition) == definition
