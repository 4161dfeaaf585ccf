"""Keep the latest row of each id."""

import shutil
from pathlib import Path

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  as Spark's users write it

from headrace.spark.pipelines import Sink, step

KEPT = 2


@step(reads="changes_by_id", writes="customers", per_batch=True)
def upsert(batch: DataFrame, batch_id: int, sink: Sink) -> None:
    table = Path(sink.options["path"])
    before = [each for each in versions(table) if each < batch_id]
    rows = batch
    if before:
        known = batch.sparkSession.read.parquet(str(folder(table, before[-1])))
        rows = batch.unionByName(known)
    # Within a key the offset decides: a key is in one partition.
    newest = Window.partitionBy("id").orderBy(F.col("offset").desc())
    latest = rows.withColumn("rank", F.row_number().over(newest)).where("rank = 1").drop("rank")
    # Deleted rows stay, marked, so that a change that comes again cannot revive them.
    latest.write.mode("overwrite").parquet(str(folder(table, batch_id)))
    for old in before[: 1 - KEPT]:
        shutil.rmtree(folder(table, old))


def folder(table: Path, version: int) -> Path:
    return table / f"version={version}"


def versions(table: Path) -> list[int]:
    """Return the versions that were written to the end."""
    return sorted(
        int(each.parent.name.partition("=")[2]) for each in table.glob("version=*/_SUCCESS")
    )
