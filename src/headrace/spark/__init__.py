"""Spark for topics, queues and the tier, no jar.

    from headrace import spark

    session = spark.session()
    session.read.format("headrace").option("kafka.bootstrap.servers", "127.0.0.1:9092")
        .option("subscribe", "orders").load().show()

The formats are "headrace", "headrace-share", "headrace-tier", "headrace-table" and
"headrace-system"; the package `system` has the last one as DataFrames and as tables in SQL.

`session` gives a local session that is ready; `register` adds the sources to your own; `reject`
refuses records of a queue. Needs `pip install 'headrace[spark]'`. See docs/spark.md.
"""

from headrace.spark.session import register, session
from headrace.spark.share.rejections import reject

__all__ = ["register", "reject", "session"]
