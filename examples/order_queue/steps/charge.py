"""Charge orders; declined ones are tried again, hopeless ones rejected."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as Spark's users write it

from headrace import spark
from headrace.spark.pipelines import Sink, step

ATTEMPTS_MAX = 3
ORDER = "id bigint, amount double, attempt int, declines int"


@step(reads="orders", writes="charged", per_batch=True)
def charge(batch: DataFrame, batch_id: int, sink: Sink, parameters: dict[str, str]) -> None:
    address = parameters["bootstrap"]
    order = F.from_json(F.col("value").cast("string"), ORDER).alias("o")
    orders = batch.select("topic", "partition", "offset", order).persist()
    attempt = F.coalesce("o.attempt", F.lit(1))
    is_good = F.col("o.id").isNotNull() & (F.col("o.amount") > 0)
    # The payment service: declines an order as often as the order says.
    is_declined = attempt <= F.coalesce("o.declines", F.lit(0))

    hopeless = ~is_good | (is_declined & (attempt >= ATTEMPTS_MAX))
    spark.reject(
        orders.where(F.coalesce(hopeless, F.lit(True))),
        bootstrap=address,
        group=parameters["group"],
    )
    again = orders.where(is_good & is_declined & (attempt < ATTEMPTS_MAX)).select(
        F.to_json(F.struct("o.id", "o.amount", (attempt + 1).alias("attempt"), "o.declines")).alias(
            "value"
        )
    )
    (
        again.write.format("headrace")
        .mode("append")
        .option("kafka.bootstrap.servers", address)
        .option("topic", "orders")
        .save()
    )
    charged = orders.where(is_good & ~is_declined).select(
        "o.id", "o.amount", attempt.alias("attempt")
    )
    charged.write.mode("overwrite").parquet(f"{sink.options['path']}/batch={batch_id}")
    orders.unpersist()
