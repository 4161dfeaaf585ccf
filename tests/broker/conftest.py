"""Brokers in the tests' own process, by the fixtures that users have."""

from headrace.testing.plugin import headrace, headrace_module, headrace_settings

__all__ = ["headrace", "headrace_module", "headrace_settings"]
