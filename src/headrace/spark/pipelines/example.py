"""The files that `headrace pipeline init` writes: a small pipeline that runs, with a test."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.spark.pipelines.model import InvalidPipeline


def write_example(folder: Path) -> list[Path]:
    """Write the example into a folder, which may exist if it is empty; return the files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidPipeline(f"{folder} is not empty: name a new folder")
    paths = []
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        paths.append(path)
    return paths


FILES: Final[Mapping[str, str]] = {
    "README.md": """\
# Orders

Orders come as JSON in the topic `orders`. `paid` keeps the paid ones, `totals` sums them up by
customer into Parquet files.

    headrace up &
    headrace topics create orders
    echo '{"id": 1, "customer": "ada", "amount": 12.5, "state": "paid"}' | headrace produce orders
    headrace pipeline run . --once
    headrace pipeline graph . --svg graph.svg
    headrace pipeline test .
""",
    "pipeline.toml": """\
name = "orders"

[parameters]                      # overridden with --set NAME=VALUE
bootstrap = "127.0.0.1:9092"

[options]                         # of every source and sink of Headrace
kafka.bootstrap.servers = "${bootstrap}"

[sources.orders]
format = "headrace"
subscribe = "orders"

[sinks.totals]
format = "parquet"                # any format that Spark knows
path = "out/totals"
""",
    "steps/paid.sql": """\
-- reads: orders
select o.id, o.customer, o.amount
from (select from_json(cast(value as string),
                       'id bigint, customer string, amount double, state string') as o from orders)
where o.state = 'paid'
""",
    "steps/totals.py": """\
from pyspark.sql import functions as F

from headrace.spark.pipelines import step


@step(writes="totals", per_batch=True)
def totals(paid, batch_id, sink):
    summed = paid.groupBy("customer").agg(F.sum("amount").alias("amount"), F.count("*").alias("n"))
    sink.write(summed.withColumn("batch", F.lit(batch_id)))
""",
    "tests/test_orders.py": """\
from pathlib import Path

FOLDER = Path(__file__).parent.parent


def test_paid_orders_are_summed_up_by_customer(headrace_pipeline):
    pipeline = headrace_pipeline(FOLDER)
    pipeline.produce(
        "orders",
        {"id": 1, "customer": "ada", "amount": 12.5, "state": "paid"},
        {"id": 2, "customer": "ada", "amount": 7.5, "state": "paid"},
        {"id": 3, "customer": "bob", "amount": 99.0, "state": "open"},
    )
    pipeline.run()
    pipeline.expect("totals", [{"customer": "ada", "amount": 20.0, "n": 2}], only=True)
""",
    ".gitignore": ".headrace/\nout/\n",
}
"""By path."""
