"""Stores that processes of Spark keep open until they end."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from headrace.remote.store_options import StoreOptions
from headrace.spark.tier.stores import store_of
blocking = store_of(sys.argv[1], StoreOptions())
blocking.run(blocking.store.put("a", b"1", 1))
"""


@pytest.mark.slow
def test_a_process_that_ends_with_an_open_folder_says_nothing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ended.stderr == ""
    assert (tmp_path / "a").read_bytes() == b"1"
