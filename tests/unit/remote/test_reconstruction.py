import asyncio

import msgspec
import pytest

from headrace.ids import TopicName
from headrace.remote.layout import ObjectKind, object_key
from headrace.remote.reconstruction import (
    UnreadableSegment,
    format_epochs,
    list_segments,
    parse_epochs,
    read_segments,
)
from headrace.remote.segments import RemoteSegment, SegmentEpoch
from headrace.testing.store import SimulatedStore
from tests.unit.remote.described import PARTITION
from tests.unit.remote.tiered import TieredLog


def some_log() -> TieredLog:
    log = TieredLog(start_offset=5)
    for number in range(20):
        log.append([b"v"] * 3, timestamp=1000 + number, producer_id=7)
    log.end(7, is_commit=False, timestamp=2000)
    log.roll()
    log.begin_epoch(3)
    log.append([b"w"] * 3, timestamp=50)
    log.begin_epoch(4)
    log.append([b"x"], timestamp=40)
    log.roll()
    return log


def seen_in(store: SimulatedStore) -> list[RemoteSegment]:
    async def look() -> list[RemoteSegment]:
        found = await list_segments(store, [TopicName("orders")])
        return (await read_segments(store, found)).get(PARTITION.key, [])

    return asyncio.run(look())


def test_the_store_alone_says_what_the_events_said() -> None:
    store = SimulatedStore(time_ms=lambda: 77)
    described = asyncio.run(some_log().upload(store))
    seen = seen_in(store)
    assert seen == [
        msgspec.structs.replace(each, custom_metadata=None, broker_id=-1, event_timestamp_ms=77)
        for each in described
    ]
    assert seen[1].epochs == (SegmentEpoch(3, 66), SegmentEpoch(4, 69))


def test_a_segment_without_its_leader_epochs_is_not_complete() -> None:
    store = SimulatedStore()
    first, second = asyncio.run(some_log().upload(store))
    store.remove(object_key(first, ObjectKind.LEADER_EPOCHS))
    assert [each.id for each in seen_in(store)] == [second.id]


def test_other_topics_are_not_looked_at() -> None:
    store = SimulatedStore()
    asyncio.run(some_log().upload(store))
    other = msgspec.structs.replace(PARTITION, topic=TopicName("orders-7"))
    log = TieredLog(other)
    log.append([b"v"])
    log.roll()
    asyncio.run(log.upload(store))
    gets = store.counts.gets
    assert len(seen_in(store)) == 2
    assert store.counts.gets - gets == 8


def test_epochs_are_read_as_they_are_written() -> None:
    epochs = [SegmentEpoch(0, 0), SegmentEpoch(4, 10)]
    assert parse_epochs(format_epochs(epochs), "key") == epochs


@pytest.mark.parametrize(
    "damaged", [b"", b"1\n1\n0 0\n", b"0\n2\n0 0\n", b"0\n1\nx y\n", b"0\n0\n", b"0\n2\n3 0\n1 5\n"]
)
def test_a_damaged_checkpoint_is_refused_by_name(damaged: bytes) -> None:
    with pytest.raises(UnreadableSegment, match="some key"):
        parse_epochs(damaged, "some key")
