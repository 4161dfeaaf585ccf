"""Two applications of Spark that work on one queue; one is killed, and the other takes over."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path

import pytest

from headrace.testing.broker import TestBroker
from tests.spark.fated_jobs import RUN_SECONDS_MAX
from tests.spark.lasting_job import GROUP, QUEUE, TOPIC
from tests.spark.queries import POLL_SECONDS
from tests.spark.share_queues import QUICK, SESSION, create_queue, lag

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.timeout(3 * RUN_SECONDS_MAX),
    pytest.mark.usefixtures("java"),
]


@pytest.fixture
def headrace_settings() -> Mapping[str, str]:
    return QUICK


class Application:
    """A driver of its own, with a query of the group."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._folder = folder
        (folder / "out").mkdir(parents=True)
        command = [sys.executable, "-m", "tests.spark.lasting_job", QUEUE, "local[1]"]
        with (folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [*command, bootstrap, str(folder)],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def seen(self) -> list[list[int]]:
        """What its batches had, in their order."""
        files = sorted((self._folder / "out").glob("*.json"), key=lambda path: int(path.stem))
        return [[int(value) for value in json.loads(file.read_text())] for file in files]

    def check(self) -> None:
        assert self._process.poll() is None, (self._folder / "output").read_text()[-4000:]

    def kill(self) -> None:
        """End every process of it at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def application(bootstrap: str, folder: Path) -> Iterator[Application]:
    started = Application(bootstrap, folder)
    try:
        yield started
    finally:
        started.kill()


def test_applications_share_a_queue_and_one_takes_over_when_the_other_is_killed(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.run(create_queue(headrace.bootstrap, TOPIC, GROUP, 2, **SESSION))
    produced = count()

    def produce() -> None:
        for partition in range(2):
            headrace.produce(TOPIC, str(next(produced)), partition=partition)

    with (
        application(headrace.bootstrap, tmp_path / "one") as one,
        application(headrace.bootstrap, tmp_path / "two") as two,
    ):

        def wait_until(is_so: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
            until = time.monotonic() + RUN_SECONDS_MAX
            while not is_so():
                assert time.monotonic() < until, (one.seen(), two.seen())
                two.check()
                meanwhile()
                time.sleep(POLL_SECONDS)  # polls, up to the deadline

        wait_until(lambda: bool(one.seen() and two.seen()), meanwhile=produce)
        wait_until(lambda: lag(headrace, GROUP) == 0, meanwhile=lambda: None)
        while_both_live = next(produced)
        assert sorted(chain(*one.seen(), *two.seen())) == list(range(while_both_live))

        batches = len(one.seen())
        wait_until(lambda: len(one.seen()) > batches, meanwhile=produce)
        one.kill()
        produce()
        wait_until(lambda: lag(headrace, GROUP) == 0, meanwhile=lambda: None)
        everything = sorted({*range(next(produced))} - {while_both_live})
        seen = sorted(chain(*one.seen(), *two.seen()))
    assert sorted(set(seen)) == everything
    twice = {number for number in seen if seen.count(number) > 1}
    assert twice <= set(one.seen()[-1]), "more was done twice than what the dead one had begun"
