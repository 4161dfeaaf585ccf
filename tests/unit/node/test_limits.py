"""Bounds of a node's own that an operator sets: each is seen to hold."""

import asyncio
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest

from headrace.api import share_fetch
from headrace.errors import ErrorCode
from headrace.log.log import Log
from headrace.log.real_disk import RealFile
from headrace.metadata.applier import OutcomeForgotten
from headrace.metadata.entries import Batch, encode_entry
from headrace.server.dispatch import Undecodable
from headrace.wire import ApiKey
from headrace.wire.exchange import request_parts
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.request_header import RequestHeader
from tests.unit.api.test_produce import batch, only, produce
from tests.unit.harness import Harness
from tests.unit.node.test_upkeep import append
from tests.unit.share.share_client import Member, initialize
from tests.unit.share.share_client import append as append_values

MANY_TOPICS = 30_000
SMALL_FILES = {"internal.segment.bytes": "3000", "index.interval.bytes": "0"}


def open_logs(folder: Path) -> int:
    """Count the logs of topic `orders` that this process has open."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = descriptor.readlink()
        except OSError:
            continue  # that of the listing itself
        found += target.is_relative_to(folder) and target.parent.name.startswith("orders-")
    return found


@pytest.mark.parametrize(
    ("harness", "expected"),
    [({"headrace.open.files.max": "3"}, 3), ({"headrace.open.files.max": "100"}, 8)],
    indirect=["harness"],
)
def test_no_more_files_are_open_than_headrace_open_files_max(
    harness: Harness, expected: int
) -> None:
    harness.create_topic("orders", partitions=8)

    async def append_everywhere() -> None:
        now_ms = harness.clock.now_ms()
        for index in range(8):
            records = memoryview(bytearray(batch()))
            harness.partition("orders", index).append(records, now_ms, needs_replicas=False)

    harness.run(append_everywhere())
    assert open_logs(Path(harness.broker.data_path)) == expected


@pytest.mark.parametrize(
    ("harness", "maximum"),
    [({"headrace.index.maps.max": "2"}, 2), ({"headrace.index.maps.max": "100"}, 100)],
    indirect=["harness"],
)
def test_no_more_indexes_are_mapped_than_headrace_index_maps_max(
    harness: Harness, maximum: int
) -> None:
    harness.create_topic("orders", configs=SMALL_FILES)
    append(harness, *[b"key"] * 20)
    finished = harness.partition("orders").log.segments[:-1]
    for segment in finished:
        segment.offset_index.write_out()
        segment.locate(segment.base_offset + 1)
    mapped = {
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if harness.broker.data_path in line
    }
    assert len(finished) > 4
    assert len(mapped) == min(maximum, len(finished))


@pytest.mark.parametrize("harness", [{"headrace.cold.read.attempts.max": "5"}], indirect=True)
def test_a_cold_read_is_tried_headrace_cold_read_attempts_max_times(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("orders")
    append(harness, b"key")
    log = harness.partition("orders").log
    attempts = 0
    cold_read = Log.cold_read

    def read_nothing(log: Log, *arguments: Any, **options: Any) -> Any:
        nonlocal attempts
        attempts += 1
        found = cold_read(log, *arguments, **options)
        monkeypatch.setattr(type(found), "result", lambda cold, cuts: None)
        return found

    monkeypatch.setattr(Log, "cold_read", read_nothing)
    monkeypatch.setattr(RealFile, "read_cached", lambda file, position, count: None)
    assert harness.run(log.read_cold(0, 1 << 20, up_to=1))
    assert attempts == 5


@pytest.mark.parametrize(
    "harness",
    [
        {
            "headrace.cold.read.attempts.max": "2",
            "share.coordinator.state.topic.num.partitions": "1",
        }
    ],
    indirect=True,
)
def test_a_share_fetch_waits_for_threads_headrace_cold_read_attempts_max_times(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = harness.create_topic("orders", partitions=3)
    initialize(harness, topic_id, 0, start_offset=0)
    member = Member(harness, topic_id)
    member.fetch(0)
    while not all(led.is_active for led in harness.broker.share_partitions):
        harness.run(asyncio.sleep(0))
    append_values(harness, b"a")
    waits = 0

    async def wait_in_vain(limit: object, reads: object) -> None:
        nonlocal waits
        waits += 1

    monkeypatch.setattr(share_fetch, "read_together", wait_in_vain)
    monkeypatch.setattr(RealFile, "read_cached", lambda file, position, count: None)
    assert member.fetch()[0].values == [b"a"]
    assert waits == 2


@pytest.mark.parametrize("harness", [{"headrace.record.errors.max": "3"}], indirect=True)
def test_no_more_records_are_named_than_headrace_record_errors_max(harness: Harness) -> None:
    harness.create_topic("table", configs={"cleanup.policy": "compact"})
    values = [b"%d" % number for number in range(5)]
    row = only(harness.ask(produce(batch(*values, key=None), topic="table"), 12))
    assert ErrorCode(row.error_code) is ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in row.record_errors] == [0, 1, 2]


async def read(harness: Harness) -> Any:
    """Read a request with very many elements, as a connection does."""
    header = RequestHeader(int(ApiKey.METADATA), 12, 1, "test")
    topics = [MetadataRequestTopic(name="t") for _ in range(MANY_TOPICS)]
    frame = b"".join(request_parts(header, MetadataRequest(topics=topics)))[4:]
    reading = harness.node.dispatcher.read_in_thread(
        harness.peer, memoryview(bytearray(frame)), monotonic_ns()
    )
    return await reading


def test_a_request_of_many_elements_is_read(harness: Harness) -> None:
    assert len(harness.run(read(harness)).body.topics) == MANY_TOPICS


@pytest.mark.parametrize(
    "harness", [{"headrace.decode.memory.floor.bytes": "1048576"}], indirect=True
)
def test_a_request_that_takes_more_than_headrace_decode_memory_floor_bytes_is_not_read(
    harness: Harness,
) -> None:
    with pytest.raises(Undecodable):
        harness.run(read(harness))


@pytest.mark.parametrize("harness", [{"headrace.metadata.outcomes.max": "2000"}], indirect=True)
def test_headrace_metadata_outcomes_max_outcomes_are_remembered(harness: Harness) -> None:
    applier = harness.broker.quorum._machine.applier
    last = applier.image.applied_index + 2000
    applier.apply([(last - 2000 + each, encode_entry(Batch(()))) for each in range(1, 2001)])
    assert [applier.outcome(index).index for index in (last - 1999, last)] == [last - 1999, last]
    with pytest.raises(OutcomeForgotten, match="the last 2000 outcomes are kept"):
        applier.outcome(last - 2000)


@pytest.mark.parametrize(
    "harness",
    [{"headrace.raft.kept.entries": "7", "headrace.raft.members.max": "5"}],
    indirect=True,
)
def test_the_quorum_of_a_node_goes_by_its_settings(harness: Harness) -> None:
    settings = harness.broker.quorum.driver.state.settings
    assert (settings.kept_entries, settings.members_max) == (7, 5)
