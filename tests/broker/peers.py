"""What a test sees of a broker from outside: its memory, and whether others are served."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.testing.broker import TestBroker
from headrace.wire import ApiKey
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.list_offsets_response import ListOffsetsResponse
from headrace.wire.schema import Message
from tests.differential.connection import Connection, Ending

DEADLINE_SECONDS: Final = 60
PAGE_BYTES: Final = 4096
MIB: Final = 1024 * 1024
END: Final = -1


def ask(address: str, request: Message, version: int) -> Message:
    """The answer to one request on a connection of its own."""
    with Connection(address) as connection:
        return ask_on(connection, request, version)


def ask_on(connection: Connection, request: Message, version: int) -> Message:
    connection.send(request, version)
    answer = connection.answer(type(request), version)
    assert not isinstance(answer, Ending), answer
    return answer[1]


def is_served(address: str, topic: str) -> bool:
    """Whether a client that does everything right gets its answer."""
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=END)]
    topics = [ListOffsetsTopic(name=topic, partitions=partitions)]
    answer = ask(address, ListOffsetsRequest(replica_id=-1, topics=topics), 5)
    assert isinstance(answer, ListOffsetsResponse)
    return answer.topics[0].partitions[0].error_code == 0


def memory_bytes() -> int:
    """What this process, broker included, has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Poll until the condition holds; AssertionError after the deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"in {DEADLINE_SECONDS} s it did not happen: {what}"
        time.sleep(0.005)  # polls, up to the deadline


def wait_for_requests(broker: TestBroker, api: ApiKey) -> None:
    """Wait until a request of an API waits for its answer."""

    def is_waiting() -> bool:
        return any(
            request.api_key == api
            for connection in tuple(broker.node.traffic.connections)
            for request in tuple(connection._waiting)
        )

    wait_until(is_waiting, f"{api.name} waits")


def from_start(topic: str, *, max_wait_ms: int) -> FetchRequest:
    """A fetch of a topic's first partition that waits for a record."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
