"""A node without clients, and brokers beside it that are in the metadata only."""

from tests.unit.brokers import place, register
from tests.unit.harness import cold_files, harness

__all__ = ["cold_files", "harness", "place", "register"]
