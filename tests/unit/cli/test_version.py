"""`headrace version`."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from headrace import __version__
from headrace.cli.program import headrace


def run(*arguments: str, pure: str) -> str:
    program = "from headrace.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "HEADRACE_PURE": pure},
    )
    return done.stdout


@pytest.mark.parametrize(
    ("pure", "mode"), [("0", "compiled"), ("1", "uncompiled (HEADRACE_PURE=1)")]
)
@pytest.mark.slow
def test_version_says_how_hot_code_runs(pure: str, mode: str) -> None:
    facts = json.loads(run("version", "--json", pure=pure))
    assert facts["headrace"] == __version__
    assert facts["kafka_protocol"] == "4.3.1"
    assert facts["hot_code"] == mode
    assert mode in run("version", pure=pure)


def test_the_version_is_also_an_option_as_in_other_programs() -> None:
    done = CliRunner().invoke(headrace, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"headrace {__version__}\n")
