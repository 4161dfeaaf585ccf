"""The transactions of a producer (KIP-98, KIP-447, KIP-890).

`states` is the state table (pure), `requests` the requests to coordinators, `producer` combines
both, `transaction` is the context manager for users.
"""
