"""A Headrace node's own view, from its HTTP port: segments, sessions, entries of the metadata log.

    page = await find_page(cluster, node_id)
    read_segments(page, ["orders"])         # GET /node/segments?topic=orders
    read_view(page)                         # GET /node/view
    read_entries(page, first=100)           # GET /node/metadata?first=100

Kafka's protocol has no requests for these. The pages are JSON with the fields of these structs,
which the node's side writes too. The functions block: each is one or a few HTTP requests.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec

from headrace.client.node_pages import NoPage, Pages, get_page

SEGMENTS_PATH: Final = "/node/segments"
VIEW_PATH: Final = "/node/view"
METADATA_PATH: Final = "/node/metadata"

T = TypeVar("T")


class InspectedSegment(msgspec.Struct, frozen=True):
    """One segment of a replica on a node's disk."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int
    """The offset after its last: where the next segment begins, or the log ends."""
    size_bytes: int
    last_timestamp: int
    """The largest timestamp of a record, in ms since 1970; -1 if there is none."""
    is_active: bool
    """Whether records are still appended to it."""
    is_leader: bool
    """Whether the node leads the partition."""


class SegmentsPage(msgspec.Struct, frozen=True):
    """The segments of a node."""

    node: int
    segments: tuple[InspectedSegment, ...]


class InspectedSession(msgspec.Struct, frozen=True):
    """The session of a node with the controller."""

    node: int
    heard_ms_ago: int | None
    """None if this controller has not heard of it."""
    ends_in_ms: int | None
    is_suspect: bool


class InspectedNode(msgspec.Struct, frozen=True):
    """A node, as the metadata log of the asked node has it."""

    node: int
    address: str
    """The address of its node port."""
    state: str
    is_registered: bool
    is_fenced: bool
    is_stopping: bool


class NodePage(msgspec.Struct, frozen=True):
    """A node as it sees itself and the others; `sessions` are those of a controller."""

    node: int
    version: str
    waiting: str
    """What it waits for before it serves, empty if it serves."""
    is_controller: bool
    term: int
    applied: int
    """The last metadata entry that it has applied."""
    nodes: tuple[InspectedNode, ...]
    sessions: tuple[InspectedSession, ...]


class InspectedEntry(msgspec.Struct, frozen=True):
    """One entry of the metadata log."""

    index: int
    term: int
    kind: str
    """What it changes, such as CreateTopic; NOOP and MEMBERSHIP are the log's own."""
    size_bytes: int
    details: str | None = None
    """Its content as JSON; None for entries with credentials or tokens."""


class EntriesPage(msgspec.Struct, frozen=True):
    """Some applied entries of a node's metadata log; earlier ones are only in its snapshot."""

    node: int
    first_kept: int
    entries: tuple[InspectedEntry, ...]
    next: int | None = None
    """Where to continue, None at the end."""


def read_segments(page: Pages, topics: Iterable[str] | None = None) -> SegmentsPage:
    """Return the segments on a node, of some topics if named."""
    query = "" if topics is None else "?" + urlencode([("topic", each) for each in topics])
    return _read(page, SEGMENTS_PATH + query, SegmentsPage)


def read_view(page: Pages) -> NodePage:
    """Return how a node sees itself and the others."""
    return _read(page, VIEW_PATH, NodePage)


def read_entries(page: Pages, first: int = 0, stop: int | None = None) -> Iterator[InspectedEntry]:
    """Yield the entries with indexes from `first` up to before `stop`, page after page."""
    at: int | None = first
    while at is not None:
        query = {"first": at} if stop is None else {"first": at, "stop": stop}
        found = _read(page, f"{METADATA_PATH}?{urlencode(query)}", EntriesPage)
        yield from found.entries
        if found.next is not None and found.next <= at:
            raise NoPage(f"{page} returned entries out of order")
        at = found.next


def _read(page: Pages, path: str, kind: type[T]) -> T:
    data: Any = get_page(page, path)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError:
        raise NoPage(f"{page} returned another page; is it Headrace?") from None
