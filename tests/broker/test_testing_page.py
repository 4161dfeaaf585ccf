"""The examples of docs/testing.md run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
FIXTURES = "from headrace.testing.plugin import *\n"
SPARK = "from headrace import spark"


def run(folder: Path, example: str) -> str:
    """What pytest says of an example in a project of its own."""
    (folder / "conftest.py").write_text(FIXTURES)
    (folder / "test_example.py").write_text(example)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "example", [each for each in EXAMPLES if "def test_" in each and SPARK not in each]
)
def test_an_example_passes(example: str, tmp_path: Path) -> None:
    output = run(tmp_path, example)
    assert "1 passed" in output, output


@pytest.mark.exhaustive
@pytest.mark.timeout(300)  # a JVM starts on what may be a busy machine
@pytest.mark.parametrize("example", [each for each in EXAMPLES if SPARK in each])
def test_the_example_with_spark_passes(example: str, tmp_path: Path) -> None:
    output = run(tmp_path, example)
    assert "1 passed" in output, output


@pytest.mark.parametrize("example", [each for each in EXAMPLES if "def test_" not in each])
def test_a_snippet_runs(example: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_page_has_its_three_clients() -> None:
    text = "".join(EXAMPLES)
    assert all(name in text for name in ("confluent_kafka", "aiokafka", SPARK))
