"""A node to count on: see `tests.unit.harness`."""

from tests.unit.harness import cold_files, harness

__all__ = ["cold_files", "harness"]
