"""Writes docs/states.md: the state machines that a reader meets, drawn from their tables.

    python -m tools.state_diagrams

A test compares the page with what this would write.
"""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from headrace.groups.classic.group import TRANSITIONS as CLASSIC_GROUP
from headrace.groups.consumer.members import TRANSITIONS as CONSUMER_MEMBER
from headrace.share.durable import TRANSITIONS as SHARE_RECORD
from headrace.txn.state import TRANSITIONS as TRANSACTION

PAGE: Final = Path(__file__).parent.parent / "docs" / "states.md"
HEAD: Final = """# State machines

Written by `python -m tools.state_diagrams` from the tables in the code, which the machines check
every change against.
"""


class Machine(NamedTuple):
    """A machine, the module that has its table, and the table: where from, where to, why."""

    title: str
    module: str
    transitions: Mapping[Any, Mapping[Any, str]]


MACHINES: Final = (
    Machine("A record of a queue", "share/durable.py", SHARE_RECORD),
    Machine("A classic group", "groups/classic/group.py", CLASSIC_GROUP),
    Machine("A member of a consumer group", "groups/consumer/members.py", CONSUMER_MEMBER),
    Machine("A transaction", "txn/state.py", TRANSACTION),
)


def render() -> str:
    """Return the page."""
    return HEAD + "".join(_section(machine) for machine in MACHINES)


def _section(machine: Machine) -> str:
    first = next(iter(machine.transitions))
    lines = [f"\n## {machine.title}\n`{machine.module}`\n\n```mermaid\nstateDiagram-v2\n"]
    lines.append(f"  [*] --> {_name(first)}\n")
    for before, following in machine.transitions.items():
        lines += [
            f"  {_name(before)} --> {_name(after)}: {why}\n" for after, why in following.items()
        ]
        if not following:
            lines.append(f"  {_name(before)} --> [*]\n")
    return "".join(lines) + "```\n"


def _name(state: Enum) -> str:
    return "".join(word.capitalize() for word in state.name.split("_"))


if __name__ == "__main__":
    PAGE.write_text(render())
