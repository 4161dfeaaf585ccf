"""Records of committed offsets: encoded many at a time, and replayed.

Commits are most of what is written to `__consumer_offsets`, and the records of one commit differ
only in a few numbers. So their bytes are assembled here, in a fraction of the time that the general
codec takes; the messages are there as well, for replay. A test compares both.
"""

from struct import Struct as Layout
from typing import Any, Final

from headrace.coordinator.records import CoordinatorRecord, EncodedRecord
from headrace.groups.offsets.store import CommittedOffset
from headrace.groups.state import GroupsState
from headrace.ids import ZERO_TOPIC_ID
from headrace.wire.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from headrace.wire.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from headrace.wire.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.messages.offset_commit_value import OffsetCommitValue
from headrace.wire.primitives import write_varint

VALUE_VERSION: Final = 4
VALUE_VERSION_WITH_EXPIRY: Final = 1
"""The one version of the value that can say when it ends."""
NO_EXPIRY: Final = -1

_TEXT_LENGTH: Final = Layout(">h")
_PARTITION: Final = Layout(">i")
_VALUE: Final = Layout(">hqi")
"""Version, offset, leader epoch."""
_TIMESTAMP: Final = Layout(">q")
_TYPE_OF_KEY: Final = _TEXT_LENGTH.pack(OffsetCommitKey.API_KEY)
_NO_TAGS: Final = b"\x00"
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"
"""One tagged field: number 0, of sixteen bytes."""


class OffsetRecords:
    """Makes the records of one commit for the partitions of one topic."""

    __slots__ = ("_group_id", "_key", "_rest", "_topic", "_value")

    def __init__(
        self, group_id: str, topic: str, topic_id: bytes, now_ms: int, expires_ms: int
    ) -> None:
        self._group_id, self._topic = group_id, topic
        if expires_ms != NO_EXPIRY:
            topic_id = ZERO_TOPIC_ID  # that version has no place for it, and would lose it
        self._value = now_ms, expires_ms, topic_id
        self._key = _TYPE_OF_KEY + _text(group_id) + _text(topic)
        self._rest: bytes | None = None
        """The end of every value; None where the version has another form."""
        if expires_ms == NO_EXPIRY:
            tags = _NO_TAGS if topic_id == ZERO_TOPIC_ID else _TOPIC_ID_TAG + topic_id
            self._rest = _TIMESTAMP.pack(now_ms) + tags

    def make(self, index: int, offset: int, leader_epoch: int, metadata: str) -> CoordinatorRecord:
        key = OffsetCommitKey(self._group_id, self._topic, index)
        value = OffsetCommitValue(offset, leader_epoch, metadata, *self._value)
        if self._rest is None:
            return CoordinatorRecord(key, value, VALUE_VERSION_WITH_EXPIRY)
        text = metadata.encode()
        encoded = EncodedRecord(
            self._key + _PARTITION.pack(index),
            _VALUE.pack(VALUE_VERSION, offset, leader_epoch)
            + write_varint(len(text) + 1)
            + text
            + self._rest,
        )
        return CoordinatorRecord(key, value, VALUE_VERSION, encoded=encoded)


def _text(text: str) -> bytes:
    data = text.encode()
    return _TEXT_LENGTH.pack(len(data)) + data


# Replay


def replay_offset(state: GroupsState, record: CoordinatorRecord) -> None:
    """Apply a committed offset, or the tombstone of one."""
    key: Any = record.key
    value: Any = record.value
    place = (key.topic, key.partition)
    if value is None:
        state.offsets.remove(key.group, place)
        return
    expires_ms = value.expire_timestamp
    offset = CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        None if expires_ms == NO_EXPIRY else expires_ms,
        value.topic_id,
    )
    state.offsets.put(key.group, place, offset, producer_id=record.producer_id)


def replay_legacy_offset(state: GroupsState, record: CoordinatorRecord) -> None:
    """Apply an offset that a very old broker wrote."""
    key, value = record.key, record.value
    assert isinstance(key, LegacyOffsetCommitKey)
    place = (key.topic, key.partition)
    if value is None:
        state.offsets.remove(key.group, place)
        return
    assert isinstance(value, LegacyOffsetCommitValue)
    offset = CommittedOffset(
        value.offset, metadata=value.metadata, commit_timestamp_ms=value.commit_timestamp
    )
    state.offsets.put(key.group, place, offset, producer_id=record.producer_id)
