"""Queues as streams: `format("headrace-share")`, a share group (KIP-932) read by Spark.

    spark.readStream.format("headrace-share").option("kafka.bootstrap.servers", "127.0.0.1:9092")
        .option("subscribe", "orders").option("kafka.group.id", "billing").load()

A process of the driver is one member of the group. It leases records (`leasing`), writes down in
Spark's offset log which these are (`journal`), and tasks read them by their offsets (`tasks`,
`reading`). They are accepted when the batch is durable (`progress`), or rejected (`rejections`).
Pure are `journal`, `debts` and `tasks`.
"""
