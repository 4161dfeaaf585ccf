"""Sessions of followers: what each fetches from this node, and what changed since (KIP-227).

A session watches its partitions for as long as it exists, and queues those that changed. So a fetch
costs what changed and what it names, however many partitions the follower has. A partition that
cannot be fetched leaves the session with its error; the follower names it again to retry.

Pure: time is an input. A session belongs to one life of a broker and to one connection. Their
number is bounded.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.loop.turns import Turns
from headrace.metadata.image import Image
from headrace.replication.fetch_sessions import (
    EVICTION_MS_MIN,
    FIRST_WITH_TOPIC_IDS,
    NO_SESSION,
    Key,
    check_next,
    next_epoch,
)
from headrace.replication.partition import Partition
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest

UNKNOWN: Final = -1
RELEASED_A_TURN: Final = 500
"""How many partitions of a session that ended are left in one turn of the loop."""
STALE_MIN: Final = 64
"""How many forgotten partitions the queue holds at least before it is cleaned."""


class Follower(NamedTuple):
    """A life of a broker that fetches."""

    node: BrokerId
    broker_epoch: int


class FollowedPartition:
    """One partition that a follower fetches: its position, and what it was told."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "has_diverged",
        "is_due",
        "is_unchecked",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "told_high_watermark",
        "told_start_offset",
    )

    def __init__(self, key: Key) -> None:
        self.key = key
        self.partition: Partition | None = None
        """The partition that is watched; None if it left the session."""
        self.is_due = False
        """Whether it is in the queue."""
        self.told_high_watermark = UNKNOWN
        self.told_start_offset = UNKNOWN

    def move_to(self, asked: FetchPartition) -> None:
        """Take the position of a request."""
        self.fetch_offset = asked.fetch_offset
        self.log_start_offset = asked.log_start_offset
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.max_bytes = asked.partition_max_bytes
        self.is_unchecked = True
        """Whether the position, or the role of this node, is new."""
        self.has_diverged = False
        """Whether the follower has to truncate its log before there is anything for it."""


class Connection(Protocol):
    """What a session needs of the connection that it is used on."""

    on_close: dict[Callable[[], None], None]


class SessionFetch(Protocol):
    """The fetch of a session that has no response yet."""

    def on_more(self, byte_count: int) -> None:
        """Handle that so many more bytes can be read."""

    def on_change(self) -> None:
        """Handle that there may be news that do not wait."""

    def on_ended(self, code: ErrorCode) -> None:
        """Handle that the session is over, or goes on with another request."""


class ReplicaSession:
    """The partitions of one follower. It is notified of every append (`FetchWaiter`)."""

    def __init__(self, session_id: int, follower: Follower, *, uses_topic_ids: bool) -> None:
        self.id = session_id
        """NO_SESSION for one that lasts for one request."""
        self.follower = follower
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        """The epoch that the next request must have."""
        self.used_ms = 0
        """When it fetched last."""
        self.revisited_ms = 0
        self.is_ended = False
        self.fetch: SessionFetch | None = None
        self.partitions: dict[Key, FollowedPartition] = {}
        self.due: deque[FollowedPartition] = deque()
        """What changed or was named, in reading order; each once."""
        self.outside: dict[FollowedPartition, None] = {}
        """The partitions whose ISR the follower is not in."""
        self.connection: Connection | None = None
        self.on_connection_closed: Callable[[], None] | None = None
        self._by_partition: dict[Partition, FollowedPartition] = {}
        self._watermarks = _Watermarks(self)
        self._stale_count = 0

    # Partitions

    def name(self, key: Key, asked: FetchPartition) -> FollowedPartition:
        """Return a partition of a request, at its position; it may be new, and not watched."""
        followed = self.partitions.get(key)
        if followed is None:
            followed = FollowedPartition(key)
        followed.move_to(asked)
        return followed

    def watch(self, followed: FollowedPartition, partition: Partition) -> None:
        """Watch a partition from now on."""
        if followed.partition is partition:
            return
        if followed.partition is not None:
            self._leave(followed.partition)
        followed.partition = partition
        self.partitions[followed.key] = followed
        self._by_partition[partition] = followed
        partition.followers[self] = None
        partition.fetch_waiters[self._watermarks] = None

    def forget(self, key: Key) -> None:
        """Drop a partition."""
        followed = self.partitions.pop(key, None)
        if followed is None:
            return
        assert followed.partition is not None
        self._leave(followed.partition)
        followed.partition = None
        self.outside.pop(followed, None)
        if followed.is_due:
            self._stale_count += 1
            if self._stale_count > len(self.partitions) + STALE_MIN:
                self._drop_stale()

    def take_due(self) -> FollowedPartition | None:
        """Take the next partition from the queue; None for one that left the session."""
        followed = self.due.popleft()
        followed.is_due = False
        if followed.partition is None:
            self._stale_count -= 1
            return None
        return followed

    def mark(self, followed: FollowedPartition) -> None:
        """Put a partition into the queue, if it is not there."""
        if not followed.is_due:
            followed.is_due = True
            self.due.append(followed)

    def _drop_stale(self) -> None:
        self.due = deque(each for each in self.due if each.partition is not None)
        self._stale_count = 0

    def _leave(self, partition: Partition) -> None:
        followed = self._by_partition.pop(partition, None)
        if followed is not None:
            self._take_leave(followed, partition)

    def _take_leave(self, followed: FollowedPartition, partition: Partition) -> None:
        partition.followers.pop(self, None)
        partition.fetch_waiters.pop(self._watermarks, None)
        if not followed.is_due and not followed.has_diverged:
            # It has all that there is, until somebody appends: it is not late when it is back.
            partition.on_unchanged(self.follower.node, self.used_ms)

    # What partitions say

    def on_more(self, partition: Partition, byte_count: int) -> None:
        followed = self._by_partition[partition]
        if not followed.is_due and not self.is_ended:
            followed.is_due = True
            self.due.append(followed)
            if not followed.has_diverged:
                # Until now it had all that there was, whether its fetches named it or not.
                partition.on_unchanged(self.follower.node, self.used_ms)
        if self.fetch is not None:
            self.fetch.on_more(byte_count)

    def on_change(self, partition: Partition) -> None:
        followed = self._by_partition.get(partition)
        if followed is None or self.is_ended:
            return
        followed.is_unchecked = True
        self.mark(followed)
        if self.fetch is not None:
            self.fetch.on_change()

    def on_isr(self, partition: Partition) -> None:
        """Count the next fetch for the ISR again, whether it names the partition or not.

        The follower may have caught up, and said so, while the change was on its way.
        """
        followed = self._by_partition.get(partition)
        if followed is not None and not self.is_ended and self.follower.node not in partition.isr:
            self.outside[followed] = None

    def on_high_watermark(self, partition: Partition) -> None:
        """Send a high watermark with the next response, but none for that alone (KAFKA-9952)."""
        followed = self._by_partition.get(partition)
        if followed is not None and not self.is_ended:
            self.mark(followed)

    # The end

    def end(self, code: ErrorCode) -> None:
        """End the session; `leave_some` then has to be called until it is done."""
        self.is_ended = True
        self.partitions = {}
        self.due.clear()
        self.outside = {}
        fetch, self.fetch = self.fetch, None
        if fetch is not None:
            fetch.on_ended(code)

    def leave_some(self) -> bool:
        """Stop to watch some partitions; return whether that were all."""
        for _ in range(min(len(self._by_partition), RELEASED_A_TURN)):
            partition, followed = self._by_partition.popitem()
            followed.partition = None
            self._take_leave(followed, partition)
        return not self._by_partition


class _Watermarks:
    """Has a session queue the partitions whose high watermark moved (`FetchWaiter`)."""

    __slots__ = ("_session",)

    def __init__(self, session: ReplicaSession) -> None:
        self._session = session

    def on_more(self, partition: Partition, byte_count: int) -> None:
        self._session.on_high_watermark(partition)

    def on_change(self, partition: Partition) -> None:
        self._session.on_high_watermark(partition)


class ReplicaSessions:
    """The sessions of all followers, bounded."""

    def __init__(self, slots_max: int, choose_id: Callable[[], int], turns: Turns) -> None:
        """`choose_id` returns a random number from 1 to 2**31 - 1."""
        self._slots_max = slots_max
        self._choose_id = choose_id
        self._turns = turns
        self._sessions: dict[int, ReplicaSession] = {}
        """In the order of their last use."""
        self._by_connection: dict[Connection, ReplicaSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int) -> ReplicaSession | None:
        return self._sessions.get(session_id)

    def begin(self, follower: Follower, version: int, now_ms: int) -> ReplicaSession:
        """Open a session; without room for it, one that lasts for one request."""
        if not self._make_room(follower, now_ms):
            return self.transient(follower, version, now_ms)
        while (session_id := self._choose_id()) in self._sessions:
            pass
        session = self._sessions[session_id] = _session(session_id, follower, version, now_ms)
        return session

    def transient(self, follower: Follower, version: int, now_ms: int) -> ReplicaSession:
        """Return a session that lasts for one request; it must be ended."""
        return _session(NO_SESSION, follower, version, now_ms)

    def attach(self, session: ReplicaSession, connection: Connection) -> None:
        """Tie a session to a connection, which has one session at most."""
        if session.connection is connection:
            return
        former = self._by_connection.get(connection)
        if former is not None and session.id != NO_SESSION:
            self.end(former)
        self._detach(session)

        def on_close() -> None:
            self.end(session)

        session.connection, session.on_connection_closed = connection, on_close
        connection.on_close[on_close] = None
        if session.id != NO_SESSION:
            self._by_connection[connection] = session

    def _detach(self, session: ReplicaSession) -> None:
        connection, on_close = session.connection, session.on_connection_closed
        if connection is None or on_close is None:
            return
        connection.on_close.pop(on_close, None)
        if self._by_connection.get(connection) is session:
            del self._by_connection[connection]
        session.connection = session.on_connection_closed = None

    def resume(
        self, request: FetchRequest, follower: Follower, version: int, now_ms: int
    ) -> ReplicaSession:
        """Return the session of an incremental request; raise KafkaError if it has none."""
        session = self._sessions.get(request.session_id)
        if session is None or session.follower != follower:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"node {follower.node} has no fetch session {request.session_id}",
            )
        check_next(session, request, version)
        if session.fetch is not None:  # from another connection
            session.fetch.on_ended(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = next_epoch(session.epoch)
        session.used_ms = now_ms
        del self._sessions[session.id]
        self._sessions[session.id] = session
        return session

    def end_by_id(self, session_id: int, follower: Follower) -> None:
        """End a session of a follower, if it is one of its own."""
        session = self._sessions.get(session_id)
        if session is not None and session.follower == follower:
            self.end(session)

    def end(
        self, session: ReplicaSession, code: ErrorCode = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    ) -> None:
        """End a session. A fetch that waits gets `code`."""
        if session.is_ended:
            return
        self._sessions.pop(session.id, None)
        self._detach(session)
        session.end(code)
        self._leave_some(session)

    def refresh(self, image: Image) -> None:
        """End the sessions of brokers that are gone, or have registered again."""
        for session in tuple(self._sessions.values()):
            node, broker_epoch = session.follower
            broker = image.broker(node)
            if broker is None or broker.broker_epoch > broker_epoch:
                self.end(session)

    def _leave_some(self, session: ReplicaSession) -> int:
        if not session.leave_some():
            self._turns.soon(lambda: self._leave_some(session))
        return RELEASED_A_TURN

    def _make_room(self, follower: Follower, now_ms: int) -> bool:
        """Evict the follower's own oldest session, or one that is idle, if there are too many."""
        if len(self._sessions) < self._slots_max:
            return True
        own = (each for each in self._sessions.values() if each.follower == follower)
        victim = next(own, None)
        if victim is None:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms <= EVICTION_MS_MIN:
                return False
            victim = oldest
        self.end(victim)
        return True


def _session(session_id: int, follower: Follower, version: int, now_ms: int) -> ReplicaSession:
    session = ReplicaSession(session_id, follower, uses_topic_ids=version >= FIRST_WITH_TOPIC_IDS)
    session.used_ms = session.revisited_ms = now_ms
    return session
