"""What a session has played, as a table for people."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.roles import ROLES


class Played(NamedTuple):
    fault: str
    role: str
    load: str
    is_passed: bool
    idle_seconds: float
    """How long after its end the load did not go on everywhere."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    played = [
        Played(
            properties["fault"],
            properties["role"],
            properties["load"],
            report.passed,
            properties.get("idle_seconds", float("inf")),
        )
        for reports in terminalreporter.stats.values()
        for report in reports
        if "fault" in (properties := dict(getattr(report, "user_properties", ())))
        and report.when == "call"
        and not report.skipped
    ]
    if played:
        terminalreporter.section("passed of played")
        for line in table(played):
            terminalreporter.write_line(line)


def table(played: list[Played]) -> Iterator[str]:
    """Return rows of faults and columns of roles, then a line per load."""
    yield "| fault | " + " | ".join(role.name for role in ROLES) + " | idle after it, at most |"
    yield "| --- " * (len(ROLES) + 2) + "|"
    for fault in FAULTS:
        rows = [row for row in played if row.fault == fault.name]
        if rows:
            cells = [count([row for row in rows if row.role == role.name]) for role in ROLES]
            idle = max(row.idle_seconds for row in rows)
            yield f"| {fault.name} | " + " | ".join(cells) + f" | {idle:.1f} s |"
    for load in sorted({row.load for row in played}):
        yield f"{load}: {count([row for row in played if row.load == load])}"


def count(rows: list[Any]) -> str:
    return f"{sum(row.is_passed for row in rows)} of {len(rows)}" if rows else ""
