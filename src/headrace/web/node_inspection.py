"""What a node says of itself: `GET /node/segments`, `/node/view` and `/node/metadata`.

Looking changes nothing. The fields are those of `client.node_inspection`. Credentials and tokens
in metadata entries are left out, and of configs only the names are shown: on loopback everybody
may read the pages, so what they show must not be secret.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headrace.client.node_inspection import (
    EntriesPage,
    InspectedEntry,
    InspectedNode,
    InspectedSegment,
    InspectedSession,
    NodePage,
    SegmentsPage,
)
from headrace.cluster.operator_words import UNKNOWN_MS, NodeView
from headrace.errors import HeadraceError
from headrace.loop.slices import Slice, Slices
from headrace.metadata import ddl
from headrace.metadata.entries import (
    Batch,
    CatalogDdl,
    CatalogDdlAudited,
    JoinTokenTransition,
    decode_entry,
)
from headrace.raft.entries import Entry, EntryKind
from headrace.replication.partition import Partition

if TYPE_CHECKING:
    from headrace.node.node import Node

ENTRIES_MAX: Final = 1000
"""The most entries of one page."""
ENTRY_BYTES_MAX: Final = 4 * 1024 * 1024
"""The most bytes of entries on one page; one entry may be larger."""
_SECRET: Final = (
    ddl.SetScramCredential,
    ddl.RemoveScramCredential,
    ddl.SetDelegationToken,
    ddl.ChangeTokenExpiry,
    ddl.RemoveDelegationToken,
    JoinTokenTransition,
)
_SEGMENT_UNITS: Final = 10
"""What a segment costs of a slice: its last timestamp may have to be read from its index."""


def describe_segments(node: "Node", topics: Collection[str] | None) -> Slices[SegmentsPage]:
    """Return the segments of the replicas on this node, some per slice."""
    current = Slice()
    rows: list[InspectedSegment] = []
    for partition in list(node.broker.replicas):
        if topics is not None and partition.topic not in topics:
            continue
        rows += _segments(partition)
        if current.spend(5 + _SEGMENT_UNITS * len(partition.log.segments)):
            yield
    return SegmentsPage(int(node.node_id), tuple(rows))


def describe_view(view: NodeView) -> NodePage:
    """Return the operator's view of a node, without what only operators need."""
    quorum = view.quorum
    return NodePage(
        node=view.node,
        version=view.version,
        waiting=view.waiting,
        is_controller=view.is_controller,
        term=0 if quorum is None else quorum.term,
        applied=0 if quorum is None else quorum.applied,
        nodes=tuple(
            InspectedNode(
                row.node, row.address, row.state, row.is_registered, row.is_fenced, row.is_stopping
            )
            for row in view.nodes
        ),
        sessions=tuple(
            InspectedSession(
                row.node,
                None if row.heard_ms_ago == UNKNOWN_MS else row.heard_ms_ago,
                row.ends_in_ms,
                row.is_suspect,
            )
            for row in view.sessions
        ),
    )


def take_entries(node: "Node", first: int, stop: int | None) -> tuple[int, list[Entry], int | None]:
    """Return the first kept index, the entries of a page, and where the next page begins.

    On the loop, as the log changes there; `describe_entries` may follow in a thread.
    """
    driver = node.broker.quorum.driver
    log = driver.state.log
    first_kept = log.base_index + 1
    end = driver.applied_index + 1 if stop is None else min(stop, driver.applied_index + 1)
    at = max(first, first_kept)
    if at >= end:
        return first_kept, [], None
    start = at - first_kept
    kept: list[Entry] = []
    size = 0
    for entry in log.entries[start : start + min(end - at, ENTRIES_MAX)]:
        size += entry.size_bytes
        if kept and size > ENTRY_BYTES_MAX:
            break
        kept.append(entry)
    following = kept[-1].index + 1
    return first_kept, kept, following if following < end else None


def describe_entries(node_id: int, taken: tuple[int, list[Entry], int | None]) -> bytes:
    """Return the page of entries as JSON."""
    first_kept, entries, following = taken
    rows = tuple(map(_entry, entries))
    return msgspec.json.encode(EntriesPage(node_id, first_kept, rows, following))


def _segments(partition: Partition) -> list[InspectedSegment]:
    log = partition.log
    segments = log.segments
    ends = [*(each.base_offset for each in segments[1:]), log.end_offset]
    return [
        InspectedSegment(
            topic=partition.topic,
            partition=partition.index,
            base_offset=segment.base_offset,
            end_offset=end,
            size_bytes=segment.size_bytes,
            last_timestamp=segment.largest_timestamp,
            is_active=segment is segments[-1],
            is_leader=partition.is_leader,
        )
        for segment, end in zip(segments, ends, strict=True)
    ]


def _entry(entry: Entry) -> InspectedEntry:
    if entry.kind is not EntryKind.DATA:
        return InspectedEntry(entry.index, entry.term, entry.kind.name, entry.size_bytes)
    try:
        kind, details = _content(decode_entry(entry.data))
    except HeadraceError as error:  # such an entry stops a node, so somebody may look at it here
        kind, details = "UNREADABLE", {"error": str(error)}
    text = None if details is None else msgspec.json.encode(details, enc_hook=str).decode()
    return InspectedEntry(entry.index, entry.term, kind, entry.size_bytes, text)


def _content(entry: Any) -> tuple[str, Any]:
    """Return the kind of an entry and what may be shown of it, None if nothing may."""
    if isinstance(entry, CatalogDdlAudited):
        kind, details = _content(ddl.decode_ddl(entry.payload))
        asked = {"requester": entry.auth_user_name, "request": entry.sql_text}
        return kind, {**(details or {}), **asked}
    if isinstance(entry, CatalogDdl):
        return _content(ddl.decode_ddl(entry.payload))
    kind = type(entry).__name__
    if isinstance(entry, Batch):
        contents = (_content(each) for each in entry.entries)
        return kind, {"entries": [{"kind": name, "details": each} for name, each in contents]}
    if isinstance(entry, _SECRET):
        return kind, None
    if isinstance(entry, ddl.SetConfigs | ddl.SetConfigsIf):
        return kind, {
            "resource_type": entry.resource_type.name,
            "resource_name": entry.resource_name,
            "names": sorted(entry.values),
        }
    return kind, _plain(entry)


def _plain(value: Any, *, is_inner: bool = False) -> Any:
    """Return a value in JSON's types; bytes become hexadecimal text."""
    if isinstance(value, msgspec.Raw | bytes):
        return bytes(value).hex()
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        fields = {name: _plain(getattr(value, name), is_inner=name == "change") for name in names}
        # Of a change, its class says what it is.
        return {"kind": type(value).__name__, **fields} if is_inner else fields
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list | frozenset | set):
        return [_plain(each) for each in value]
    if hasattr(value, "name") and hasattr(value, "value"):
        return value.name
    return value
