"""What a broker writes of a group: its records in `__consumer_offsets`, as plain data."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from headrace.coordinator.placement import partition_for
from headrace.coordinator.records import CoordinatorRecord, read_record_batch
from headrace.groups.record_types import RECORD_TYPES
from headrace.ids import GROUPS_TOPIC
from headrace.records.header import read_headers
from headrace.wire.messages.fetch_response import FetchResponse
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.metadata_response import MetadataResponse
from tests.differential.conversation import Conversation
from tests.differential.plain import Plain
from tests.differential.requests import Topic, fetch, from_offset, metadata

CHUNK_BYTES: Final = 1 << 24
_OWN: Final = {
    "current_state_timestamp": "<time>",
    "assignment_timestamp": "<time>",
    "commit_timestamp": "<time>",
    "metadata_hash": "<hash>",
}
"""Fields that differ between two brokers by nature; the hash is one of topic ids."""


def written(talk: Conversation, group: str) -> list[Plain]:
    """Give all records of a group."""
    return [_plain(talk, record) for record in _records(talk, group)]


def in_order(rows: list[Plain]) -> list[Plain]:
    """Order records of one kind that follow each other by members: Kafka has them in hash maps."""
    return [
        row
        for _, run in groupby(rows, key=lambda row: row["kind"])
        for row in sorted(run, key=lambda row: str(row["key"].get("member_id")))
    ]


def _records(talk: Conversation, group: str) -> Iterator[CoordinatorRecord]:
    found = talk.quietly(metadata(GROUPS_TOPIC), MetadataResponse).topics[0]
    topic = Topic(GROUPS_TOPIC, found.topic_id)
    index, offset = partition_for(group, len(found.partitions)), 0
    while True:
        place = from_offset(topic, offset, partition=index, max_bytes=CHUNK_BYTES)
        answer = talk.quietly(fetch(place, max_bytes=CHUNK_BYTES), FetchResponse)
        chunk = memoryview(bytes(answer.responses[0].partitions[0].records or b""))
        if not chunk:
            return
        for position, header in read_headers(chunk):
            offset = header.last_offset + 1
            batch = chunk[position : position + header.size_bytes]
            for record in (
                () if header.is_control else read_record_batch(batch, header, RECORD_TYPES)
            ):
                key: Any = record.key
                if getattr(key, "group_id", getattr(key, "group", None)) == group:
                    yield record


def _plain(talk: Conversation, record: CoordinatorRecord) -> Plain:
    value = None
    if record.value is not None:
        value = talk.plain(record.value)
        value |= {name: word for name, word in _OWN.items() if name in value}
        if value.get("leader"):
            value["leader"] = talk.plain(JoinGroupResponse(leader=value["leader"]))["leader"]
    return {
        "kind": type(record.key).__name__,
        "key": talk.plain(record.key),
        "version": record.value_version,
        "value": value,
    }
