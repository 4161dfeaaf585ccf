"""A node to count on: see `tests.unit.broker.conftest`."""

from tests.unit.broker.conftest import cold_files, harness

__all__ = ["cold_files", "harness"]
