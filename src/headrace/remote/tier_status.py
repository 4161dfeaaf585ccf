"""What a node says of its tier, at `GET /tier` of its HTTP port: JSON with these fields. Pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

PATH: Final = "/tier"


class Work(msgspec.Struct, frozen=True):
    """Work of one kind since the node started."""

    requests: int
    errors: int
    bytes: int


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of a node, as far as the tier is concerned."""

    topic: str
    partition: int
    is_leader: bool
    is_ready: bool
    """Whether the node knows what is in the tier."""
    start_offset: int
    """The first offset that can be read."""
    local_start_offset: int
    """The first one on the node's disk."""
    remote_end_offset: int
    """The one after the last in the tier."""
    end_offset: int
    remote_segments: int
    """As the leader has seen them last."""
    remote_bytes: int
    local_bytes: int
    lag_segments: int
    """Finished segments that are not in the tier yet."""
    lag_bytes: int
    delete_segments: int
    """Segments that are to be deleted from the tier."""
    delete_bytes: int
    dropped_bytes: int
    """What was deleted here without a copy (headrace.tier.drop.uncopied)."""
    is_copying: bool
    problem: str | None = None
    """Why copying, deleting or taking over what is there rests."""


class TierStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The tier of a node."""

    node: int
    store: str
    """Where it is, without a secret."""
    uptime_ms: int
    copied: Work
    deleted: Work
    fetched: Work
    puts: int
    """Requests to the store as a provider bills them."""
    gets: int
    deletes: int
    lists: int
    put_bytes: int
    get_bytes: int
    store_errors: int
    known_segments: int
    """Descriptions that the node keeps, of whatever partition."""
    refused_events: int
    swept_partitions: int
    """Partitions of deleted topics that are gone from the tier."""
    leased: int
    """How often a reader's lease has delayed a deletion."""
    problems: tuple[str, ...]
    partitions: tuple[PartitionStatus, ...]


def leaders_first(statuses: Iterable[TierStatus]) -> list[tuple[int, PartitionStatus]]:
    """Return every partition with the node that said so: its leader's word, if it has one.

    Sorted by topic and partition.
    """
    found: dict[tuple[str, int], tuple[int, PartitionStatus]] = {}
    for status in statuses:
        for row in status.partitions:
            key = row.topic, row.partition
            if key not in found or row.is_leader:
                found[key] = status.node, row
    return [row for _, row in sorted(found.items())]
