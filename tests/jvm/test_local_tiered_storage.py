"""Kafka's LocalTieredStorage and our folder store read, and delete, what the other wrote."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from headrace.ids import PartitionIndex, TopicId, TopicName, topic_id_text
from headrace.remote.layout import ObjectKind, SegmentKey, object_key, parse_key
from headrace.remote.marker import claim
from headrace.remote.object_store import open_store
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segments import RemoteSegment, SegmentId, TopicIdPartition
from headrace.remote.store import NoSuchObject
from tests.unit.remote.stored_segments import LOG, files, segment
from tools.jvm.harness import HERE, Program, compile_java, tiered_storage_jars
from tools.jvm.oracles import Oracle, OracleError

TYPES = {
    ObjectKind.OFFSET_INDEX: "OFFSET",
    ObjectKind.TIME_INDEX: "TIMESTAMP",
    ObjectKind.TXN_INDEX: "TRANSACTION",
    ObjectKind.PRODUCER_SNAPSHOT: "PRODUCER_SNAPSHOT",
    ObjectKind.LEADER_EPOCHS: "LEADER_EPOCH",
}
"""Kafka's names of the objects other than the log."""
CONTENTS = {
    ObjectKind.OFFSET_INDEX: b"offsets",
    ObjectKind.TIME_INDEX: b"",
    ObjectKind.TXN_INDEX: b"aborted",
    ObjectKind.PRODUCER_SNAPSHOT: b"producers",
    ObjectKind.LEADER_EPOCHS: b"0\n1\n0 11\n",
}
SEGMENTS = [
    segment(),
    segment(number=0, start_offset=0),
    msgspec.structs.replace(
        segment(start_offset=2**62),
        id=SegmentId(bytes(range(240, 256))),
        partition=TopicIdPartition(
            TopicId(bytes(range(248, 256)) * 2), TopicName("a-1.b_2-3"), PartitionIndex(123)
        ),
    ),
]


class TieredStorageOracle(Oracle):
    """Kafka's LocalTieredStorage, as `TieredStorageOracle.java` describes."""

    def __init__(self, folder: Path) -> None:
        classes = compile_java(HERE / "TieredStorageOracle.java", HERE / "LineServer.java")
        self._program = Program(
            classes, "TieredStorageOracle", str(folder), more_jars=tiered_storage_jars()
        )

    def of(self, command: str, held: RemoteSegment, *words: object) -> bytes:
        described = {
            "topic": held.partition.topic,
            "topicId": topic_id_text(held.partition.topic_id),
            "partition": held.partition.index,
            "id": topic_id_text(TopicId(held.id)),
            "start": held.start_offset,
            "end": held.end_offset,
            "size": held.size_bytes,
            "epochs": held.epochs,
        }
        return bytes.fromhex(self.ask(command, json.dumps(described), *map(str, words)))


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tier")


@pytest.fixture(scope="module")
def kafka(parent: Path) -> Iterator[TieredStorageOracle]:
    with TieredStorageOracle(parent) as oracle:
        yield oracle


@pytest.fixture
def folder(parent: Path) -> Path:
    """The folder that Kafka makes in the one of its setting `dir`, and that ours has to name."""
    return parent / "kafka-tiered-storage"


def ours(folder: Path, use: Callable[[SegmentObjects], Awaitable[None]]) -> None:
    """Use our objects in the folder."""

    async def run() -> None:
        store = open_store(f"file://{folder}")
        try:
            await use(SegmentObjects(store))
        finally:
            await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("held", SEGMENTS, ids=lambda held: held.partition.topic)
def test_kafka_reads_and_deletes_what_we_wrote(
    kafka: TieredStorageOracle, folder: Path, held: RemoteSegment
) -> None:
    async def write(objects: SegmentObjects) -> None:
        await claim(objects.store, "cluster", 1)  # what we keep beside segments is no hindrance
        await objects.copy(held, files())

    ours(folder, write)
    assert kafka.of("fetch", held, 0) == LOG
    assert kafka.of("fetch", held, 100) == LOG[100:]
    for kind, name in TYPES.items():
        assert kafka.of("index", held, name) == CONTENTS[kind]
    kafka.of("delete", held)
    assert not [path for path in folder.rglob("*") if topic_id_text(TopicId(held.id)) in path.name]


@pytest.mark.parametrize("has_aborted", [False, True])
@pytest.mark.parametrize("held", SEGMENTS, ids=lambda held: held.partition.topic)
def test_we_read_and_delete_what_kafka_wrote(
    kafka: TieredStorageOracle,
    folder: Path,
    tmp_path: Path,
    held: RemoteSegment,
    has_aborted: bool,
) -> None:
    names = {"index": ObjectKind.OFFSET_INDEX, "timeindex": ObjectKind.TIME_INDEX}
    names |= {"snapshot": ObjectKind.PRODUCER_SNAPSHOT, "epochs": ObjectKind.LEADER_EPOCHS}
    if has_aborted:
        names["txnindex"] = ObjectKind.TXN_INDEX
    (tmp_path / "log").write_bytes(LOG)
    for name, kind in names.items():
        (tmp_path / name).write_bytes(CONTENTS[kind])
    kafka.of("copy", held, tmp_path)

    async def read(objects: SegmentObjects) -> None:
        keys = {found.key async for page in objects.store.list_objects() for found in page}
        written = {object_key(held, kind) for kind in (ObjectKind.LOG, *names.values())}
        assert {key for key in keys if isinstance(parse_key(key), SegmentKey)} == written
        assert bytes(await objects.fetch(held, 100, 200)) == LOG[100:200]
        for kind in TYPES:
            expected = b"" if kind is ObjectKind.TXN_INDEX and not has_aborted else CONTENTS[kind]
            assert bytes(await objects.fetch_index(held, kind)) == expected
        await objects.delete(held)
        with pytest.raises(NoSuchObject):
            await objects.fetch(held, 0, 1)

    ours(folder, read)
    with pytest.raises(OracleError) as error:
        kafka.of("fetch", held, 0)
    assert error.value.java_class.endswith("RemoteResourceNotFoundException")
