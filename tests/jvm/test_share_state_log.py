"""Apache Kafka's DumpLogSegments on the states of share partitions that we write."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.coordinator.records import build_record_batch, encode_record
from headrace.ids import TopicId, topic_id_text
from headrace.log.opening import open_log
from headrace.log.real_disk import RealDisk
from headrace.log.settings import LogSettings
from tests.jvm.kafka_tools import run_well
from tests.unit.share.state.world import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    OTHER,
    T0,
    World,
)

TOOL = "org.apache.kafka.tools.DumpLogSegments"
PAYLOAD = re.compile(r"key: (\{.*\}) payload: (.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def world() -> World:
    """A log that has every kind of record."""
    world = World({"share.coordinator.snapshot.update.records.per.snapshot": "2"})
    world.reload()
    world.begin(0, start=-1, epoch=4)
    world.begin(1, start=7)
    world.begin(2, start=1 << 40, topic_id=OTHER)
    world.read(0, leader_epoch=3)
    world.write((7, 9, ACKNOWLEDGED, 1), (12, 12, ARCHIVED, 5), partition=1, complete=4)
    world.write((10, 10, AVAILABLE, 2), partition=1, start=9, complete=2)
    world.write((300, 70_000, AVAILABLE, 2), partition=1, start=-1, complete=-1)
    world.delete(1)
    world.pass_time(300_000)
    return world


@pytest.fixture(scope="module")
def printed(world: World, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, Any]]:
    """What the tool reads: keys and values."""
    folder: Path = tmp_path_factory.mktemp("states")
    disk = RealDisk(folder)
    log = open_log(disk, "__share_group_state-0", LogSettings(), is_clean=True)
    for record in world.log:
        batch = build_record_batch([encode_record(record)], T0, producer_id=-1, producer_epoch=-1)
        log.append_own(memoryview(batch), leader_epoch=0)
    log.close()
    disk.close()
    file = folder / "__share_group_state-0" / f"{0:020}.log"
    output = run_well(TOOL, "--share-group-state-decoder", "--files", str(file))
    return [
        (json.loads(key), None if value == "<DELETE>" else json.loads(value))
        for key, value in PAYLOAD.findall(output.stdout)
    ]


def test_every_record_is_printed_as_it_was_written(
    world: World, printed: list[tuple[Any, Any]]
) -> None:
    expected = [
        (
            {"type": str(record.key.API_KEY), "data": as_printed(record.key)},
            None
            if record.value is None
            else {"version": str(record.value_version), "data": as_printed(record.value)},
        )
        for record in world.log
    ]
    assert len(expected) == 10
    assert printed == expected


def as_printed(row: Any) -> dict[str, Any]:
    """Give a message in the names of its schema; a tagged field that is not set is left out."""
    printed: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(row).items():
        words = name.split("_")
        camel = words[0] + "".join(map(str.capitalize, words[1:]))
        if isinstance(value, list):
            printed[camel] = [as_printed(each) for each in value]
        elif isinstance(value, bytes):
            printed[camel] = topic_id_text(TopicId(value))
        elif name != "unknown_tags" and (name, value) != ("delivery_complete_count", -1):
            printed[camel] = value
    return printed
