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


def test_a_log_whose_topic_cannot_be_written_down_is_served_when_the_disk_has_room(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a crash on a full disk leaves it: the log is there, the file with the topic's id empty."""
    monkeypatch.setattr(replicas, "RETRY_SECONDS", 0.01)
    harness.create_topic("orders", partitions=3)
    folder = harness.broker.folder
    del folder.topic_ids["orders", 1]
    harness.broker.replicas._withdraw("orders", harness.broker.image.topic("orders").topic_id, 1)
    save_topic_id, refusals = folder.save_topic_id, [2]

    def refuse_twice(key: Any, topic_id: Any) -> None:
        if refusals[0]:
            refusals[0] -= 1
            raise OSError(errno.ENOSPC, "no space left")
        save_topic_id(key, topic_id)

    monkeypatch.setattr(folder, "save_topic_id", refuse_twice)

    async def settle() -> None:
        harness.broker.replicas.mark_all()
        await harness.broker.replicas.settle()
        assert len(harness.broker.replicas) == 2, "the others do not wait for it"
        async with asyncio.timeout(10):
            while len(harness.broker.replicas) < 3:
                await asyncio.sleep(0.01)  # polls, up to the deadline

    harness.run(settle())
    assert refusals == [0]


@pytest.mark.slow
def test_a_thousand_partitions_are_led_also_after_a_restart(harness: Any) -> None:
    harness.create_topic("many", partitions=1000)
    assert len(harness.broker.replicas) == 1000
    harness.restart()
    assert len(harness.broker.replicas) == 1000
