"""The format "headrace-tier": topics read from the object store, without a broker.

Brokers copy old segments to the store (docs/tier.md). The driver plans from their descriptions,
tasks read the objects themselves, and a lease keeps deletion away meanwhile.
"""
