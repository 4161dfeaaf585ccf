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


def _frame(name: str, doc: str, columns: str, *, needs_headrace: bool = False) -> Frame:
    """Return a frame whose columns are lines of name, type and meaning, or names in `_SHARED`."""
    rows = (line.split(maxsplit=2) for line in columns.strip().splitlines())
    found = tuple(_SHARED[row[0]] if len(row) == 1 else Column(*row) for row in rows)
    return Frame(name, doc, found, needs_headrace)


_SHARED: Final = {
    column.name: column
    for column in (
        Column("group_id", STRING, "The group"),
        Column("topic", STRING, "The topic"),
        Column("partition", INT, "The index of the partition"),
        Column("node", INT, "The id of the node"),
    )
}
"""Columns of several frames."""

_ALL: Final = (
    _frame(
        "nodes",
        "The brokers of the cluster and the disks of their data.",
        """
        node
        host          string  Where clients reach it
        port          int     The port for clients
        rack          string  Its rack, if it has one
        is_controller boolean Whether it is the controller that clients are told
        total_bytes   bigint  The size of its disks, if it says
        usable_bytes  bigint  How much of them is free, if it says
        log_bytes     bigint  What its replicas take
        replicas      int     How many replicas it has
        """,
    ),
    _frame(
        "sessions",
        "Every node that the cluster knows, and its session with the controller.",
        """
        node
        address       string  Its node port
        state         string  LEARNER, ACTIVE, DRAINING or DECOMMISSIONED
        is_registered boolean Whether it is registered as a broker
        is_fenced     boolean Whether it may lead nothing now
        is_stopping   boolean Whether it is shutting down
        is_controller boolean Whether it holds the sessions of the others
        heard_ms_ago  bigint  When the controller heard of it last; null if never
        ends_in_ms    bigint  When its session ends if nothing is heard
        is_suspect    boolean Whether other nodes doubt that it runs
        version       string  Its version of Headrace; null if it gave no page
        applied       bigint  The last metadata entry that it has applied
        problem       string  Why it gave no page, or what it waits for
        """,
        needs_headrace=True,
    ),
    _frame(
        "topics",
        "Topics, internal ones included.",
        """
        topic
        topic_id           string             Its id, as Kafka's tools write it
        is_internal        boolean            Whether the cluster keeps it for itself
        partitions         int                How many partitions it has
        replication_factor int                How many replicas its first partition has
        leaderless         int                Partitions without a leader
        under_replicated   int                Partitions with replicas that are not in sync
        configs            map<string,string> The configs that were set for it
        """,
    ),
    _frame(
        "partitions",
        "Partitions of topics: where they are, where they begin and end.",
        """
        topic
        partition
        leader        int        The node that leads it; null if none does
        leader_epoch  int        How often its leader has changed
        replicas      array<int> The nodes that keep it, the preferred leader first
        in_sync       array<int> The replicas that have everything
        offline       array<int> The replicas on nodes or disks that are away
        start_offset  bigint     The first offset that can be read
        end_offset    bigint     The offset after the last that can be read
        stable_offset bigint     Where readers of committed records stop now
        size_bytes    bigint     What its leader keeps of it on disk
        problem       string     Why offsets are null
        """,
    ),
    _frame(
        "segments",
        "Segments on the disks of the nodes, one row for each replica's.",
        """
        node
        topic
        partition
        base_offset    bigint    Its first offset
        end_offset     bigint    The offset after its last
        size_bytes     bigint    The size of its records
        last_timestamp timestamp The latest time of a record in it
        is_active      boolean   Whether records are still appended to it
        is_leader      boolean   Whether the node leads the partition
        """,
        needs_headrace=True,
    ),
    _frame(
        "groups",
        "Groups of all types, and how far they are behind.",
        """
        group_id
        type        string classic, consumer, streams or share
        state       string Stable, Empty, PreparingRebalance and so on
        protocol    string What its members agreed on; consumer for consumers
        assignor    string Who decides which member gets which partition
        coordinator int    The node that coordinates it
        epoch       int    Its epoch, where the type has one
        members     int    How many members it has
        partitions  int    How many partitions it has a position in
        lag         bigint The sum of its lags; null if none is known
        lag_max     bigint The largest lag of a partition
        """,
    ),
    _frame(
        "group_offsets",
        "The position of each group in each partition.",
        """
        group_id
        type       string classic, consumer, streams or share
        topic
        partition
        offset     bigint Committed; of a share group, before it everything is done
        end_offset bigint The end of the partition; null if it is not known
        lag        bigint How many records are to come; null if it is not known
        member_id  string The member that has the partition
        client_id  string The client id of that member
        host       string The host of that member
        metadata   string What was committed beside the offset
        """,
    ),
    _frame(
        "group_members",
        "Members of groups.",
        """
        group_id
        type         string        classic, consumer, streams or share
        member_id    string        The id that the coordinator knows it by
        instance_id  string        Its static id, if it has one
        client_id    string        Its client id
        host         string        Where it connects from
        rack         string        Its rack, if it says
        epoch        int           Its epoch, where the type has one
        subscription array<string> Topics, or a regular expression
        assignment   array<string> Its partitions, as topic-index
        """,
    ),
    _frame(
        "share_partitions",
        "The state of each share group in each partition that it reads.",
        """
        group_id
        topic
        partition
        leader               int     The node that hands out its records
        is_loaded            boolean Whether the group is reading it now
        start_offset         bigint  Everything before it is done
        end_offset           bigint  The last offset that was ever delivered or skipped
        high_watermark       bigint  The end of the partition
        state_epoch          int     How often its state was reset
        leader_epoch         int     The epoch of the leader that wrote its state
        done_after_start     bigint  How many records after the start are done
        waiting_fetches      int     How many fetches wait for records
        dead_letters_waiting bigint  Dead letters that are still to be sent
        dead_letters_error   string  Why the last attempt to send them failed
        breaker              string  Its circuit breaker: closed, open or half-open
        """,
        needs_headrace=True,
    ),
    _frame(
        "share_records",
        "Records of share groups that are in flight, and those that were given up lately.",
        """
        group_id
        topic
        partition
        first_offset   bigint The first of neighbours with the same state
        last_offset    bigint The last of them
        records        bigint How many offsets that are
        state          string available, acquired, acknowledged, archiving or archived
        delivery_count int    How often they were delivered
        reason         string Why they were given up: rejected, attempts used up, ...
        member_id      string The member that holds them
        client_id      string Its client id
        host           string Its host
        lock_left_ms   bigint How long it still holds them
        resting_ms     bigint How long until they may be delivered again
        """,
        needs_headrace=True,
    ),
    _frame(
        "transactions",
        "Transactional ids and the state of their transactions.",
        """
        transactional_id string        The id that the producer chose
        state            string        Empty, Ongoing, PrepareCommit, CompleteCommit and so on
        producer_id      bigint        The id that the cluster chose
        producer_epoch   int           Older epochs are fenced
        coordinator      int           The node that coordinates it
        timeout_ms       bigint        After this time the cluster aborts it
        started          timestamp     When the open transaction began; null if none is open
        partitions       array<string> What it has written to, as topic-index
        """,
    ),
    _frame(
        "metadata",
        "Entries of the metadata log that are not only in its snapshot.",
        """
        index      bigint Its place in the log
        term       bigint The term of the leader that wrote it
        kind       string What it changes, such as CreateTopic
        details    string Its content as JSON; null if that is secret
        size_bytes bigint Its size in the log
        """,
        needs_headrace=True,
    ),
)
FRAMES: Final = {frame.name: frame for frame in _ALL}
"""All frames by name."""
