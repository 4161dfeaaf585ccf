"""Leases: what readers of the store ask deletion to leave alone for a while.

A reader that goes to the store itself, such as a Spark job, is not known to the brokers. Before it
looks what there is to read, it writes a lease. Whoever deletes asks for the leases after it has
announced the deletion, or has removed the object that makes a segment complete, and before it
removes anything else. So a segment that a reader still saw as complete is one whose lease deletion
sees. A lease ends by itself: a reader that died holds nothing up for long.

    .headrace/leases/<id>.json
    .headrace/leases/<id>/<number>      a part of the reader that is done
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headrace.ids import PartitionIndex, TopicId, parse_topic_id, topic_id_text
from headrace.remote.layout import LEASES_PREFIX, lease_key
from headrace.remote.segments import PartitionKey
from headrace.remote.store import NoSuchObject, ObjectStore

VERSION: Final = 1
LEASE_MS: Final = 10 * 60_000
"""How long a lease lasts unless it is renewed."""
SKEW_MS: Final = 60_000
"""By how much the clocks of a reader and of a broker may differ."""
LEASE_BYTES_MAX: Final = 1024 * 1024


class LeasedRange(msgspec.Struct, frozen=True, rename="camel"):
    """Offsets of a partition, from `start` up to, not including, `stop`."""

    partition: int
    start: int = 0
    stop: int | None = None
    """None: to the end, whatever comes."""


class LeasedTopic(msgspec.Struct, frozen=True, rename="camel"):
    """What is read of a topic."""

    topic_id: str
    topic: str = ""
    ranges: tuple[LeasedRange, ...] | None = None
    """None: all partitions."""


class Lease(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a reader reads, and until when it says so."""

    id: str
    holder: str
    """A description of the reader, for people."""
    expires_ms: int
    topics: tuple[LeasedTopic, ...]
    version: int = VERSION

    def is_over(self, now_ms: int) -> bool:
        return now_ms > self.expires_ms + SKEW_MS

    def covers(self, key: PartitionKey, start: int, stop: int) -> bool:
        """Return whether offsets of a partition are among those that are read."""
        topic_id, index = key
        name = topic_id_text(topic_id)
        for topic in self.topics:
            if topic.topic_id != name:
                continue
            if topic.ranges is None:
                return True
            for each in topic.ranges:
                ends_before = each.stop is not None and each.stop <= start
                if each.partition == index and each.start < stop and not ends_before:
                    return True
        return False

    def renewed(self, now_ms: int, lease_ms: int = LEASE_MS) -> "Lease":
        """Return it with a new end, never an earlier one."""
        return msgspec.structs.replace(self, expires_ms=max(self.expires_ms, now_ms + lease_ms))


class Leases:
    """The leases that hold at a time."""

    def __init__(self, leases: Iterable[Lease], now_ms: int) -> None:
        self.current = [each for each in leases if not each.is_over(now_ms)]

    def protecting(self, key: PartitionKey, start: int, stop: int) -> Lease | None:
        """Return a lease on offsets of a partition, the one that lasts longest."""
        found = [each for each in self.current if each.covers(key, start, stop)]
        return max(found, key=lambda each: each.expires_ms, default=None)

    def protect_topic(self, topic_id: TopicId) -> bool:
        """Return whether anything of a topic is leased."""
        name = topic_id_text(topic_id)
        return any(topic.topic_id == name for each in self.current for topic in each.topics)


def whole_topic(topic_id: TopicId, topic: str) -> LeasedTopic:
    return LeasedTopic(topic_id_text(topic_id), topic)


def partitions_of(
    topic_id: TopicId, topic: str, ranges: Sequence[tuple[PartitionIndex, int, int | None]]
) -> LeasedTopic:
    return LeasedTopic(topic_id_text(topic_id), topic, tuple(LeasedRange(*each) for each in ranges))


def encode_lease(lease: Lease) -> bytes:
    return msgspec.json.format(msgspec.json.encode(lease), indent=2) + b"\n"


def decode_lease(data: bytes, key: str) -> Lease:
    """Return a lease; what cannot be read protects everything it may name.

    Raise ValueError: the caller must not delete anything then, as nobody knows what is read.
    """
    try:
        lease = msgspec.json.decode(data, type=Lease)
        for topic in lease.topics:
            parse_topic_id(topic.topic_id)
    except (msgspec.DecodeError, ValueError) as error:
        raise ValueError(f"{key} is not a lease: {error}") from None
    if lease.version != VERSION:
        raise ValueError(f"{key} is a lease of version {lease.version}; only {VERSION} is read")
    return lease


async def write_lease(store: ObjectStore, lease: Lease) -> None:
    """Write a lease, or a renewed one in the place of the old."""
    data = encode_lease(lease)
    await store.put(lease_key(lease.id), data, len(data))


async def end_lease(store: ObjectStore, lease_id: str) -> None:
    """Remove a lease; one that is gone is fine."""
    await store.delete([lease_key(lease_id)])


async def renew_lease(store: ObjectStore, lease: Lease, now_ms: int, lease_ms: int) -> Lease:
    """Write a lease again if a third of its time is over; return the one that holds.

    Many tasks share one lease: whoever comes first renews it, the others see that.
    """
    if lease.expires_ms - now_ms > lease_ms * 2 // 3:
        return lease
    key = lease_key(lease.id)
    try:
        stored = decode_lease(bytes(await store.get(key, 0, LEASE_BYTES_MAX)), key)
    except (NoSuchObject, ValueError):
        stored = lease
    else:
        if stored.expires_ms - now_ms > lease_ms * 2 // 3:
            return stored
    renewed = stored.renewed(now_ms, lease_ms)
    await write_lease(store, renewed)
    return renewed


async def check_lease(store: ObjectStore, lease: Lease, now_ms: int, lease_ms: int) -> Lease:
    """Write a lease again if it is gone, as when a query runs a second time."""
    try:
        await store.get(lease_key(lease.id), 0, 1)
    except NoSuchObject:
        lease = lease.renewed(now_ms, lease_ms)
        await write_lease(store, lease)
    return lease


async def finish_part(store: ObjectStore, lease_id: str, number: int, count: int) -> bool:
    """Record that one of `count` parts of a reader is done; end the lease after the last one.

    Return whether it ended. A part may be done twice: Spark repeats tasks.
    """
    prefix = f"{LEASES_PREFIX}{lease_id}/"
    await store.put(f"{prefix}{number}", b"", 0)
    done = [each.key async for page in store.list_objects(prefix) for each in page]
    if len(done) < count:
        return False
    await end_lease(store, lease_id)
    await store.delete(done)
    return True


async def read_leases(store: ObjectStore, now_ms: int) -> Leases:
    """Return the leases of a store.

    Raise StoreError if they cannot be read, and ValueError if one of them is not understood. Then
    nothing may be deleted. Those that are over for long are removed on the way.
    """
    found: list[Lease] = []
    over: list[str] = []
    parts: list[tuple[str, str]] = []
    async for page in store.list_objects(LEASES_PREFIX):
        for stored in page:
            lease_id, _, part = stored.key.removeprefix(LEASES_PREFIX).partition("/")
            if part:
                parts.append((lease_id, stored.key))
                continue
            try:
                data = bytes(await store.get(stored.key, 0, LEASE_BYTES_MAX))
            except NoSuchObject:
                continue  # it ended in between
            lease = decode_lease(data, stored.key)
            if lease.is_over(now_ms):
                over.append(stored.key)
            else:
                found.append(lease)
    held = {lease.id for lease in found}
    over += [key for lease_id, key in parts if lease_id not in held]
    if over:
        await store.delete(over)
    return Leases(found, now_ms)
