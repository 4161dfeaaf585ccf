"""Topics as tables: a topic kept as an Iceberg, Delta or Parquet table by Spark.

    from headrace.spark.tables import administration, api

    administration.create_table(
        "127.0.0.1:9092", "orders_t", topic="orders", location="/data/lake"
    )
    api.run_table("127.0.0.1:9092", "orders_t", session)

`administration` creates, alters and drops, `api` runs what needs a session, `state` says how a
table is. Nothing is imported here: workers of Spark import this package, too. See docs/tables.md.
"""
