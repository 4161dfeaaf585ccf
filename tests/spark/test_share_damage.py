"""Records of a queue that nobody can read: they end the query, or they are rejected."""

import logging
import time
from collections.abc import Mapping

import pytest

from headrace.client.share.dead_letters import DeadLetter
from headrace.errors import KafkaError
from headrace.records.header import HEADER_BYTES, read_headers
from headrace.spark.reading import UnreadableRecords
from headrace.testing.broker import TestBroker
from tests.spark.share_queues import (
    QUICK,
    Offset,
    lag,
    make_queue,
    read,
    share_reader,
    step,
    stored,
    values,
)

pytestmark = pytest.mark.slow
MAGIC_AT = 16
DEADLINE_SECONDS = 30


@pytest.fixture(scope="module")
def headrace_settings() -> Mapping[str, str]:
    return QUICK


def damage(broker: TestBroker, topic: str, batch: int, at: int) -> None:
    """Turn a byte of a batch on disk round."""
    (segment,) = broker.folder.glob(f"{topic}-0/*.log")
    written = segment.read_bytes()
    position, _ = list(read_headers(written))[batch]
    with segment.open("r+b") as file:
        file.seek(position + at)
        file.write(bytes([written[position + at] ^ 0xFF]))


def lease_damaged(broker: TestBroker, topic: str, group: str, at: int) -> tuple[Offset, Offset]:
    """Journal a batch of four record batches, the second of which is damaged then."""
    for value in ("a", "b", "c", "d"):
        broker.produce(topic, value)
    with share_reader(broker, topic, group) as reader:
        start = stored(reader.initialOffset())
        end = stored(reader.latestOffset(start, reader.getDefaultReadLimit()))
    damage(broker, topic, 1, at)
    return start, end


def letters_of(broker: TestBroker, topic: str) -> list[tuple[str, int, str]]:
    """Give of which topic, offset and group the dead letters are."""
    try:
        found = map(DeadLetter.of, broker.consume(topic))
    except KafkaError:  # the topic is made with its first letter
        return []
    return [(each.topic, each.offset, each.group) for each in found if each is not None]


def test_damaged_records_end_the_query_which_goes_on_when_it_may_reject_them(
    headrace_module: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    letters = "dlq.damaged"
    topic, group = make_queue(headrace_module, errors_deadletterqueue_topic_name=letters)
    start, end = lease_damaged(headrace_module, topic, group, HEADER_BYTES)
    place = rf"{topic}-0, offsets 1 to 1: .*CRC32C"
    with (
        share_reader(headrace_module, topic, group) as reader,
        pytest.raises(UnreadableRecords, match=rf"{place}.*'{group}'.*failOnDataLoss=false"),
    ):
        read(reader, start, end)
    with (
        share_reader(headrace_module, topic, group, failOnDataLoss=False) as reader,
        caplog.at_level(logging.WARNING, logger="headrace.spark"),
    ):
        assert values(read(reader, start, end)) == [b"a", b"c", b"d"]
        assert step(reader, end) == (end, [])
    assert f"{topic}-0, offsets 1 to 1" in caplog.text
    assert lag(headrace_module, group) == 0
    until = time.monotonic() + DEADLINE_SECONDS
    while not (found := letters_of(headrace_module, letters)):
        assert time.monotonic() < until, "no dead letter is written"
    assert found == [(topic, 1, group)]


def test_a_batch_whose_header_is_damaged_takes_what_is_behind_it_along(
    headrace_module: TestBroker,
) -> None:
    topic, group = make_queue(headrace_module)
    for value in ("a", "b", "c"):
        headrace_module.produce(topic, value)
    with share_reader(headrace_module, topic, group, failOnDataLoss=False) as reader:
        start = stored(reader.initialOffset())
        end = stored(reader.latestOffset(start, reader.getDefaultReadLimit()))
        damage(headrace_module, topic, 1, MAGIC_AT)
        assert values(read(reader, start, end)) == [b"a"]
        assert step(reader, end) == (end, [])
    assert lag(headrace_module, group) == 0


def test_damage_among_records_of_other_members_is_theirs(headrace_module: TestBroker) -> None:
    topic, group = make_queue(headrace_module)
    for value in ("a", "b", "c"):
        headrace_module.produce(topic, value)
    one_record = {"maxRecordsPerTrigger": 1}
    with share_reader(headrace_module, topic, group, **one_record) as reader:
        start = stored(reader.initialOffset())
        end = stored(reader.latestOffset(start, reader.getDefaultReadLimit()))
        damage(headrace_module, topic, 1, HEADER_BYTES)
        assert values(read(reader, start, end)) == [b"a"]
