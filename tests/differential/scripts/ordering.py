"""Requests of one write, in which each shows what those before it did: one connection, one order.

Kafka reads a connection's next request when it has answered the last. The pairs of which Kafka's
answers depend on chance are left out here; tests/broker/test_request_order.py plays all of them.
"""

from typing import Final

from tests.differential.pairs import (
    groups,
    quotas,
    records,
    shares,
    telemetry,
    topics,
    transactions,
    users,
)

PAIRS: Final = (
    *records.PAIRS,
    *topics.PAIRS,
    *groups.PAIRS,
    *shares.PAIRS,
    *transactions.PAIRS,
    *telemetry.PAIRS,
    *users.PAIRS,
    *quotas.PAIRS,
)
"""Every mutating request that is served with requests that show its effect."""

SCRIPTS = tuple(pair.script for pair in PAIRS if not pair.stale_in_kafka)
