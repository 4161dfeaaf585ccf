"""What docs/cli.md and the README show works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli import COMMANDS
from headrace.testing.broker import TestBroker
from headrace.web.server import WebServer

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
README = Path(__file__).parents[2] / "README.md"
ELSEWHERE = ("make ", "headrace up ", "headrace table ", ". ")
"""What other tests run: it installs, does not end, or needs Spark."""


@pytest.mark.slow
@pytest.mark.timeout(600)  # thirty processes one after the other
def test_the_examples_run_one_after_the_other(bootstrap: str, tmp_path: Path) -> None:
    commands = commands_of(DOCS)
    assert len(commands) > 20
    before = "for name in orders payments; do headrace topics delete --if-exists $name; done"
    done = run([before, *commands], tmp_path, HEADRACE_BOOTSTRAP=bootstrap)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "headrace: " not in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)  # ten processes one after the other
def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    commands = [each for each in commands_of(README) if not each.startswith(ELSEWHERE)]
    tier = {
        "remote.log.storage.system.enable": "true",
        "headrace.tier.store": f"file://{tmp_path}/store",
    }
    with TestBroker(tmp_path / "data", {**tier, "http.listen": "127.0.0.1:0"}) as broker:
        pages = WebServer(broker.node)
        broker.run(pages.start())
        done = run(
            commands,
            tmp_path,
            HEADRACE_BOOTSTRAP=broker.bootstrap,
            HEADRACE_NODE=broker.node.cluster.address,
        )
        broker.run(pages.stop())
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "headrace: " not in done.stderr
    assert "customer-7=one" in done.stdout


def commands_of(page: Path) -> list[str]:
    """Return the commands that a page shows."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), flags=re.DOTALL)
    return re.findall(r"^\$ (.*)$", "".join(blocks), flags=re.MULTILINE)


def run(
    commands: list[str], folder: Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run commands in one shell, up to the first that fails."""
    script = "\n".join(
        [
            "set -e -o pipefail",
            f'headrace() {{ "{sys.executable}" -m headrace "$@"; }}',
            "set -x",
            *commands,
        ]
    )
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env={**os.environ, **environment},
    )


def test_every_command_is_on_the_page() -> None:
    text = DOCS.read_text()
    assert all(f"`headrace {command}" in text for command in COMMANDS)
