"""One record never stops a table: what cannot be taken is a dead letter, and the rest goes on."""

from pathlib import Path
from typing import Any

import pytest

from headrace.client import Admin
from headrace.client.producer import Producer
from headrace.spark.tables.engine import Here
from headrace.spark.tables.reading import plan_read, rows_of
from headrace.spark.tables.source import table_options
from headrace.spark.tables.verifying import verify_table
from headrace.testing.broker import TestBroker
from tests.tables.worlds import create, joined_rows, produce, run_once, stored_rows

TARGETS = ("iceberg", "delta", "parquet")
LETTERS = "orders_t_dead_letters"


def offsets(rows: list[Any]) -> list[int]:
    return sorted(row["_offset"] if "_offset" in row else row["offset"] for row in rows)


def is_equal(broker: TestBroker) -> bool:
    return verify_table(broker.bootstrap, "orders_t", Here()).is_equal


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize(
    ("by", "value"),
    [
        ((), b'{"a":' * 40 + b"1" + b"}" * 40),
        (("day(_timestamp)",), {"_timestamp_day": "x"}),
        (("day(_timestamp)",), {"_TIMESTAMP_DAY": "x"}),
        ((), {"_OFFSET": 1}),
        ((), {"s": {"a": 1, "A": 2}}),
        ((), {"known": {"B": 2}}),
        ((), {"a\0b": 1}),
        ((), {"": 1}),
        ((), {"s": {"": 1}}),
        ((), {"x" * 100_000: 1}),
    ],
)
def test_a_column_that_cannot_be_makes_its_record_a_dead_letter(
    headrace: TestBroker, tmp_path: Path, to: str, by: tuple[str, ...], value: Any
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, columns=("id:long", "known:struct<b:long>"),
           partition_by=by)  # fmt: skip
    produce(headrace, "orders", {"id": 1}, value, {"id": 3, "new": 1})
    run_once(headrace)
    produce(headrace, "orders", {"id": 4}, value)
    run_once(headrace)
    assert offsets(joined_rows(headrace)) == [0, 2, 3]
    assert offsets(stored_rows(tmp_path / "lake", to)) == [0, 2, 3]
    assert offsets(stored_rows(tmp_path / "lake", to, LETTERS)) == [1, 4]
    assert is_equal(headrace)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"s": {"a": 1}}, {"s.a": "text"}),
        ({"s.a": 1}, {"s": {"a": "text"}}),
        ({"s": {"t": {"b": 1}}}, {"s": {"t.b": 1}}),
    ],
)
@pytest.mark.parametrize("is_at_once", [True, False])
def test_iceberg_has_one_column_of_a_dotted_name(
    headrace: TestBroker, tmp_path: Path, first: Any, second: Any, is_at_once: bool
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake")
    produce(headrace, "orders", first)
    if not is_at_once:
        run_once(headrace)
    produce(headrace, "orders", second, {"z": 1})
    run_once(headrace)
    assert len(stored_rows(tmp_path / "lake", "iceberg")) == 2
    assert len(stored_rows(tmp_path / "lake", "iceberg", LETTERS)) == 1
    assert is_equal(headrace)


def test_iceberg_keeps_the_names_of_its_partitions(headrace: TestBroker, tmp_path: Path) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", columns=("country:string",), partition_by=("country",))
    produce(headrace, "orders", {"country": "de"}, {"country_identity": 1})
    (done,) = run_once(headrace)
    assert (done.rows, done.dead_letters) == (1, 1)


@pytest.mark.parametrize(
    ("columns", "value"),
    [(("s:struct<a:long>",), {"s": {"b": 1}}), (("l:array<struct<a:long>>",), {"l": [{"b": 1}]})],
)
def test_new_fields_inside_of_a_column_of_delta_are_dead_letters(
    headrace: TestBroker, tmp_path: Path, columns: tuple[str, ...], value: Any
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="delta", columns=columns)
    produce(headrace, "orders", {"id": 1}, value, {"id": 2})
    (done,) = run_once(headrace)
    assert (done.rows, done.dead_letters) == (2, 1)
    assert is_equal(headrace)


@pytest.mark.parametrize(
    ("rule", "columns", "records", "dead"),
    [
        ("p >= 0", ("p:long",), [b'{"p":9223372036854775807}', b'{"p":-1}'], [1]),
        ("p <= 9007199254740992", ("p:long",), [b'{"p":9007199254740993}', b'{"p":3}'], [0]),
        ("p > -0.5", ("p:long",), [b'{"p":0}', b'{"p":-1}'], [1]),
        ("p < 99999999999999999999", ("p:long",), [b'{"p":0}'], []),
        ("p matches [a-z]+", (), [b'{"p":{"a":1}}'], [0]),
        ("p in a, b", (), [b'{"p":["a"]}'], [0]),
        ("_key in a, b", (), [(b"\xff", b'{"p":1}'), (b"a", b'{"p":1}')], [0]),
    ],
)
def test_a_rule_judges_every_value(
    headrace: TestBroker,
    tmp_path: Path,
    rule: str,
    columns: tuple[str, ...],
    records: list[Any],
    dead: list[int],
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="parquet", columns=columns, rules=(rule,))
    headrace.produce("orders", *records)
    run_once(headrace)
    assert offsets(stored_rows(tmp_path / "lake", "parquet", LETTERS)) == dead


def test_a_joined_read_shows_no_row_that_breaks_a_rule_beside_a_new_field(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    rules = ("price >= 0", "new not null")
    create(headrace, tmp_path / "lake", to="parquet", columns=("price:long",), rules=rules)
    produce(headrace, "orders", {"price": -5, "new": 1}, {"price": 2}, {"price": 3, "new": 1})
    assert offsets(joined_rows(headrace)) == [2]
    run_once(headrace)
    assert offsets(stored_rows(tmp_path / "lake", "parquet")) == [2]


@pytest.mark.parametrize("to", TARGETS)
def test_a_text_of_the_last_character_before_the_surrogates_stops_no_table(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to)
    headrace.produce("orders", (b"\xff" * 40, b'{"s": "' + "\ud7ff".encode() * 40 + b'"}'))
    (done,) = run_once(headrace)
    assert (done.rows, done.dead_letters) == (1, 0)
    (row,) = stored_rows(tmp_path / "lake", to)
    assert row["s"] == "\ud7ff" * 40
    assert is_equal(headrace)


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("by", [(), ("day(_timestamp)",)])
def test_a_record_of_any_time_is_taken(
    headrace: TestBroker, tmp_path: Path, to: str, by: tuple[str, ...]
) -> None:
    config = dict.fromkeys(
        ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms"), str(2**63 - 1)
    )
    times = (0, 10**12, 2**53, 2**63 - 1)

    async def send() -> None:
        async with Admin(headrace.bootstrap) as admin:
            await admin.create_topic("orders", 1, configs=config)
            async with Producer(admin.cluster) as producer:
                for each in times:
                    await (await producer.send("orders", b'{"id":1}', None, 0, timestamp_ms=each))

    headrace.run(send())
    create(headrace, tmp_path / "lake", to=to, columns=("id:long",), partition_by=by)
    (done,) = run_once(headrace)
    assert (done.rows, done.dead_letters) == ((2, 2) if by else (4, 0))
    assert is_equal(headrace)
    plan = plan_read(
        table_options({"kafka.bootstrap.servers": headrace.bootstrap, "table": "orders_t"})
    )
    rows = [rows for each in plan.files for rows in rows_of(plan.job, [each], None)]
    assert sum(each.num_rows for each in rows) == done.rows
