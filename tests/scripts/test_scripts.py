"""Machines by scripts: a command, `----`, and everything that follows from it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from tests.scripts.groups_script import ScriptedGroup
from tests.scripts.raft_script import ScriptedQuorum
from tests.scripts.share_groups_script import ScriptedShareGroup
from tests.scripts.txn_script import scripted_transactions


class Scripted(Protocol):
    """The world of one script."""

    def run(self, command: str) -> list[str]:
        """Do a command; give lines that say all that came of it."""


class Kind(NamedTuple):
    """What the scripts of a folder are about."""

    world: Callable[[], AbstractContextManager[Scripted]]
    count_min: int


KINDS = {
    "groups": Kind(lambda: nullcontext(ScriptedGroup()), 35),
    "raft": Kind(lambda: nullcontext(ScriptedQuorum()), 60),
    "share_groups": Kind(lambda: nullcontext(ScriptedShareGroup()), 7),
    "txn": Kind(scripted_transactions, 12),
}
FOLDER = Path(__file__).parent
SCRIPTS = [path for kind in KINDS for path in sorted((FOLDER / kind).glob("*.txt"))]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_script(path: Path, pytestconfig: pytest.Config) -> None:
    written = path.read_text()
    with KINDS[path.parent.name].world() as world:
        played = play(written, world)
    if pytestconfig.getoption("--rewrite", default=False):
        path.write_text(played)
    else:
        assert played == written, f"{path}: see --rewrite"


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_scripts(kind: str) -> None:
    assert sum(path.parent.name == kind for path in SCRIPTS) >= KINDS[kind].count_min


def play(text: str, world: Scripted) -> str:
    """Give the script with the outputs that its commands have now."""
    blocks: list[str] = []
    for block in text.strip().split("\n\n"):
        lines = block.split("----")[0].splitlines()
        commands = [line for line in lines if line and not line.startswith("#")]
        if not commands:
            blocks.append("\n".join(lines))
            continue
        output = [line for command in commands for line in world.run(command)]
        blocks.append("\n".join([*lines, "----", *(output or ["ok"])]))
    return "\n\n".join(blocks) + "\n"
