"""Classic groups, by scripts: a command, `----`, and everything that follows from it."""

from pathlib import Path

import pytest

from tests.scripts.groups_script import ScriptedGroup

FOLDER = Path(__file__).parent / "groups"
SCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, pytestconfig: pytest.Config) -> None:
    written = path.read_text()
    played = play(written)
    if pytestconfig.getoption("--rewrite", default=False):
        path.write_text(played)
    else:
        assert played == written, f"{path}: see --rewrite"


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 15


def play(text: str) -> str:
    """Give the script with the outputs that its commands have now."""
    group = ScriptedGroup()
    blocks: list[str] = []
    for block in text.strip().split("\n\n"):
        lines = block.split("----")[0].splitlines()
        commands = [line for line in lines if line and not line.startswith("#")]
        if not commands:
            blocks.append("\n".join(lines))
            continue
        output = [line for command in commands for line in group.run(command)]
        blocks.append("\n".join([*lines, "----", *(output or ["ok"])]))
    return "\n\n".join(blocks) + "\n"
