"""The control plane of a cluster as DataFrames, and as tables in SQL.

    from headrace.spark import session, system

    spark = session()
    system.frame(spark, "groups").where("lag > 1000").show()
    system.attach(spark)
    spark.sql("select group_id, lag from headrace.groups order by lag desc").show()

`frames` is the catalogue, `collecting` asks the cluster. Every frame works with Headrace; those
that do not need its HTTP pages work with any Kafka cluster. See docs/spark.md.
"""

from headrace.spark.system.frames import FRAMES
from headrace.spark.system.sql import attach, frame

__all__ = ["FRAMES", "attach", "frame"]
