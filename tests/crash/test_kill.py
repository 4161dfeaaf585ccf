"""A process that is killed while it appends: what it was told to be flushed is there."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from headrace.log.real_disk import RealDisk
from tests.crash.killed_writer import open_after_kill, value_at
from tests.unit.log.logs import records_of

SEED = 4
ANSWER_SECONDS_MAX = 60


@pytest.mark.parametrize("kills", [12, pytest.param(50, marks=pytest.mark.exhaustive)])
def test_what_was_acknowledged_survives_kills(tmp_path: Path, kills: int) -> None:
    """Each life opens what the one before left, and goes on from there."""
    random = Random(SEED)
    acknowledged = 0
    for life in range(kills):
        acknowledged = max(acknowledged, _run_and_kill(tmp_path, 1 + random.randrange(25)))
        log = open_after_kill(RealDisk(tmp_path))
        assert log.end_offset >= acknowledged, f"life {life} of seed {SEED}"
    records = records_of(log, bytes_max=1 << 20)
    assert len(records) == log.end_offset
    for record in records:
        assert record.value == value_at(record.offset)
    assert len(log.segments) > 3
    state = log.producers.get(1)
    assert state is not None
    assert state.last_sequence == log.end_offset - 1


def _run_and_kill(folder: Path, answers: int) -> int:
    """Let a writer answer so often, kill it in whatever it does next; give its last answer."""
    reading, writing = os.pipe()
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.killed_writer", str(folder), str(writing)],
        pass_fds=[writing],
    )
    os.close(writing)
    waiting = select.poll()
    waiting.register(reading, select.POLLIN)
    answered = b""
    try:
        while answered.count(b"\n") < answers:
            assert waiting.poll(1000 * ANSWER_SECONDS_MAX), "the writer is stuck"
            chunk = os.read(reading, 4096)
            assert chunk, "the writer ended by itself"
            answered += chunk
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        while chunk := os.read(reading, 4096):
            answered += chunk
        os.close(reading)
    return int(answered.split(b"\n")[-2])
