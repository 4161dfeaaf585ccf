"""What is in the tier and how it is laid out there: for brokers, for tools and for Spark.

Nothing here knows a broker. `tier` has what a broker does with it.
"""
