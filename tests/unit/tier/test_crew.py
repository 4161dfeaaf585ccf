"""Work on many partitions: how many at a time, errors, and its end."""

import asyncio
from typing import Any

import pytest

from headrace.remote.store import StoreError
from headrace.testing.virtual_loop import run_virtual
from headrace.tier.backoff import Backoff
from headrace.tier.crew import Crew


class Place:
    """A partition, as far as a crew looks."""

    def __init__(self, name: str = "orders-0") -> None:
        self.name = name
        self.is_stopped = False


class Work:
    """Counts what is done; each takes a second."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.running = self.running_max = self.done = 0

    async def __call__(self, place: Any) -> None:
        self.running += 1
        self.running_max = max(self.running, self.running_max)
        try:
            await asyncio.sleep(1)
            if self.errors:
                raise self.errors.pop(0)
            self.done += 1
        finally:
            self.running -= 1


def crew_of(work: Work, limit: list[int]) -> Any:
    return Crew(
        "work",
        work,
        limit=lambda: limit[0],
        backoff=Backoff(100, 10_000, 0.2),
        chance=lambda: 0.5,
    )


def test_as_many_as_allowed_work_at_a_time_and_the_limit_may_change() -> None:
    async def main() -> None:
        work, limit = Work(), [2]
        crew = crew_of(work, limit)
        for _ in range(12):
            crew.call(Place())
        await asyncio.sleep(1.5)
        assert (work.done, work.running_max) == (2, 2)
        limit[0] = 5
        await asyncio.sleep(10)
        assert (work.done, work.running_max) == (12, 5)

    run_virtual(main())


def test_a_partition_is_worked_on_once_at_a_time() -> None:
    async def main() -> None:
        work, place = Work(), Place()
        crew = crew_of(work, [5])
        for _ in range(3):
            crew.call(place)
        await asyncio.sleep(10)
        assert (work.done, work.running_max) == (1, 1)
        crew.call(place)
        await asyncio.sleep(10)
        assert work.done == 2

    run_virtual(main())


def test_after_errors_there_is_a_rest_that_gets_longer(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        work, place = Work(), Place()
        crew = crew_of(work, [5])
        work.errors = [StoreError("away") for _ in range(4)]
        crew.call(place)
        await asyncio.sleep(1.05)
        assert crew.error_of(place) == "away"
        crew.call(place)  # it rests
        assert work.running == 0
        await asyncio.sleep(4 + 0.1 + 0.2 + 0.4)
        assert work.done == 0
        await asyncio.sleep(1)
        assert work.done == 1
        assert crew.error_of(place) is None
        assert crew.failures == 4

    run_virtual(main())
    failed = [each for each in caplog.records if "failed" in each.getMessage()]
    assert len(failed) == 1


def test_who_leaves_is_waited_for_and_forgotten() -> None:
    async def main() -> None:
        work, place = Work(), Place()
        crew = crew_of(work, [1])
        crew.call(place)
        other = Place()
        crew.call(other)
        await asyncio.sleep(0.1)
        work.errors = [StoreError("away")]
        place.is_stopped = True
        await crew.dismiss(place)
        assert place not in crew.partitions()
        assert crew.error_of(place) is None
        await crew.dismiss(other)
        await asyncio.sleep(10)
        assert work.running == 0

    run_virtual(main())


def test_a_stop_cancels_what_is_under_way() -> None:
    async def main() -> None:
        work = Work()
        crew = crew_of(work, [1])
        crew.call(Place())
        crew.call(Place())
        await asyncio.sleep(0.1)
        await crew.stop()
        crew.call(Place())
        await asyncio.sleep(10)
        assert (work.done, work.running) == (0, 0)

    run_virtual(main())
