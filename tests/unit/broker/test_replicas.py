"""Partitions are what the image says, also when the disk did not want them at first."""

import asyncio
import errno
from typing import Any

import pytest

from headrace.broker import replicas


def test_a_partition_that_the_disk_refused_is_set_up_when_it_has_room(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "RETRY_SECONDS", 0.01)
    folder = harness.broker.folder
    begin_all, refusals = folder.begin_all, [2]

    def refuse_twice(asked: Any) -> Any:
        logs = begin_all(asked)  # the files are left behind, as a disk that fills up leaves them
        if refusals[0]:
            refusals[0] -= 1
            raise OSError(errno.ENOSPC, "no space left")
        return logs

    monkeypatch.setattr(folder, "begin_all", refuse_twice)
    harness.create_topic("orders", partitions=3)

    async def wait() -> None:
        async with asyncio.timeout(10):
            while len(harness.broker.replicas) < 3:
                await asyncio.sleep(0.01)  # polls, up to the deadline

    harness.run(wait())
    assert refusals == [0]
    assert all(partition.is_leader for partition in harness.broker.replicas)


@pytest.mark.slow
def test_a_thousand_partitions_are_led_also_after_a_restart(harness: Any) -> None:
    harness.create_topic("many", partitions=1000)
    assert len(harness.broker.replicas) == 1000
    harness.restart()
    assert len(harness.broker.replicas) == 1000
