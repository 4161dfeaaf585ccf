"""Spark for topics and queues: `format("headrace")` and `format("headrace-share")`, no jar.

    from headrace import spark

    session = spark.session()
    session.read.format("headrace").option("kafka.bootstrap.servers", "127.0.0.1:9092")
        .option("subscribe", "orders").load().show()

`session` gives a local session that is ready; `register` adds the sources to your own; `reject`
refuses records of a queue. Needs `pip install 'headrace[spark]'`. See docs/spark.md.
"""

from headrace.spark.session import register, session
from headrace.spark.share.rejections import reject

__all__ = ["register", "reject", "session"]
