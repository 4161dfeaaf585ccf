"""A hundred thousand orders through a broker into a Spark table. Run it with `make demo`.

A real broker starts in this process and serves on a free port. A producer sends orders to it over
TCP, idempotent and compressed; a consumer reads them back; Spark sums up the revenue. Everything
but Spark is Headrace, and any Kafka client could take the place of the two clients.
"""

import asyncio
import json
import os
import random
import shutil
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.client import Consumer, Producer, Start
from headrace.testing.broker import TestBroker

ORDERS = 100_000
PARTITIONS = 3
CITIES = ("Bergen", "Cork", "Porto", "Turku", "Zagreb")


def main() -> None:
    begin = time.perf_counter()
    with TestBroker() as broker:
        say(begin, f"broker:   serves Kafka clients at {broker.bootstrap}")
        broker.create_topic("orders", partitions=PARTITIONS)

        begin = time.perf_counter()
        asyncio.run(produce(broker.bootstrap))
        say(begin, f"producer: {ORDERS:,} orders sent, each acknowledged once (zstd)")

        begin = time.perf_counter()
        records = asyncio.run(consume(broker.bootstrap))
        say(begin, f"consumer: {records.num_rows:,} orders read from {PARTITIONS} partitions")

    if shutil.which("java") is None:
        print("spark:    skipped, it needs Java 17 or newer on the PATH")
        return
    begin = time.perf_counter()
    rows = revenue_by_city(records)
    say(begin, "spark:    started, and summed up the revenue by city")
    for city, orders, cents in rows:
        print(f"          {city:8} {orders:7,} orders {cents / 100:14,.2f}")
    assert sum(orders for _, orders, _ in rows) == ORDERS


def say(begin: float, what: str) -> None:
    print(f"{what}  [{time.perf_counter() - begin:.2f} s]", flush=True)


def orders() -> Iterator[tuple[bytes, bytes]]:
    """Yield a city and an order, made up but the same each time."""
    rng = random.Random(7)
    for _ in range(ORDERS):
        order = {"cents": rng.randrange(100, 50_000), "items": rng.randrange(1, 9)}
        yield rng.choice(CITIES).encode(), json.dumps(order).encode()


async def produce(bootstrap: str) -> None:
    async with Producer(bootstrap, compression="zstd") as producer:
        for city, order in orders():
            await producer.send("orders", order, city)


async def consume(bootstrap: str) -> pa.Table:
    """Read what the topic holds now, as columns."""
    async with Consumer(bootstrap) as consumer:
        await consumer.assign("orders", Start.BEGINNING, until_end=True)
        records = [(record.key, record.value) async for record in consumer]
    cities, values = zip(*records, strict=True)
    return pa.table({"key": pa.array(cities, pa.binary()), "value": pa.array(values, pa.binary())})


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
    spark.createDataFrame(records).createOrReplaceTempView("records")
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
