"""What docs/cli.md shows works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli import COMMANDS

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.mark.slow
@pytest.mark.timeout(600)  # thirty processes one after the other
def test_the_examples_run_one_after_the_other(bootstrap: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```console\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    commands = re.findall(r"^\$ (.*)$", "".join(blocks), flags=re.MULTILINE)
    assert len(commands) > 20
    script = "\n".join(
        [
            "set -e -o pipefail",
            f'headrace() {{ "{sys.executable}" -m headrace "$@"; }}',
            "for name in orders payments; do headrace topics delete --if-exists $name; done",
            "set -x",
            *commands,
        ]
    )
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env={**os.environ, "HEADRACE_BOOTSTRAP": bootstrap},
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "headrace: " not in done.stderr


def test_every_command_is_on_the_page() -> None:
    text = DOCS.read_text()
    assert all(f"`headrace {command}" in text for command in COMMANDS)
