"""A Headrace node's view of a share group's records, at `GET /share/{group}/{topic}`.

The page is JSON with these fields. Only the leader of a partition knows which member holds which
records: locks are not in a log. The node's config `http.listen` has the address of its pages.
"""

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.node_pages import NoPage, Pages, find_page, get_page


class InFlightRun(msgspec.Struct, frozen=True):
    """Neighbours that the same is true of."""

    first_offset: int
    last_offset: int
    state: str
    """available, acquired, acknowledged, archiving or archived."""
    delivery_count: int
    member_id: str | None = None
    """The member that holds them."""
    client_id: str | None = None
    client_host: str | None = None
    lock_left_ms: int | None = None
    resting_ms: int | None = None
    """How long until what was released may be delivered again."""
    cause: str | None = None
    """Why they were given up."""


class ArchivedRun(msgspec.Struct, frozen=True):
    """Neighbours that were given up lately."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: str


class LettersInspected(msgspec.Struct, frozen=True):
    """How the dead letters of a partition get on."""

    waiting_records: int
    failed_attempts: int
    error: str | None = None
    """Why the last attempt failed."""


class InspectedPartition(msgspec.Struct, frozen=True):
    """A partition: all there is to know if it `is_loaded` on the node, else what is written."""

    partition: int
    leader: int
    is_loaded: bool = False
    start_offset: int | None = None
    """Everything before it is done."""
    end_offset: int | None = None
    """The last offset that was ever delivered, or passed over."""
    high_watermark: int | None = None
    state_epoch: int | None = None
    leader_epoch: int | None = None
    delivery_complete_count: int | None = None
    """How many records from the start on are done."""
    waiting_fetches: int | None = None
    in_flight: tuple[InFlightRun, ...] = ()
    archived: tuple[ArchivedRun, ...] = ()
    dead_letters: LettersInspected | None = None


class InspectedBreaker(msgspec.Struct, frozen=True):
    """A group's circuit breaker on the node."""

    state: str
    """closed, open or half-open."""
    rejected: int
    records: int
    """How many had an outcome in the window, rejected ones included."""
    pause_left_ms: int | None = None
    openings: int = 0


class Inspection(msgspec.Struct, frozen=True):
    """A group's records of a topic, on one node."""

    group: str
    topic: str
    topic_id: str
    node: int
    partitions: tuple[InspectedPartition, ...]
    breaker: InspectedBreaker | None = None
    """None where the group has none."""


NotInspected = NoPage
"""The node does not know the queue, or is no Headrace."""


async def find_pages(cluster: Cluster, topic: str) -> list[Pages]:
    """Return where the nodes that lead partitions of a topic have their pages.

    KafkaError if there is no such topic, NotInspected if a node has no pages.
    """
    known = await cluster.topic(topic)
    leaders = sorted({row.leader_id for row in known.partitions if row.leader_id >= 0})
    return [await find_page(cluster, node_id) for node_id in leaders]


def merge(found: Sequence[Inspection]) -> Inspection:
    """Return what several nodes say of a queue as one: of each partition, what its leader says."""
    first = found[0]
    partitions = sorted(
        (row for each in found for row in each.partitions if row.leader == each.node),
        key=lambda row: row.partition,
    )
    breakers = [each.breaker for each in found if each.breaker is not None]
    breakers.sort(key=lambda breaker: breaker.state == "closed")
    return msgspec.structs.replace(
        first, partitions=tuple(partitions), breaker=breakers[0] if breakers else None
    )


def inspect_queue(pages: Pages, group: str, topic: str) -> Inspection:
    """Ask a node of a queue; NotReachable or NotInspected says why it does not tell."""
    page = get_page(pages, f"/share/{quote(group, safe='')}/{quote(topic, safe='')}")
    try:
        return msgspec.json.decode(page, type=Inspection)
    except msgspec.MsgspecError:
        raise NotInspected(f"{pages} returned another page; is it Headrace?") from None
