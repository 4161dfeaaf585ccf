"""The files of cached indexes. Called in threads, but for the names.

A file has the bytes of the index and a CRC-32C behind them. It is never synced: one that a crash
has torn is fetched again.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from struct import Struct as Layout
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from headrace.ids import PartitionIndex, TopicId, parse_topic_id, topic_id_text
from headrace.log.disk import TEMPORARY_SUFFIX, Disk, write_temporary
from headrace.remote.layout import ObjectKind
from headrace.remote.segments import PartitionKey, RemoteSegment, SegmentId
from headrace.wire.schema import Buffer

FOLDER: Final = "remote-log-index-cache"
KINDS: Final = (ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.TXN_INDEX)
IndexKey: TypeAlias = tuple[SegmentId, ObjectKind]
_CHECKSUM: Final = Layout(">I")

logger = logging.getLogger(__name__)


class IndexFile(NamedTuple):
    """An index on the disk."""

    partition: PartitionKey
    key: IndexKey
    name: str
    size_bytes: int
    """Without the checksum."""


def name_of(segment: RemoteSegment, kind: ObjectKind) -> str:
    """Return the name of a file: topic id, partition, segment id, kind."""
    topic_id, index = segment.key
    return f"{topic_id_text(topic_id)}.{index}.{topic_id_text(TopicId(segment.id))}{kind}"


def parse_name(name: str) -> tuple[PartitionKey, IndexKey] | None:
    """Return what a file is the index of, None if its name is no such name."""
    topic, _, rest = name.partition(".")
    partition, _, rest = rest.partition(".")
    segment, dot, suffix = rest.partition(".")
    try:
        kind = ObjectKind(dot + suffix)
        partition_key = parse_topic_id(topic), PartitionIndex(int(partition))
        key = SegmentId(parse_topic_id(segment)), kind
    except ValueError:
        return None
    return (partition_key, key) if kind in KINDS else None


def take_over(disk: Disk) -> list[IndexFile]:
    """Return the indexes that an earlier process has left; the folder is made if it is not there.

    Whether they are whole is seen when they are loaded. What is no index stays as it is.
    """
    try:
        disk.make_folder(FOLDER)
        sizes = disk.list(FOLDER)
    except OSError as error:
        logger.warning("the indexes of the tier that are on the disk cannot be used: %s", error)
        return []
    remove(disk, [name for name in sizes if name.endswith(TEMPORARY_SUFFIX)])
    found = []
    for name, size in sizes.items():
        parsed = parse_name(name)
        if parsed is not None:
            found.append(IndexFile(*parsed, name, max(size - _CHECKSUM.size, 0)))
    return found


def store(disk: Disk, name: str, data: Buffer) -> Buffer | None:
    """Write an index and return a map of its file; None if it is gone already."""
    path = f"{FOLDER}/{name}"
    checked = b"".join((data, _CHECKSUM.pack(crc32c(data))))
    disk.rename(write_temporary(disk, path, checked, is_synced=False), path)
    return load(disk, name, is_checked=True)


def load(disk: Disk, name: str, *, is_checked: bool) -> Buffer | None:
    """Map an index; None if there is no such file or it is torn."""
    try:
        file = disk.open(f"{FOLDER}/{name}")
        mapped = file.map()
        file.close()
    except OSError:
        return None
    if len(mapped) < _CHECKSUM.size:
        return None
    data = mapped[: -_CHECKSUM.size]
    if is_checked or crc32c(data) == _CHECKSUM.unpack(mapped[-_CHECKSUM.size :])[0]:
        return data
    return None


def remove(disk: Disk, names: Iterable[str]) -> None:
    """Remove files; those that are not there are fine."""
    for name in names:
        with suppress(OSError):
            disk.remove(f"{FOLDER}/{name}")
