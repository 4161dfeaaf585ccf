"""Running the jobs whose driver is killed where they are told: `share_job` and `sink_job`."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.spark.queries import NOT_STARTED, STARTS_MAX

NEVER = "never"
RUN_SECONDS_MAX = 300


def run_job(name: str, bootstrap: str, folder: Path, batch: int, step: str) -> None:
    """Run a job until it dies at a step of a batch, or to its end with NEVER.

    It goes on from its checkpoint if Spark's Python could not come up; see `queries.run`.
    """
    expected = 0 if step == NEVER else -signal.SIGKILL
    for attempt in range(1, STARTS_MAX + 1):
        done = subprocess.run(
            [sys.executable, "-m", f"tests.spark.{name}", bootstrap, str(folder), str(batch), step],
            capture_output=True,
            text=True,
            timeout=2 * RUN_SECONDS_MAX,
            check=False,
        )
        if done.returncode == expected:
            return
        said = done.stdout[-2000:] + done.stderr[-4000:]
        assert NOT_STARTED in done.stdout + done.stderr, said
        assert attempt < STARTS_MAX, said
