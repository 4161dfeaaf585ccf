"""Tables in S3, as moto serves it."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from headrace.errors import HeadraceError
from headrace.spark.tables.administration import create_table
from headrace.spark.tables.engine import Here
from headrace.spark.tables.verifying import verify_table
from headrace.testing.broker import TestBroker
from tests.tables.worlds import produce, run_once


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server with a bucket, and credentials for it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT")).close()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "access")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    yield url
    server.stop()


@pytest.mark.parametrize("to", ["iceberg", "delta", "parquet"])
def test_a_table_can_be_in_a_bucket(
    headrace: TestBroker, endpoint: str, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders")
    produce(headrace, "orders", {"id": 1}, b"bad")
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"} if to == "iceberg" else {}
    create_table(
        headrace.bootstrap,
        "orders_t",
        topic="orders",
        location=f"s3://bucket/{to}",
        to=to,
        catalog=catalog,
        store_endpoint=endpoint,
        store_region="eu-west-1",
        store_allow_http=True,
    )
    run_once(headrace)
    produce(headrace, "orders", {"id": 2, "new": "x"})
    (done,) = run_once(headrace)
    assert done.rows == 1
    report = verify_table(headrace.bootstrap, "orders_t", Here())
    assert report.is_equal
    assert [(each.table_rows, each.table_dead) for each in report.ranges] == [(2, 1)]


def test_a_bucket_that_is_not_there_is_named(headrace: TestBroker, endpoint: str) -> None:
    headrace.create_topic("orders")
    with pytest.raises(HeadraceError, match="nowhere"):
        create_table(
            headrace.bootstrap,
            "orders_t",
            topic="orders",
            location="s3://nowhere/lake",
            to="parquet",
            store_endpoint=endpoint,
            store_region="eu-west-1",
            store_allow_http=True,
        )
