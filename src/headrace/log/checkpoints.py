"""The small text files of a log directory, as Apache Kafka writes them.

Per partition `leader-epoch-checkpoint` and `partition.metadata`; per directory the offsets of all
its partitions (recovery points, log starts, high watermarks, what was compacted),
`meta.properties` and the marker of a clean shutdown. Parsers take text and give values; a line
that Kafka would not have written is a `CorruptCheckpoint`:

    offsets = load(disk, RECOVERY_POINTS, parse_offsets)
    save(disk, RECOVERY_POINTS, format_offsets(offsets))
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias, TypeVar

import msgspec

from headrace.config import INT32_MAX, INT64_MAX
from headrace.errors import ErrorCode
from headrace.ids import TopicId, parse_topic_id, topic_id_text
from headrace.log.disk import Disk
from headrace.log.epochs import EpochStart
from headrace.log.errors import LogError

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANED: Final = "cleaner-offset-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

Offsets: TypeAlias = dict[tuple[str, int], int]
"""An offset for each topic and partition."""


class CorruptCheckpoint(LogError):
    """A file that does not say what its name promises. `line` counts from 1."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}, line {line}: {reason}")
        self.path = path
        self.line = line


class MetaProperties(msgspec.Struct, frozen=True):
    """Whose directory this is. It must not be used by another node or cluster."""

    cluster_id: str
    node_id: int
    directory_id: TopicId


class CleanShutdown(msgspec.Struct, frozen=True, rename="camel"):
    """Left by a broker that closed its logs; `broker_epoch` is that of its registration."""

    version: int
    broker_epoch: int


T = TypeVar("T")


def load(disk: Disk, path: str, parse: Callable[[str, str], T]) -> T:
    """Read and parse a file; FileNotFoundError if there is none."""
    data = disk.read(path)
    try:
        return parse(data.decode("ascii"), path)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CorruptCheckpoint(path, line, f"byte {data[error.start]:#x} is not ASCII") from error


def save(disk: Disk, path: str, text: str) -> None:
    """Put `text` in the place of a file: after a crash it is the old one or the new one."""
    disk.replace(path, text.encode("ascii"))


def format_epochs(entries: Iterable[EpochStart]) -> str:
    return _format_rows(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def parse_epochs(text: str, path: str = LEADER_EPOCHS) -> list[EpochStart]:
    """Read the entries, which are in increasing order of both epoch and offset."""
    entries: list[EpochStart] = []
    previous = EpochStart(-1, -1)
    for line, words in _parse_rows(text, path, words_a_row=2):
        epoch = _number(words[0], INT32_MAX, path, line)
        entry = EpochStart(epoch, _number(words[1], INT64_MAX, path, line))
        if entry.epoch <= previous.epoch or entry.start_offset <= previous.start_offset:
            raise CorruptCheckpoint(path, line, f"{' '.join(words)} is not beyond the line before")
        entries.append(entry)
        previous = entry
    return entries


def format_offsets(offsets: Mapping[tuple[str, int], int]) -> str:
    return _format_rows(
        f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()
    )


def parse_offsets(text: str, path: str) -> Offsets:
    offsets: Offsets = {}
    for line, words in _parse_rows(text, path, words_a_row=3):
        partition = words[0], _number(words[1], INT32_MAX, path, line)
        if partition in offsets:
            raise CorruptCheckpoint(path, line, f"{words[0]} {words[1]} was there before")
        offsets[partition] = _number(words[2], INT64_MAX, path, line)
    return offsets


def format_partition_metadata(topic_id: TopicId) -> str:
    return f"version: 0\ntopic_id: {topic_id_text(topic_id)}"


def parse_partition_metadata(text: str, path: str = PARTITION_METADATA) -> TopicId:
    lines = text.removesuffix("\n").split("\n")
    if lines[0] != "version: 0":
        raise CorruptCheckpoint(path, 1, f"{lines[0]!r} is not 'version: 0'")
    name, _, topic_id = (lines[1] if len(lines) == 2 else "").partition(": ")
    if name != "topic_id":
        raise CorruptCheckpoint(path, 2, "the topic's id, and nothing else, comes here")
    return _id(topic_id, path, 2)


def format_meta_properties(meta: MetaProperties) -> str:
    """Write as java.util.Properties does; ValueError if the cluster's id is not plain ASCII."""
    if not (meta.cluster_id.isascii() and meta.cluster_id.isprintable()):
        raise ValueError(f"cluster id {meta.cluster_id!r}: only printable ASCII is allowed")
    return (
        f"cluster.id={_TO_ESCAPE.sub(_ESCAPE, meta.cluster_id)}\n"
        f"directory.id={topic_id_text(meta.directory_id)}\n"
        f"node.id={meta.node_id}\n"
        "version=1\n"
    )


def parse_meta_properties(text: str, path: str = META_PROPERTIES) -> MetaProperties:
    """Read version 1. Keys that are not known are left: later releases may add some."""
    values: dict[str, tuple[str, int]] = {}
    for line, content in enumerate(_lines(text, path), 1):
        if not content or content[0] in "#!":
            continue
        pair = _PROPERTY.fullmatch(content)
        if pair is None:
            raise CorruptCheckpoint(path, line, f"{content!r} is not a key, '=' and a value")
        values[pair[1]] = _ESCAPED.sub(r"\1", pair[2]), line
    if missing := {"version", "cluster.id", "node.id", "directory.id"} - values.keys():
        raise CorruptCheckpoint(path, text.count("\n"), f"there is no {min(missing)}")
    version, line = values["version"]
    if version != "1":
        raise CorruptCheckpoint(path, line, f"version {version!r}; only 1 is read")
    node_id, node_line = values["node.id"]
    directory_id, directory_line = values["directory.id"]
    return MetaProperties(
        values["cluster.id"][0],
        _number(node_id, INT32_MAX, path, node_line),
        _id(directory_id, path, directory_line),
    )


def format_clean_shutdown(broker_epoch: int) -> str:
    return msgspec.json.encode(CleanShutdown(0, broker_epoch)).decode()


def parse_clean_shutdown(text: str, path: str = CLEAN_SHUTDOWN) -> int:
    """Return the broker epoch of the clean shutdown."""
    try:
        marker = msgspec.json.decode(text, type=CleanShutdown)
    except msgspec.DecodeError as error:
        raise CorruptCheckpoint(path, 1, str(error)) from error
    if marker.version != 0:
        raise CorruptCheckpoint(path, 1, f"version {marker.version}; only 0 is read")
    return marker.broker_epoch


def _format_rows(rows: Iterable[str]) -> str:
    lines = ["0", "", *rows, ""]
    lines[1] = str(len(lines) - 3)
    return "\n".join(lines)


def _parse_rows(text: str, path: str, words_a_row: int) -> list[tuple[int, list[str]]]:
    """Return the words of each row with its line number; version and count come first."""
    lines = _lines(text, path)
    if lines[0] != "0":
        raise CorruptCheckpoint(path, 1, f"version {lines[0]!r}; only 0 is read")
    if len(lines) < 2:
        raise CorruptCheckpoint(path, 2, "the number of entries is missing")
    count = _number(lines[1], INT32_MAX, path, 2)
    if count != len(lines) - 2:
        raise CorruptCheckpoint(path, 2, f"{count} entries said, {len(lines) - 2} there")
    rows = []
    for line, content in enumerate(lines[2:], 3):
        words = content.split(" ")
        if len(words) != words_a_row or not all(words):
            raise CorruptCheckpoint(path, line, f"{content!r} is not {words_a_row} words")
        rows.append((line, words))
    return rows


def _lines(text: str, path: str) -> list[str]:
    """Return the lines; the last one must end too, or a part of it may be missing."""
    *lines, rest = text.split("\n")
    if rest or not lines:
        raise CorruptCheckpoint(path, len(lines) + 1, f"the file ends within a line: {rest!r}")
    return lines


def _number(text: str, maximum: int, path: str, line: int) -> int:
    if not _DIGITS.fullmatch(text) or int(text) > maximum:
        raise CorruptCheckpoint(path, line, f"{text!r} is not a number from 0 to {maximum}")
    return int(text)


def _id(text: str, path: str, line: int) -> TopicId:
    try:
        return parse_topic_id(text)
    except ValueError as error:
        raise CorruptCheckpoint(path, line, str(error)) from error


_DIGITS: Final = re.compile(r"[0-9]{1,19}")
_PROPERTY: Final = re.compile(r"([a-z.]+)=((?:[^\\]|\\[\\=:#! ])*)")
_TO_ESCAPE: Final = re.compile(r"^ |[\\=:#!]")
_ESCAPED: Final = re.compile(r"\\(.)")
_ESCAPE: Final = r"\\\g<0>"
