"""A hundred thousand orders from a producer's records to a Spark table.

Each step is what a part of a Kafka system does, on the same bytes: a producer builds batches and
sends them in Produce requests, a broker reads and checks them, a consumer turns what a fetch
returns into Arrow columns, and Spark counts the revenue. Run it with `make demo`.
"""

import json
import os
import random
import shutil
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.records.builder import BatchBuilder
from headrace.records.columns import to_arrow
from headrace.records.compression import Compression
from headrace.records.header import assign_offset
from headrace.records.validation import TopicRules, validate_batch
from headrace.wire import ApiKey, FrameReader, read_request, request_parts
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.request_header import RequestHeader

ORDERS = 100_000
ORDERS_PER_BATCH = 2_000
CITIES = ("Bergen", "Cork", "Porto", "Turku", "Zagreb")
NOW_MS = int(time.time() * 1000)


def main() -> None:
    begin = time.perf_counter()
    stream = b"".join(produce())
    say(begin, f"producer: {ORDERS:,} orders in {len(stream):,} bytes of Produce requests (zstd)")

    begin = time.perf_counter()
    log, batches = append(stream)
    say(begin, f"broker:   {batches} batches checked by header and checksum, offsets assigned")

    begin = time.perf_counter()
    columns = to_arrow(log, check_crcs=True)
    say(begin, f"consumer: {columns.num_rows:,} records as Arrow columns, no object per record")

    if shutil.which("java") is None:
        print("spark:    skipped, it needs Java 17 or newer on the PATH")
        return
    begin = time.perf_counter()
    rows = revenue_by_city(pa.Table.from_batches([columns]))
    say(begin, "spark:    started, and summed up the revenue by city")
    for city, orders, cents in rows:
        print(f"          {city:8} {orders:7,} orders {cents / 100:14,.2f}")


def say(begin: float, what: str) -> None:
    print(f"{what}  [{time.perf_counter() - begin:.2f} s]", flush=True)


def produce() -> Iterator[bytes]:
    """Yield Produce requests, each with one batch."""
    rng = random.Random(7)
    for correlation_id in range(ORDERS // ORDERS_PER_BATCH):
        batch = BatchBuilder(Compression.ZSTD)
        for _ in range(ORDERS_PER_BATCH):
            order = {"cents": rng.randrange(100, 50_000), "items": rng.randrange(1, 9)}
            batch.append(NOW_MS, rng.choice(CITIES).encode(), json.dumps(order).encode())
        topic = TopicProduceData("orders", partition_data=[PartitionProduceData(0, batch.build())])
        header = RequestHeader(ApiKey.PRODUCE, 9, correlation_id, "demo")
        yield b"".join(request_parts(header, ProduceRequest(None, -1, 30_000, [topic])))


def append(stream: bytes) -> tuple[bytes, int]:
    """Do what a broker does with a connection's bytes; give what its log would hold."""
    rules, next_offset, log = TopicRules(), 0, []
    for frame in FrameReader().feed(stream):
        _, request = read_request(frame)
        assert isinstance(request, ProduceRequest)
        records = request.topic_data[0].partition_data[0].records
        assert records is not None
        header, batch = validate_batch(memoryview(records), rules, NOW_MS)
        assign_offset(batch, next_offset, leader_epoch=0)
        next_offset += header.record_count
        log.append(batch)
    return b"".join(log), len(log)


def revenue_by_city(records: pa.Table) -> list[tuple[str, int, int]]:
    """Ask Spark, which takes the Arrow columns as they are."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[*]")
        .appName("headrace-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.createDataFrame(records.select(["key", "value"])).createOrReplaceTempView("records")
    rows = spark.sql(
        """
        SELECT city, count(*) AS orders, sum(cents) AS cents
        FROM (SELECT CAST(key AS STRING) AS city,
                     from_json(CAST(value AS STRING), 'cents BIGINT, items INT').cents AS cents
              FROM records)
        GROUP BY city ORDER BY cents DESC
        """
    ).collect()
    spark.stop()
    return [(row.city, row.orders, row.cents) for row in rows]


if __name__ == "__main__":
    main()
