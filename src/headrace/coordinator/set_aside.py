"""Ids of an internal topic that are not served because one of their records cannot be read.

A record with a readable key names its group or transactional id: that id is refused until the
record is superseded, by a later one with its key or by deletion; all others are served. A record
whose key is unreadable too, although its batch is intact, was not written by a coordinator: every
key type has one format that never changes. Such a record is skipped. A record that can be read but
not replayed, because its value makes no sense, counts as one whose value cannot be read.
"""

from collections.abc import Sequence
from typing import Final

from headrace.coordinator.records import CoordinatorRecord, EncodedRecord, UnreadableRecord
from headrace.errors import ErrorCode, KafkaError

_NONE: Final[Sequence[CoordinatorRecord]] = ()


class SetAside:
    """Unreadable records of one partition, by their id."""

    def __init__(self) -> None:
        self._records: dict[str, dict[bytes, UnreadableRecord]] = {}
        self._ids: dict[bytes, str] = {}

    def __bool__(self) -> bool:
        return bool(self._ids)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._records

    def add(self, id_: str, record: UnreadableRecord) -> None:
        self._ids[record.raw_key] = id_
        self._records.setdefault(id_, {})[record.raw_key] = record

    def supersede(self, raw_key: bytes) -> None:
        """Record that there is a newer record with a key."""
        id_ = self._ids.pop(raw_key, None)
        if id_ is None:
            return
        records = self._records[id_]
        del records[raw_key]
        if not records:
            del self._records[id_]

    def check(self, id_: str, partition: str) -> None:
        """Raise UNKNOWN_SERVER_ERROR if an id is not served: a retry would not help."""
        if (records := self._records.get(id_)) is not None:
            first = next(iter(records.values()))
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{id_!r} is not served: its record at offset {first.offset} of {partition} cannot "
                f"be read ({first.reason})",
            )

    def tombstones(self, id_: str) -> Sequence[CoordinatorRecord]:
        """Return the tombstones that delete the unreadable records."""
        return tuple(
            CoordinatorRecord(each.key, None, encoded=EncodedRecord(each.raw_key, None))
            for each in self._records.get(id_, {}).values()
            if each.key is not None
        )
