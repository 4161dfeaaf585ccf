"""Records that were given to the user and wait for a word about each, in explicit mode.

Pure. A record whose lock is renewed stays here: it comes with the next poll again, and is to be
acknowledged again.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.client.share.acknowledgements import AcknowledgeType
from headrace.client.share.acquired import ShareRecord
from headrace.client.share.delivery import Lease, Portion
from headrace.client.topics import TopicPartition
from headrace.errors import KafkaError

_KINDS: Final = frozenset(AcknowledgeType)
_NAMED_MAX: Final = 5
"""How many offsets of a partition a message names."""


class _Held(msgspec.Struct):
    """Records of one partition, by offset."""

    lease: Lease
    records: dict[int, ShareRecord]
    types: dict[int, int]
    """What was said of them."""
    renewing: dict[int, ShareRecord]
    """Records with a renewal in flight."""
    renewed: dict[int, ShareRecord]
    """Those to be given again."""


class HeldRecords:
    """Everything that the user has, by partition."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], _Held] = {}

    def add(self, portions: Iterable[Portion]) -> None:
        """Keep what a poll gives."""
        for lease, records, _ in portions:
            by_offset = {record.offset: record for record in records}
            self._held[lease.shared.partition] = _Held(lease, by_offset, {}, {}, {})

    def acknowledge(self, partition: tuple[str, int], offset: int, kind: int) -> None:
        """Acknowledge a record; raise ValueError if the user does not hold it."""
        held = self._held.get(partition)
        if held is None or offset not in held.records:
            held = self._renewed(partition, offset)
        if kind not in _KINDS:
            raise ValueError(f"there is no acknowledgement of type {kind}")
        held.types[offset] = kind

    def _renewed(self, partition: tuple[str, int], offset: int) -> _Held:
        """Find a record that is to be given again, and take it as given."""
        held = self._held.get(partition)
        if held is None or offset not in held.renewed:
            raise ValueError(
                f"offset {offset} of {TopicPartition(*partition)} is not of the last poll, "
                "or acknowledged and sent already"
            )
        held.records[offset] = held.renewed.pop(offset)
        return held

    def check_acknowledged(self) -> None:
        """RuntimeError that says which records the user has said nothing of."""
        missing: list[str] = []
        count = 0
        for partition, held in self._held.items():
            if len(held.types) == len(held.records):
                continue
            offsets = sorted(held.records.keys() - held.types.keys())
            count += len(offsets)
            named = ", ".join(map(str, offsets[:_NAMED_MAX]))
            more = len(offsets) - _NAMED_MAX
            tail = f" and {more} more" if more > 0 else ""
            missing.append(f"{TopicPartition(*partition)} offset {named}{tail}")
        if missing:
            raise RuntimeError(
                f"{count} records of the last poll are not acknowledged: {'; '.join(missing)}; "
                "acknowledge each before the next poll"
            )

    def take_acknowledged(self) -> list[tuple[Lease, dict[int, int]]]:
        """Return the acknowledgements to send, and keep only unacknowledged records."""
        taken: list[tuple[Lease, dict[int, int]]] = []
        for partition, held in list(self._held.items()):
            if not held.types:
                continue
            types, held.types = held.types, {}
            taken.append((held.lease, types))
            if AcknowledgeType.RENEW in types.values():
                for offset, kind in types.items():
                    if kind == AcknowledgeType.RENEW:
                        held.renewing[offset] = held.records[offset]
            if len(types) == len(held.records):
                held.records = {}
            else:
                for offset in types:
                    del held.records[offset]
            self._drop_if_empty(partition, held)
        return taken

    def settle_renewals(
        self, partition: TopicPartition, offsets: Iterable[int], error: KafkaError | None
    ) -> None:
        """Make renewed records available again; with an error the user no longer holds them."""
        held = self._held.get(partition)
        if held is None:
            return
        for offset in offsets:
            record = held.renewing.pop(offset, None)
            if record is not None and error is None:
                held.renewed[offset] = record
        self._drop_if_empty(partition, held)

    @property
    def has_renewals(self) -> bool:
        """Whether a renewal is in flight, or a renewed record waits to be returned."""
        return any(held.renewing or held.renewed for held in self._held.values())

    def take_renewed(self) -> list[ShareRecord]:
        """Return renewed records, once no renewal is in flight."""
        if any(held.renewing for held in self._held.values()):
            return []
        given: list[ShareRecord] = []
        for held in self._held.values():
            given.extend(record for _, record in sorted(held.renewed.items()))
            held.records.update(held.renewed)
            held.renewed = {}
        return given

    def _drop_if_empty(self, partition: tuple[str, int], held: _Held) -> None:
        if not (held.records or held.renewing or held.renewed):
            del self._held[partition]
