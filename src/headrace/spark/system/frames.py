"""The catalogue of system frames: their names, their columns with types and meanings. Pure.

`collecting` fills the frames, `source` shows them to Spark.
"""

from difflib import get_close_matches
from typing import Final

import msgspec

from headrace.spark.options import InvalidOption

STRING: Final = "string"
INT: Final = "int"
LONG: Final = "bigint"
BOOLEAN: Final = "boolean"
TIMESTAMP: Final = "timestamp"
INTS: Final = "array<int>"
STRINGS: Final = "array<string>"
CONFIGS: Final = "map<string,string>"


class Column(msgspec.Struct, frozen=True):
    """A column; `type` is Spark's name of its type."""

    name: str
    type: str
    doc: str


class Frame(msgspec.Struct, frozen=True):
    """A frame: one row for each thing that its `doc` names."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    needs_headrace: bool = False
    """Whether it comes from pages that only Headrace nodes have."""


def find_frame(name: str) -> Frame:
    """Return a frame by its name; InvalidOption with the nearest one if there is none."""
    found = FRAMES.get(name.lower())
    if found is None:
        near = get_close_matches(name.lower(), FRAMES, n=1, cutoff=0.5)
        meant = f", did you mean {near[0]!r}?" if near else ""
        raise InvalidOption(
            f"there is no system frame {name!r}{meant} (there are {', '.join(FRAMES)})"
        )
    return found


_GROUP: Final = Column("group_id", STRING, "The group")
_TOPIC: Final = Column("topic", STRING, "The topic")
_PARTITION: Final = Column("partition", INT, "The index of the partition")
_NODE: Final = Column("node", INT, "The id of the node")

_ALL: Final = (
    Frame(
        "nodes",
        "The brokers of the cluster and the disks of their data.",
        (
            _NODE,
            Column("host", STRING, "Where clients reach it"),
            Column("port", INT, "The port for clients"),
            Column("rack", STRING, "Its rack, if it has one"),
            Column("is_controller", BOOLEAN, "Whether it is the controller that clients are told"),
            Column("total_bytes", LONG, "The size of its disks, if it says"),
            Column("usable_bytes", LONG, "How much of them is free, if it says"),
            Column("log_bytes", LONG, "What its replicas take"),
            Column("replicas", INT, "How many replicas it has"),
        ),
    ),
    Frame(
        "sessions",
        "Every node that the cluster knows, and its session with the controller.",
        (
            _NODE,
            Column("address", STRING, "Its node port"),
            Column("state", STRING, "LEARNER, ACTIVE, DRAINING or DECOMMISSIONED"),
            Column("is_registered", BOOLEAN, "Whether it is registered as a broker"),
            Column("is_fenced", BOOLEAN, "Whether it may lead nothing now"),
            Column("is_stopping", BOOLEAN, "Whether it is shutting down"),
            Column("is_controller", BOOLEAN, "Whether it holds the sessions of the others"),
            Column("heard_ms_ago", LONG, "When the controller heard of it last; null if never"),
            Column("ends_in_ms", LONG, "When its session ends if nothing is heard"),
            Column("is_suspect", BOOLEAN, "Whether other nodes doubt that it runs"),
            Column("version", STRING, "Its version of Headrace; null if it gave no page"),
            Column("applied", LONG, "The last metadata entry that it has applied"),
            Column("problem", STRING, "Why it gave no page, or what it waits for"),
        ),
        needs_headrace=True,
    ),
    Frame(
        "topics",
        "Topics, internal ones included.",
        (
            _TOPIC,
            Column("topic_id", STRING, "Its id, as Kafka's tools write it"),
            Column("is_internal", BOOLEAN, "Whether the cluster keeps it for itself"),
            Column("partitions", INT, "How many partitions it has"),
            Column("replication_factor", INT, "How many replicas its first partition has"),
            Column("leaderless", INT, "Partitions without a leader"),
            Column("under_replicated", INT, "Partitions with replicas that are not in sync"),
            Column("configs", CONFIGS, "The configs that were set for it"),
        ),
    ),
    Frame(
        "partitions",
        "Partitions of topics: where they are, where they begin and end.",
        (
            _TOPIC,
            _PARTITION,
            Column("leader", INT, "The node that leads it; null if none does"),
            Column("leader_epoch", INT, "How often its leader has changed"),
            Column("replicas", INTS, "The nodes that keep it, the preferred leader first"),
            Column("in_sync", INTS, "The replicas that have everything"),
            Column("offline", INTS, "The replicas on nodes or disks that are away"),
            Column("start_offset", LONG, "The first offset that can be read"),
            Column("end_offset", LONG, "The offset after the last that can be read"),
            Column("stable_offset", LONG, "Where readers of committed records stop now"),
            Column("size_bytes", LONG, "What its leader keeps of it on disk"),
            Column("problem", STRING, "Why offsets are null"),
        ),
    ),
    Frame(
        "segments",
        "Segments on the disks of the nodes, one row for each replica's.",
        (
            _NODE,
            _TOPIC,
            _PARTITION,
            Column("base_offset", LONG, "Its first offset"),
            Column("end_offset", LONG, "The offset after its last"),
            Column("size_bytes", LONG, "The size of its records"),
            Column("last_timestamp", TIMESTAMP, "The latest time of a record in it"),
            Column("is_active", BOOLEAN, "Whether records are still appended to it"),
            Column("is_leader", BOOLEAN, "Whether the node leads the partition"),
        ),
        needs_headrace=True,
    ),
    Frame(
        "groups",
        "Groups of all types, and how far they are behind.",
        (
            _GROUP,
            Column("type", STRING, "classic, consumer, streams or share"),
            Column("state", STRING, "Stable, Empty, PreparingRebalance and so on"),
            Column("protocol", STRING, "What its members agreed on; consumer for consumers"),
            Column("assignor", STRING, "Who decides which member gets which partition"),
            Column("coordinator", INT, "The node that coordinates it"),
            Column("epoch", INT, "Its epoch, where the type has one"),
            Column("members", INT, "How many members it has"),
            Column("partitions", INT, "How many partitions it has a position in"),
            Column("lag", LONG, "The sum of its lags; null if none is known"),
            Column("lag_max", LONG, "The largest lag of a partition"),
        ),
    ),
    Frame(
        "group_offsets",
        "The position of each group in each partition.",
        (
            _GROUP,
            Column("type", STRING, "classic, consumer, streams or share"),
            _TOPIC,
            _PARTITION,
            Column("offset", LONG, "Committed; of a share group, before it everything is done"),
            Column("end_offset", LONG, "The end of the partition; null if it is not known"),
            Column("lag", LONG, "How many records are to come; null if it is not known"),
            Column("member_id", STRING, "The member that has the partition"),
            Column("client_id", STRING, "The client id of that member"),
            Column("host", STRING, "The host of that member"),
            Column("metadata", STRING, "What was committed beside the offset"),
        ),
    ),
    Frame(
        "group_members",
        "Members of groups.",
        (
            _GROUP,
            Column("type", STRING, "classic, consumer, streams or share"),
            Column("member_id", STRING, "The id that the coordinator knows it by"),
            Column("instance_id", STRING, "Its static id, if it has one"),
            Column("client_id", STRING, "Its client id"),
            Column("host", STRING, "Where it connects from"),
            Column("rack", STRING, "Its rack, if it says"),
            Column("epoch", INT, "Its epoch, where the type has one"),
            Column("subscription", STRINGS, "Topics, or a regular expression"),
            Column("assignment", STRINGS, "Its partitions, as topic-index"),
        ),
    ),
    Frame(
        "share_partitions",
        "The state of each share group in each partition that it reads.",
        (
            _GROUP,
            _TOPIC,
            _PARTITION,
            Column("leader", INT, "The node that hands out its records"),
            Column("is_loaded", BOOLEAN, "Whether the group is reading it now"),
            Column("start_offset", LONG, "Everything before it is done"),
            Column("end_offset", LONG, "The last offset that was ever delivered or skipped"),
            Column("high_watermark", LONG, "The end of the partition"),
            Column("state_epoch", INT, "How often its state was reset"),
            Column("leader_epoch", INT, "The epoch of the leader that wrote its state"),
            Column("done_after_start", LONG, "How many records after the start are done"),
            Column("waiting_fetches", INT, "How many fetches wait for records"),
            Column("dead_letters_waiting", LONG, "Dead letters that are still to be sent"),
            Column("dead_letters_error", STRING, "Why the last attempt to send them failed"),
            Column("breaker", STRING, "Its circuit breaker: closed, open or half-open"),
        ),
        needs_headrace=True,
    ),
    Frame(
        "share_records",
        "Records of share groups that are in flight, and those that were given up lately.",
        (
            _GROUP,
            _TOPIC,
            _PARTITION,
            Column("first_offset", LONG, "The first of neighbours with the same state"),
            Column("last_offset", LONG, "The last of them"),
            Column("records", LONG, "How many offsets that are"),
            Column("state", STRING, "available, acquired, acknowledged, archiving or archived"),
            Column("delivery_count", INT, "How often they were delivered"),
            Column("reason", STRING, "Why they were given up: rejected, attempts used up, ..."),
            Column("member_id", STRING, "The member that holds them"),
            Column("client_id", STRING, "Its client id"),
            Column("host", STRING, "Its host"),
            Column("lock_left_ms", LONG, "How long it still holds them"),
            Column("resting_ms", LONG, "How long until they may be delivered again"),
        ),
        needs_headrace=True,
    ),
    Frame(
        "transactions",
        "Transactional ids and the state of their transactions.",
        (
            Column("transactional_id", STRING, "The id that the producer chose"),
            Column("state", STRING, "Empty, Ongoing, PrepareCommit, CompleteCommit and so on"),
            Column("producer_id", LONG, "The id that the cluster chose"),
            Column("producer_epoch", INT, "Older epochs are fenced"),
            Column("coordinator", INT, "The node that coordinates it"),
            Column("timeout_ms", LONG, "After this time the cluster aborts it"),
            Column("started", TIMESTAMP, "When the open transaction began; null if none is open"),
            Column("partitions", STRINGS, "What it has written to, as topic-index"),
        ),
    ),
    Frame(
        "metadata",
        "Entries of the metadata log that are not only in its snapshot.",
        (
            Column("index", LONG, "Its place in the log"),
            Column("term", LONG, "The term of the leader that wrote it"),
            Column("kind", STRING, "What it changes, such as CreateTopic"),
            Column("details", STRING, "Its content as JSON; null if that is secret"),
            Column("size_bytes", LONG, "Its size in the log"),
        ),
        needs_headrace=True,
    ),
)
FRAMES: Final = {frame.name: frame for frame in _ALL}
"""All frames by name."""
