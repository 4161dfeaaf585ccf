"""A node without clients, and brokers beside it that are in the metadata only."""

from tests.unit.brokers import fence, place, register
from tests.unit.harness import cold_files, harness

__all__ = ["cold_files", "fence", "harness", "place", "register"]
