"""Bad input: a clear message, nothing lost, nothing written."""

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.client import Admin
from headrace.client.topics import TopicPartition
from headrace.errors import HeadraceError
from headrace.spark.tables.administration import (
    create_table,
    drop_table,
    find_table,
    list_tables,
)
from headrace.spark.tables.column_types import parse_type
from headrace.spark.tables.planning import Gap
from headrace.spark.tables.registry import UnknownTable, UnreadableDefinition
from headrace.spark.tables.state import state_of
from headrace.spark.tables.table_store import TableExists
from headrace.spark.tables.task import BadRecord
from headrace.testing.broker import TestBroker
from tests.tables.worlds import create, iceberg_rows, produce, run_once


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"partition_bye": "x"}, "no option 'partition_bye'; did you mean 'partition_by'?"),
        ({"topic": "order"}, "there is no topic 'order'; did you mean 'orders'?"),
        ({"location": "lake%20"}, "--location lake%20: a name with '%' means another place"),
        ({"location": "/tmp/lake#1"}, "a name with '#' means another place"),
        ({"columns": ("a:lnog",)}, "'lnog' is not a type"),
        ({"columns": ("_offset:long",)}, "'_offset' is one that every table has"),
        ({"partition_by": ("dya(_timestamp)",)}, "no 'dya'; did you mean 'day'?"),
        ({"partition_by": ("country",)}, "give it a type, --column country:string"),
        ({"rules": ("price > much",)}, "a rule is like"),
        ({"format": "avro"}, "needs a schema"),
        ({"format": "xml"}, "cannot be defined so"),
        ({"to": "delta", "partition_by": ("bucket(4, _offset)",)}, "has no buckets"),
        ({"catalog": {"uri": "http://x", "token": "s"}}, "holds no secrets"),
        ({"catalog": {"uri": "http://x", "header.Authorization": "canary"}}, "holds no secrets"),
        ({"catalog": {"uri": "http://x", "adls.account-key": "canary"}}, "holds no secrets"),
        ({"catalog": {"uri": "postgresql://ann:canary@db/x"}}, "--catalog uri has a password"),
        ({"catalog": {"uri": "postgresql://db/x?password=canary"}}, "--catalog uri has a password"),
        ({"location": "s3://ann:canary@bucket/x"}, "credentials and endpoint have settings"),
        ({"location": "s3://bucket/lake", "store_region": "x"}, "needs a catalog"),
    ],
)
def test_a_definition_that_cannot_be_meant_is_refused(
    headrace: TestBroker, tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    headrace.create_topic("orders")
    more = {"topic": "orders", "location": str(tmp_path / "lake"), **given}
    if "store_region" in more:
        from headrace.remote.store_options import StoreOptions  # noqa: PLC0415  this case only
        from headrace.spark.tables.definition import Definition  # noqa: PLC0415
        from headrace.spark.tables.sqlite_catalog import catalog_properties  # noqa: PLC0415

        definition = Definition(name="t", id="i", topic="orders", location=more["location"])
        with pytest.raises(HeadraceError, match=said):
            catalog_properties(definition, StoreOptions())
        return
    with pytest.raises(HeadraceError) as refused:
        create_table(headrace.bootstrap, "orders_t", **more)
    assert said in str(refused.value)
    assert "canary" not in str(refused.value)


def test_a_location_that_is_not_ours_is_refused(headrace: TestBroker, tmp_path: Path) -> None:
    headrace.create_topic("orders")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(HeadraceError, match=r"is not empty \(cat.jpg is there\)"):
        create(headrace, tmp_path / "photos")
    assert [each.name for each in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


def test_a_table_of_others_is_not_touched(headrace: TestBroker, tmp_path: Path) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake")
    with pytest.raises(TableExists, match="exists, for topic 'orders'"):
        create(headrace, tmp_path / "lake")
    with pytest.raises(HeadraceError, match="no table 'order_t'; did you mean 'orders_t'"):
        find_table(headrace.bootstrap, "order_t")
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415  slow to import

    catalog = load_catalog("headrace", type="sql", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    catalog.drop_table("headrace.orders_t")
    catalog.create_table(
        "headrace.orders_t",
        schema=parse_schema("id:string"),
        location=(f"file://{tmp_path}/lake/other"),
    )
    catalog.close()
    with pytest.raises(TableExists, match="belongs to another definition"):
        run_once(headrace)


def parse_schema(text: str) -> Any:
    name, _, kind = text.partition(":")
    return pa.schema([(name, parse_type(kind))])


def test_a_record_stops_the_table_if_it_is_defined_so(headrace: TestBroker, tmp_path: Path) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", fails_on_bad_record=True, columns=("id:long",))
    produce(headrace, "orders", {"id": 1}, {"id": "one"})
    with pytest.raises(BadRecord, match="orders-0 offset 1 cannot be taken"):
        run_once(headrace)
    assert iceberg_rows(tmp_path / "lake") == []


def test_a_gap_is_an_alarm_and_never_silent(headrace: TestBroker, tmp_path: Path) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake")
    produce(headrace, "orders", *({"id": number} for number in range(4)))
    run_once(headrace)
    produce(headrace, "orders", *({"id": number} for number in range(4, 8)))

    async def delete() -> None:
        async with Admin(headrace.bootstrap) as admin:
            await admin.delete_records({TopicPartition("orders", 0): 6})

    headrace.run(delete())
    with pytest.raises(Gap, match="offsets 4 to 5 are gone"):
        run_once(headrace)
    (done,) = run_once(headrace, accepts_loss=True)
    assert done.gaps
    assert [row["id"] for row in iceberg_rows(tmp_path / "lake")] == [0, 1, 2, 3, 6, 7]


def test_a_topic_that_was_created_again_is_refused(headrace: TestBroker, tmp_path: Path) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake")
    produce(headrace, "orders", {"id": 1})
    run_once(headrace)

    async def delete() -> None:
        async with Admin(headrace.bootstrap) as admin:
            await admin.delete_topic("orders")

    headrace.run(delete())
    headrace.create_topic("orders")
    produce(headrace, "orders", {"id": 2}, {"id": 3})
    with pytest.raises(Gap, match="re-created: topic 'orders'"):
        run_once(headrace)
    assert [row["id"] for row in iceberg_rows(tmp_path / "lake")] == [1]


def test_retention_that_is_about_to_pass_the_table_is_an_alarm(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders", configs={"retention.ms": "100000000"})
    create(headrace, tmp_path / "lake")
    old_ms = int(time.time() * 1000) - 90_000_000
    headrace.produce("orders", '{"id": 1}', timestamp_ms=old_ms)
    produce(headrace, "orders", {"id": 2})
    (alarm,) = state_of(headrace.bootstrap, "orders_t").alarms
    assert "records of orders-0 from offset 0 on are older than 80% of retention.ms" in alarm
    run_once(headrace)
    assert state_of(headrace.bootstrap, "orders_t").alarms == []


def test_records_before_the_beginning_of_a_table_are_no_lag_and_no_alarm(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders", configs={"retention.ms": "100000000"})
    old_ms = int(time.time() * 1000) - 90_000_000
    headrace.produce("orders", '{"id": 1}', timestamp_ms=old_ms)
    create(headrace, tmp_path / "lake", start="latest")
    produce(headrace, "orders", {"id": 2})
    state = state_of(headrace.bootstrap, "orders_t")
    assert state.alarms == []
    assert [each.lag for each in state.partitions] == [1]


def test_a_definition_that_cannot_be_read_is_in_nobodys_way(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake")
    headrace.produce("__headrace_tables", ("later", '{"to": "a format to come"}'), (b"\xff", "{}"))
    produce(headrace, "orders", {"id": 1})
    assert run_once(headrace)[0].rows == 1
    assert [each.name for each in list_tables(headrace.bootstrap)] == ["orders_t"]
    with pytest.raises(UnreadableDefinition, match="`headrace table drop` removes it"):
        find_table(headrace.bootstrap, "later")
    with pytest.raises(UnreadableDefinition):
        create_table(headrace.bootstrap, "later", topic="orders", location=str(tmp_path / "lake"))
    assert drop_table(headrace.bootstrap, "later", purges=True) is None
    with pytest.raises(UnknownTable):
        find_table(headrace.bootstrap, "later")
    create_table(headrace.bootstrap, "later", topic="orders", location=str(tmp_path / "lake"))
