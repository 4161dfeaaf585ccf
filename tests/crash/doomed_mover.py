"""A node that dies when it has applied the phase of a migration that it is told.

python -m tests.crash.doomed_mover FILE up --data ...

The node ends itself with SIGKILL as soon as it has applied the checkpoint of the phase that FILE
names, which may be written at any time; FILE is removed before, so that the next life lives on.
"""

import os
import signal
import sys
from pathlib import Path

from headrace.cli.program import headrace
from headrace.metadata.applier import Outcome
from headrace.metadata.events import MigrationAdvanced
from headrace.node.node import Node


def prepare(doom: Path) -> None:
    """Look at every phase that this node applies."""
    on_outcome = Node._on_outcome

    def watch(self: Node, outcome: Outcome) -> None:
        for event in outcome.events:
            if isinstance(event, MigrationAdvanced):
                try:
                    phase = doom.read_text()
                except FileNotFoundError:
                    continue
                if phase == event.phase.value:
                    doom.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
        on_outcome(self, outcome)

    Node._on_outcome = watch  # type: ignore[method-assign]


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
    headrace(sys.argv[2:], prog_name="headrace")
