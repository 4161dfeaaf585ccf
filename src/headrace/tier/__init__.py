"""Tiered storage (KIP-405): what a broker copies to an object store, expires there and reads back.

`remote` has the objects and their descriptions, which tools and Spark read too.
"""
