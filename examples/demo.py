"""A shop's day: orders through a broker, a queue worked off, a pipeline on Spark. Run `make demo`.

A real broker starts in this process and serves on a free port; everything reaches it over TCP, as
any Kafka client could. Orders are produced to a topic. Invoices are a queue: workers share them,
and those that nobody can make sense of end up with the dead letters. Spark reads the orders as a
stream, writes the revenue by city into another topic, all or nothing, and the orders to Parquet.
"""

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace import spark
from headrace.client import Admin, Consumer, Producer, ShareRecord, Start, share_worker
from headrace.client.configs import Resource, ResourceType
from headrace.testing.broker import TestBroker

ORDERS = 100_000
PARTITIONS = 3
CITIES = ("Bergen", "Cork", "Porto", "Turku", "Zagreb")
INVOICES = 500
ILLEGIBLE = 5
DEAD_LETTERS = "dlq.invoices"


def main() -> None:
    begin = time.perf_counter()
    with TestBroker() as broker, tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        say(begin, f"broker:   serves Kafka clients at {broker.bootstrap}")
        broker.create_topic("orders", partitions=PARTITIONS)
        broker.create_topic("invoices")
        broker.create_topic("revenue")

        begin = time.perf_counter()
        asyncio.run(produce(broker.bootstrap))
        say(begin, f"producer: {ORDERS:,} orders sent, each acknowledged once (zstd)")

        begin = time.perf_counter()
        done = asyncio.run(work_off(broker.bootstrap))
        letters = asyncio.run(read_dead_letters(broker.bootstrap))
        say(begin, f"queue:    {done} invoices worked off by 8 workers, {letters} dead letters")
        assert (done, letters) == (INVOICES - ILLEGIBLE, ILLEGIBLE)

        begin = time.perf_counter()
        session = spark.session(banner=False)
        say(begin, "spark:    started")
        try:
            run_pipeline(session, broker.bootstrap, Path(folder))
        finally:
            session.stop()


def say(begin: float, what: str) -> None:
    print(f"{what}  [{time.perf_counter() - begin:.2f} s]", flush=True)


# The log


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


# The queue


async def work_off(bootstrap: str) -> int:
    """Have workers share the invoices until each is done or given up; give how many are done."""
    async with Admin(bootstrap) as admin:
        await admin.alter_configs(
            Resource(ResourceType.GROUP, "billing"),
            set={
                "share.auto.offset.reset": "earliest",
                "errors.deadletterqueue.topic.name": DEAD_LETTERS,
            },
        )
    async with Producer(bootstrap) as producer:
        for number in range(INVOICES):
            is_legible = number % (INVOICES // ILLEGIBLE)
            await producer.send("invoices", str(number) if is_legible else "a coffee stain")
    done: set[int] = set()
    tried = 0
    is_over = asyncio.Event()

    async def bill(record: ShareRecord) -> None:
        nonlocal tried
        tried += 1
        if tried == INVOICES:
            is_over.set()
        done.add(int(record.value or b""))  # ValueError: rejected, and a dead letter

    async with share_worker(bootstrap, "billing", ["invoices"], bill, concurrency=8):
        await is_over.wait()
    return len(done)


async def read_dead_letters(bootstrap: str) -> int:
    """Give how many there are once all have come: they are sent after the work is done."""
    count = 0
    async with asyncio.timeout(30), Consumer(bootstrap) as consumer:
        await consumer.assign(DEAD_LETTERS, Start.BEGINNING)
        async for _ in consumer:
            count += 1
            if count == ILLEGIBLE:
                break
    return count


# The pipeline


def run_pipeline(session: SparkSession, bootstrap: str, folder: Path) -> None:
    begin = time.perf_counter()
    topics = {"kafka.bootstrap.servers": bootstrap}
    stream = (
        session.readStream.format("headrace")
        .options(**topics, subscribe="orders", startingOffsets="earliest")
        .load()
    )
    revenue = parsed(stream).groupBy("city").agg(f.count("*").alias("n"), f.sum("cents").alias("c"))
    (
        revenue.select(f.col("city").alias("key"), f.to_json(f.struct("n", "c")).alias("value"))
        .writeStream.format("headrace")
        .options(**topics, topic="revenue", checkpointLocation=str(folder / "checkpoint"))
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    say(begin, "stream:   orders aggregated by city into the topic revenue, all or nothing")

    begin = time.perf_counter()
    batch = session.read.format("headrace").options(**topics, subscribe="orders").load()
    parsed(batch).write.partitionBy("city").parquet(str(folder / "orders"))
    say(begin, "table:    orders written to Parquet, a folder a city")

    begin = time.perf_counter()
    session.read.format("headrace").options(**topics, subscribe="revenue").load().selectExpr(
        "cast(key as string) as city", "from_json(cast(value as string), 'n BIGINT, c BIGINT') as r"
    ).createOrReplaceTempView("revenue")
    session.read.parquet(str(folder / "orders")).createOrReplaceTempView("orders")
    rows = session.sql(
        """
        SELECT city, any_value(r.n) AS orders, any_value(r.c) AS cents, sum(orders.cents) AS check
        FROM revenue JOIN orders USING (city) GROUP BY city ORDER BY cents DESC
        """
    ).collect()
    say(begin, "query:    topic and table joined; they agree")
    for row in rows:
        print(f"          {row.city:8} {row.orders:7,} orders {row.cents / 100:14,.2f}")
    assert sum(row.orders for row in rows) == ORDERS
    assert all(row.cents == row.check for row in rows)


def parsed(records: DataFrame) -> DataFrame:
    """Give city, cents and items of orders as a topic has them."""
    return records.selectExpr(
        "cast(key as string) as city",
        "from_json(cast(value as string), 'cents BIGINT, items INT') as o",
    ).select("city", "o.*")


if __name__ == "__main__":
    main()
