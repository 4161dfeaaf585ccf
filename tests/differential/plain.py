"""Answers as plain data: what must be equal stays, what differs by nature is replaced by a word.

Ids that a broker chooses are numbered in the order in which a script meets them, so that it still
shows whether two answers speak of the same one. Times, ports, paths and the wording of messages
become `<time>`, `<port>`, `<path>` and `<message>`; null and -1 stay what they are.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from headrace.errors import ErrorCode
from headrace.records.compression import Compression, decompress
from headrace.records.errors import CorruptBatch
from headrace.records.header import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    checksum,
    read_header,
)
from headrace.wire.schema import Buffer, Message, Struct

Plain = Any
"""None, numbers, strings, and lists and dictionaries of these."""

SCRIPTED_PREFIX: Final = "x-"
"""Names that scripts make up begin with this and the script's own name."""

MADE_UP_ID: Final = b"\x77" * 16
"""A topic id that a script sends and no broker has chosen."""

ID_BYTES: Final = 16

_INFLATED_BYTES_MAX: Final = 1 << 24
_CHOSEN_MEMBER_ID: Final = re.compile(
    r"(.*-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9_-]{22}"
)
"""A member id of a broker: an id alone, or behind the client's or the instance's name."""


class Plainer:
    """Turns the answers of one script into plain data."""

    def __init__(self, script: str) -> None:
        self._own_prefix = f"{SCRIPTED_PREFIX}{script}-"
        self._numbers: dict[str, dict[object, str]] = {}

    def plain(self, answer: Message, hidden: frozenset[str] = frozenset()) -> Plain:
        """Give the answer as data; fields named in `hidden` only say whether they are set."""
        return self._struct(answer, type(answer).__name__, hidden)

    def _struct(self, value: Struct, message: str, hidden: frozenset[str]) -> dict[str, Plain]:
        fields = msgspec.structs.asdict(value)
        if not fields["unknown_tags"]:
            del fields["unknown_tags"]
        return {
            name: self._field(name, content, message, hidden)
            for name, content in fields.items()
            if name != "throttle_time_ms"
        }

    def _field(self, name: str, value: Any, message: str, hidden: frozenset[str]) -> Plain:
        if isinstance(value, list):
            return self._list(name, value, message, hidden)
        if isinstance(value, Struct):
            return self._struct(value, message, hidden)
        if name == "records":
            return self._records(value, hidden)
        return self._scalar(name, value, message, hidden)

    def _scalar(self, name: str, value: Any, message: str, hidden: frozenset[str]) -> Plain:
        if name in _ERRORS:
            return ErrorCode(value).name
        if isinstance(value, bytes) and len(value) == ID_BYTES and not any(value):
            return "<no id>"
        if name in _TEXTS:
            return "<message>" if value else None
        rule = _RULES.get((message, name)) or _RULES.get(("", name))
        if name in hidden:
            rule = _word(name)
        if rule and value not in _UNSET:
            return rule(self, name, value)
        return bytes(value).hex() if isinstance(value, bytes | memoryview) else value

    def _list(self, name: str, value: list[Any], message: str, hidden: frozenset[str]) -> Plain:
        if name in hidden:
            return [f"<{name}>"] if value else []
        if not value or not isinstance(value[0], Struct):
            is_a_set = name in _SETS
            return sorted(value) if is_a_set else value
        rows = [
            self._struct(row, message, hidden)
            for row in value
            if not self._is_foreign(row, message)
        ]
        if message not in _ORDERED and name not in _ORDERED:
            rows.sort(key=_sort_key)
        return rows

    def _is_foreign(self, row: Struct, message: str) -> bool:
        """Whether a row is about a topic, group or resource of another script."""
        name = next((getattr(row, f) for f in _NAMES if hasattr(row, f)), None)
        if name in _COORDINATED and message in _OF_ALL_TOPICS:
            return True
        return (
            isinstance(name, str)
            and name.startswith(SCRIPTED_PREFIX)
            and not name.startswith(self._own_prefix)
        )

    def number(self, kind: str, value: object) -> str:
        if value == MADE_UP_ID:
            return f"<made-up {kind}>"
        numbers = self._numbers.setdefault(kind, {})
        return numbers.setdefault(value, f"<{kind} {len(numbers) + 1}>")

    def _records(self, data: Buffer | None, hidden: frozenset[str]) -> Plain:
        if data is None:
            return None
        view, batches, position = memoryview(data), list[Plain](), 0
        while (left := len(view) - position) > 0:
            length = int.from_bytes(view[position + 8 : position + LENGTH_PREFIX_BYTES], "big")
            size = LENGTH_PREFIX_BYTES + length
            if left < max(size, HEADER_BYTES):
                batches.append(f"the first {left} bytes of a batch")
                break
            batches.append(self._batch(view[position : position + size], hidden))
            position += size
        return batches

    def _batch(self, batch: memoryview, hidden: frozenset[str]) -> Plain:
        header = read_header(batch)
        fields = msgspec.structs.asdict(header)
        if fields.pop("crc") != checksum(batch):
            fields["crc"] = "wrong"
        if header.producer_id >= 0:
            fields["producer_id"] = self.number("producer id", header.producer_id)
        if header.attributes & COMPRESSION_MASK:
            del fields["batch_length"]  # compressors differ in the bytes that they choose
        if header.is_control:  # a broker wrote it
            fields["base_timestamp"] = fields["max_timestamp"] = "<time>"
        if "max_timestamp" in hidden:
            fields["max_timestamp"] = "<time>"
        fields["payload"] = _payload(header.compression, batch[HEADER_BYTES:])
        return fields


def _payload(codec: Compression, data: memoryview) -> str:
    try:
        return bytes(decompress(codec, data, _INFLATED_BYTES_MAX)).hex()
    except CorruptBatch:
        return "what does not inflate"


def _numbered(kind: str) -> Callable[[Plainer, str, Any], Plain]:
    return lambda plainer, _, value: plainer.number(kind, value)


def _member(plainer: Plainer, _: str, value: str) -> Plain:
    """Number the ids that brokers choose; those of scripts are the same for both."""
    found = _CHOSEN_MEMBER_ID.fullmatch(value)
    return value if found is None else f"{found[1] or ''}{plainer.number('member id', value)}"


def _word(word: str) -> Callable[[Plainer, str, Any], Plain]:
    return lambda *_: f"<{word}>"


_ERRORS: Final = frozenset(
    {"error_code", "topic_config_error_code", "partition_error_code", "acknowledge_error_code"}
)
_TEXTS: Final = frozenset(
    {"error_message", "acknowledge_error_message", "batch_index_error_message"}
    | {"documentation", "status_detail"}
)
_UNSET: Final = (None, "", -1)

_RULES: Final[dict[tuple[str, str], Callable[[Plainer, str, Any], Plain]]] = {
    ("", "topic_id"): _numbered("topic id"),
    ("", "client_instance_id"): _numbered("client instance id"),
    ("", "subscription_id"): _word("subscription id"),
    ("", "replica_directory_id"): _numbered("directory id"),
    ("", "cluster_id"): _word("cluster id"),
    ("", "port"): _word("port"),
    ("", "log_append_time_ms"): _word("time"),
    ("", "producer_id"): _numbered("producer id"),
    ("", "ongoing_txn_producer_id"): _numbered("producer id"),
    ("", "member_id"): _member,
    ("JoinGroupResponse", "leader"): _member,
    ("", "transaction_start_time_ms"): _word("time"),
    ("", "log_dir"): _word("path"),
    ("", "total_bytes"): _word("bytes"),
    ("", "usable_bytes"): _word("bytes"),
    ("", "last_fetch_timestamp"): _word("time"),
    ("", "last_caught_up_timestamp"): _word("time"),
    ("", "finalized_features_epoch"): _word("metadata offset"),
    ("FetchResponse", "session_id"): lambda plainer, _, value: (
        value and plainer.number("session id", value)
    ),
    ("DescribeQuorumResponse", "high_watermark"): _word("metadata offset"),
    ("DescribeQuorumResponse", "log_end_offset"): _word("metadata offset"),
    ("DescribeQuorumResponse", "leader_epoch"): _word("metadata epoch"),
}
"""What becomes of a field, in one message or (first part empty) in all."""

_NAMES: Final = ("name", "topic", "topic_name", "resource_name", "group_id", "transactional_id")
_KEYS: Final = (
    *(*_NAMES, "topic_id", "feature"),
    *("member_id", "group_instance_id", "subtopology_id", "producer_id"),
)
_INDEXES: Final = (
    *("partition_index", "partition", "index", "partition_id"),
    *("resource_type", "api_key", "node_id", "broker_id", "replica_id"),
)

_COORDINATED: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
"""Topics that are there if a script before had a coordinator looked for."""
_OF_ALL_TOPICS: Final = frozenset({"MetadataResponse", "DescribeLogDirsResponse"})

_ORDERED: Final = frozenset(
    {"FetchResponse", "DescribeTopicPartitionsResponse", "synonyms", "record_errors"}
)
"""Messages and lists whose order a client can rely on; others are maps on Kafka's side."""
_SETS: Final = frozenset(
    {"requested_metrics", "partitions", "subscribed_topic_names", "unknown_state_filters"}
)


def _sort_key(row: dict[str, Plain]) -> tuple[str, ...]:
    indexes = tuple(f"{row.get(name, 0):09}" for name in _INDEXES)
    return (*(str(row.get(name)) for name in _KEYS), *indexes, str(row.get("error_code")))
