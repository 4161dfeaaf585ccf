"""A node whose disk has no room, for its metadata log or for records, as its clients see it."""

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.config import RAFT_FULL_DISK_RETRY_MS_MAX
from headrace.errors import ErrorCode
from headrace.log.real_disk import RealDisk, RealFile
from headrace.metadata.quorum import FOLDER
from headrace.raft.errors import DiskFull
from headrace.testing.broker import TestBroker

WAIT_SECONDS_MAX = RAFT_FULL_DISK_RETRY_MS_MAX.default / 1000 + 20


class Room:
    """Whether appends to the metadata log find any."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.is_there = True
        real = RealFile.append

        def append(file: RealFile, data: Any) -> None:
            if not self.is_there and file.path.startswith(FOLDER):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
            real(file, data)

        patch.setattr(RealFile, "append", append)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    return Room(monkeypatch)


def refusal(admin: AdminClient, topic: str) -> Any:
    """Give what an attempt to create a topic is answered, None if it was created."""
    try:
        admin.create_topics([NewTopic(topic, 1)], request_timeout=20)[topic].result(30)
    except KafkaException as error:
        return error.args[0]
    return None


async def explain(broker: TestBroker) -> str:
    return broker.node.broker.quorum.explain()[0]


def test_a_full_disk_refuses_topics_serves_records_and_passes(
    headrace: TestBroker, room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    headrace.create_topic("orders")
    headrace.produce("orders", "before")  # so that there is a block of producer ids
    admin = AdminClient({"bootstrap.servers": headrace.bootstrap})
    room.is_there = False
    first = refusal(admin, "first")
    assert first.code() == ErrorCode.REQUEST_TIMED_OUT, "it may be made yet"
    later = refusal(admin, "later")
    assert later.code() == ErrorCode.KAFKA_STORAGE_ERROR
    for error in (first, later):
        assert "no room for its metadata log: [Errno 28] No space left on device" in error.str()
    assert "Node 1 has no room for its log" in headrace.run(explain(headrace))
    headrace.produce("orders", "while")
    assert [record.value for record in headrace.consume("orders")] == [b"before", b"while"]
    assert set(admin.list_topics(timeout=20).topics) == {"orders"}
    assert sum("has no room" in line for line in caplog.messages) == 1, "not for every attempt"

    room.is_there = True
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while (error := refusal(admin, "later")) is not None:
        assert error.code() == ErrorCode.KAFKA_STORAGE_ERROR
        assert time.monotonic() < deadline
    assert set(admin.list_topics(timeout=20).topics) == {"orders", "first", "later"}


def test_a_node_without_room_does_not_start_and_says_why(headrace: TestBroker, room: Room) -> None:
    headrace.create_topic("orders")
    headrace.produce("orders", "one")
    headrace.crash()
    room.is_there = False
    with pytest.raises(DiskFull, match=r"No space left on device.*free some space"):
        headrace.start()
    room.is_there = True
    headrace.start()
    assert [record.value for record in headrace.consume("orders")] == [b"one"]


class SmallDisk:
    """A disk that has room for so many bytes of one partition's files."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, bytes_max: int) -> None:
        self._folder, self._bytes_max = folder, bytes_max
        append = RealFile.append

        def append_what_fits(file: RealFile, data: Any) -> None:
            if file.path.startswith(folder.name) and len(data) > self.free_bytes():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
            append(file, data)

        patch.setattr(RealFile, "append", append_what_fits)
        patch.setattr(RealDisk, "free_bytes", lambda _: self.free_bytes())

    def free_bytes(self) -> int:
        return self._bytes_max - sum(path.stat().st_size for path in self._folder.iterdir())


def test_a_full_disk_has_room_again_once_retention_has_deleted_what_is_old(
    headrace: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = {"segment.bytes": "1048576", "retention.ms": "60000", "file.delete.delay.ms": "0"}
    headrace.create_topic("orders", configs=configs)
    headrace.produce("orders", "first")
    SmallDisk(monkeypatch, headrace.folder / "orders-0", 4_000_000)
    producer = Producer({"bootstrap.servers": headrace.bootstrap, "acks": "all", "retries": 0})
    errors: list[Any] = []
    for _ in range(8):
        producer.produce(
            "orders", bytes(700_000), on_delivery=lambda error, _: errors.append(error)
        )
        producer.flush(WAIT_SECONDS_MAX)
    assert errors[0] is None
    assert errors[-1].code() == ErrorCode.KAFKA_STORAGE_ERROR
    headrace.clock.advance(3_600_000)
    headrace.produce("orders", "an hour later")
    assert [record.value for record in headrace.consume("orders")] == [b"an hour later"]
