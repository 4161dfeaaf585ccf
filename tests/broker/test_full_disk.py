"""A node whose disk has no room for its metadata log, as its clients see it."""

import errno
import os
import time
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.config import RAFT_FULL_DISK_RETRY_MS_MAX
from headrace.errors import ErrorCode
from headrace.log.real_disk import RealFile
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
