import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark import python


def test_workers_take_sparks_code_from_where_it_is_installed(tmp_path: Path) -> None:
    launcher = tmp_path / "python"
    launcher.write_text(python.LAUNCHER.format(python=sys.executable))
    launcher.chmod(0o700)
    lib = "/spark/python/lib"
    given = [f"{lib}/pyspark.zip", "/of the/user", f"{lib}/py4j-0.10.9.9-src.zip", "/other*"]
    program = "import os, sys; print(os.environ['PYTHONPATH'], *sys.argv[1:], sep='|')"
    printed = subprocess.run(
        [launcher, "-c", program, "a b", ""],
        env={"PYTHONPATH": ":".join(given)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout == "/of the/user:/other*|a b|\n"


def test_workers_of_another_spark_keep_its_archives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert python.worker_python() == sys.executable


def test_where_launchers_cannot_be_written_workers_run_the_same_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "missing"))
    assert python.worker_python() == sys.executable


def test_where_launchers_cannot_be_run_workers_run_the_same_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert Path(python.worker_python()).is_relative_to(tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert python.worker_python() == sys.executable
