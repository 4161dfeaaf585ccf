"""Dead-letter topics: how tests name them, and what they find there."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from headrace.config.group_configs import SHARE_DEAD_LETTER_COPY, SHARE_DEAD_LETTER_TOPIC
from headrace.ids import TopicId
from headrace.metadata.ddl import SetConfigs
from headrace.metadata.state import ResourceType
from headrace.records.header import read_headers
from headrace.records.reader import read_records
from headrace.records.record import Record
from tests.unit.harness import Harness
from tests.unit.share.share_client import Member, append, finished_up_to, initialize

LETTERS = "dlq.orders"
POLL_SECONDS_MAX = 20


class Letter(NamedTuple):
    """A dead letter, as a consumer would see it."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]


def name_topic(harness: Harness, name: str = LETTERS, *, has_copy: bool = True) -> None:
    values: dict[str, str | None] = {
        SHARE_DEAD_LETTER_TOPIC.name: name,
        SHARE_DEAD_LETTER_COPY.name: str(has_copy).lower(),
    }
    harness.run(harness.broker.quorum.propose(SetConfigs(ResourceType.GROUP, "group", values)))


def begin(harness: Harness, topic_id: TopicId, *values: bytes) -> Member:
    """Give a member that holds records which were appended before."""
    initialize(harness, topic_id, 0, start_offset=0)
    append(harness, *values)
    member = Member(harness, topic_id)
    member.fetch(0, max_wait_ms=5000)
    return member


def log_of(harness: Harness, topic: str, index: int = 0) -> list[Record]:
    if not harness.has_partition(topic, index):
        return []
    log = harness.partition(topic, index).log
    data = log.read(log.start_offset, 1 << 24, up_to=log.high_watermark, may_block=True)
    assert data is not None
    return [
        record
        for position, header in read_headers(data)
        for record in read_records(data[position : position + header.size_bytes], header)
    ]


def letters(harness: Harness, count: int, topic: str = LETTERS, index: int = 0) -> list[Letter]:
    """Wait until there are so many letters; give them."""
    wait_until(harness, lambda: len(log_of(harness, topic, index)) >= count)
    found = log_of(harness, topic, index)
    assert len(found) == count
    return [Letter(each.key, each.value, dict(each.headers)) for each in found]


def wait_until(harness: Harness, is_so: Callable[[], bool]) -> None:
    async def poll() -> None:
        async with asyncio.timeout(POLL_SECONDS_MAX):
            while not is_so():
                await asyncio.sleep(0.01)

    harness.run(poll())


def wait_until_finished(harness: Harness, topic_id: TopicId, offset: int) -> None:
    """Wait until everything before an offset is durably finished."""
    for _ in range(POLL_SECONDS_MAX * 20):
        if finished_up_to(harness, topic_id) >= offset:
            return
        harness.run(asyncio.sleep(0.05))
    raise AssertionError(f"finished up to {finished_up_to(harness, topic_id)}, not {offset}")


def crash(harness: Harness) -> None:
    """End the node as a killed process ends, and start another on its files."""
    harness.node.crash()
    for task in asyncio.all_tasks(harness._runner.get_loop()):
        task.cancel()
    harness._runner.close()
    harness._runner = asyncio.Runner()
    harness.start()
