"""Write sales by month; a batch replaces only its own files."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as Spark's users write it

from headrace.spark.pipelines import Sink, step


@step(reads="amounts", writes="sales", per_batch=True)
def sales(batch: DataFrame, batch_id: int, sink: Sink, parameters: dict[str, str]) -> None:
    part = f"{parameters['label']}-{batch_id}"
    (
        batch.withColumn("part", F.lit(part))
        .write.mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy("month", "part")
        .parquet(sink.options["path"])
    )
