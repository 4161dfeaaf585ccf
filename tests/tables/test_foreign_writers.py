"""Other programs write the same table: what they have deleted or added stays so."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record

from headrace.spark.tables.administration import drop_table
from headrace.spark.tables.engine import Here
from headrace.spark.tables.maintenance import Limits, maintain_table
from headrace.spark.tables.table_store import CatalogFailed
from headrace.spark.tables.verifying import verify_table
from headrace.testing.broker import TestBroker
from tests.tables.worlds import create, iceberg_rows, joined_rows, produce, run_once

NOTHING: Any = {
    "column_sizes": {},
    "value_counts": {},
    "null_value_counts": {},
    "nan_value_counts": {},
    "lower_bounds": {},
    "upper_bounds": {},
    "split_offsets": None,
    "key_metadata": None,
    "equality_ids": None,
    "sort_order_id": None,
    "spec_id": 0,
}


@contextmanager
def opened(lake: Path) -> Iterator[Table]:
    catalog = load_catalog("spark", type="sql", uri=f"sqlite:///{lake}/catalog.db")
    try:
        yield catalog.load_table("headrace.orders_t")
    finally:
        catalog.close()


def delete_by_position(lake: Path, position: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete a row of each file as engines do that merge on read, such as Trino."""
    path = lake / "headrace" / "orders_t" / "data" / f"deletes-{position}.parquet"
    with opened(lake) as table, monkeypatch.context() as patch:
        named = [each.file.file_path for each in table.scan().plan_files()]
        fields: Any = [("file_path", pa.string()), ("pos", pa.int64())]
        rows = pa.table([named, [position] * len(named)], schema=pa.schema(fields))
        pq.write_table(rows, path)
        deletes = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=f"file://{path}",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=len(named),
            file_size_in_bytes=path.stat().st_size,
            **NOTHING,
        )
        patch.setattr(ManifestWriterV2, "content", lambda _: ManifestContent.DELETES)
        with table.transaction() as transaction:
            producer = transaction.update_snapshot().fast_append()
            producer.append_data_file(deletes)
            producer.commit()


def ids(rows: list[Any]) -> list[int]:
    return sorted(row["id"] for row in rows)


def test_rows_that_others_have_deleted_by_position_do_not_come_back(
    headrace: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake")
    for first in (0, 10):
        produce(headrace, "orders", *({"id": first + number} for number in range(3)))
        run_once(headrace)
    delete_by_position(tmp_path / "lake", 1, monkeypatch)
    assert ids(iceberg_rows(tmp_path / "lake")) == [0, 2, 10, 12]
    assert ids(joined_rows(headrace)) == [0, 2, 10, 12]
    (report,) = verify_table(headrace.bootstrap, "orders_t", Here()).ranges
    assert report.missing == [1, 4]
    done = maintain_table(headrace.bootstrap, "orders_t", Here(), Limits())
    assert done.pieces == 1
    assert ids(iceberg_rows(tmp_path / "lake")) == [0, 2, 10, 12]
    produce(headrace, "orders", {"id": 20})
    run_once(headrace)
    assert ids(iceberg_rows(tmp_path / "lake")) == [0, 2, 10, 12, 20]


def test_rows_that_are_deleted_while_their_files_are_merged_do_not_come_back(
    headrace: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake")
    for first in (0, 10):
        produce(headrace, "orders", *({"id": first + number} for number in range(3)))
        run_once(headrace)

    class BesideAnother(Here):
        def run(self, work: Any, inputs: Any) -> Any:
            merged = super().run(work, inputs)
            if inputs:
                delete_by_position(tmp_path / "lake", 0, monkeypatch)
            return merged

    done = maintain_table(headrace.bootstrap, "orders_t", BesideAnother(), Limits())
    assert done.skipped == 1
    assert ids(iceberg_rows(tmp_path / "lake")) == [1, 2, 11, 12]


def test_an_upsert_leaves_deleted_rows_of_other_keys_deleted(
    headrace: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", mode="upsert")
    headrace.produce("orders", *((f"k{number}", f'{{"id": {number}}}') for number in range(4)))
    run_once(headrace)
    delete_by_position(tmp_path / "lake", 1, monkeypatch)
    headrace.produce("orders", ("k3", '{"id": 30}'))
    run_once(headrace)
    assert ids(iceberg_rows(tmp_path / "lake")) == [0, 2, 30]


def test_files_that_others_name_as_hadoop_does_are_not_removed_as_orphans(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", columns=("id:long",))
    produce(headrace, "orders", {"id": 1}, {"id": 2})
    run_once(headrace)
    with opened(tmp_path / "lake") as table:
        # As Spark does that rewrites a file: it writes file:/ where we write file:///.
        (old,) = [each.file for each in table.scan().plan_files()]
        own = Path(old.file_path.removeprefix("file://"))
        path = own.with_name("00000-1-rewritten.parquet")
        path.write_bytes(own.read_bytes())
        with table.transaction() as transaction:
            producer = transaction.update_snapshot().overwrite()
            producer.delete_data_file(old)
            producer.append_data_file(
                DataFile.from_args(
                    content=DataFileContent.DATA,
                    file_path=f"file:{path}",
                    file_format=FileFormat.PARQUET,
                    partition=Record(),
                    record_count=old.record_count,
                    file_size_in_bytes=old.file_size_in_bytes,
                    **NOTHING,
                )
            )
            producer.commit()
    done = maintain_table(headrace.bootstrap, "orders_t", Here(), Limits(orphan_age_ms=0))
    assert path.exists(), done.orphans
    assert ids(joined_rows(headrace)) == [1, 2]
    assert verify_table(headrace.bootstrap, "orders_t", Here()).is_equal


def test_columns_that_others_have_renamed_or_replaced_keep_their_values(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake")
    for number in range(2):
        produce(headrace, "orders", {"id": number, "price": 5, "s": {"a": 1, "b": 2}, "gone": "x"})
        run_once(headrace)
    with opened(tmp_path / "lake") as table, table.update_schema() as update:
        update.rename_column("price", "amount")
        update.rename_column("s.a", "c")
        update.delete_column("gone")
    produce(headrace, "orders", {"id": 2, "gone": "y"})
    run_once(headrace)
    before = iceberg_rows(tmp_path / "lake")
    assert [(row["amount"], row["gone"]) for row in before] == [(5, None), (5, None), (None, "y")]
    assert sorted(joined_rows(headrace), key=lambda row: int(row["_offset"])) == before
    assert maintain_table(headrace.bootstrap, "orders_t", Here(), Limits()).pieces == 1
    assert iceberg_rows(tmp_path / "lake") == before
    assert before[0]["s"] == {"c": 1, "b": 2}


@pytest.mark.parametrize("by", [(), ("day(_timestamp)", "bucket(4, id)", "country")])
def test_a_table_whose_partitions_others_have_changed_is_refused(
    headrace: TestBroker, tmp_path: Path, by: tuple[str, ...]
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", columns=("id:long", "country:string"), partition_by=by)
    produce(headrace, "orders", {"id": 1, "country": "de"})
    run_once(headrace)
    with opened(tmp_path / "lake") as table, table.update_spec() as update:
        update.add_field("_offset", BucketTransform(2), "more")
    produce(headrace, "orders", {"id": 2, "country": "fr"}, b"bad")
    with pytest.raises(CatalogFailed, match="was created to be partitioned by"):
        run_once(headrace)
    with opened(tmp_path / "lake") as table, table.update_spec() as update:
        update.remove_field("more")
    run_once(headrace)
    assert ids(iceberg_rows(tmp_path / "lake")) == [1, 2]
    assert verify_table(headrace.bootstrap, "orders_t", Here()).is_equal


@pytest.mark.parametrize(
    ("feature", "said"),
    [
        (TableFeatures.DeletionVectors, "deletionVectors"),
        (TableFeatures.ColumnMapping, "columnMapping"),
    ],
)
def test_a_delta_table_whose_files_do_not_say_all_is_refused(
    headrace: TestBroker, tmp_path: Path, feature: TableFeatures, said: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="delta")
    produce(headrace, "orders", {"id": 1})
    run_once(headrace)
    table = DeltaTable(str(tmp_path / "lake" / "headrace" / "orders_t"))
    table.alter.add_feature(feature, allow_protocol_versions_increase=True)
    for work in (run_once, joined_rows):
        with pytest.raises(CatalogFailed, match=f"others have switched on {said}"):
            work(headrace)
    with pytest.raises(CatalogFailed, match=said):
        maintain_table(headrace.bootstrap, "orders_t", Here(), Limits())
    drop_table(headrace.bootstrap, "orders_t", purges=True)
