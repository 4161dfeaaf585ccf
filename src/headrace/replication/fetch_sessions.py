"""Fetch sessions (KIP-227): the partitions of a consumer, remembered between its fetches.

Pure: time is an input. A session holds its partitions in reading order; those that returned data
move to the end, so that each gets its turn. The number of sessions is bounded; a new one evicts one
that is idle, or smaller than it. Followers have sessions of their own (`replica_sessions`).
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Protocol, TypeAlias

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import ZERO_TOPIC_ID, TopicId, TopicName
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
FIRST_WITH_TOPIC_IDS: Final = 13
EVICTION_MS_MIN: Final = 120_000
"""How long a session cannot be evicted by one that is no larger."""
RANKS_MIN: Final = 64
"""How many stale heap entries are kept at least before a cleanup."""
_EPOCH_MAX: Final = 2**31 - 1
_UNKNOWN: Final = -1

Key: TypeAlias = tuple[str | bytes, int]
"""A topic by its id, or by its name if it has none, and a partition."""


class WantedPartition:
    """One partition of a fetch, and what the client was last told about it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, asked: FetchPartition) -> None:
        # Without type conversions: there may be many of these.
        self.topic: TopicName = topic  # type: ignore[assignment]
        self.topic_id: TopicId = topic_id  # type: ignore[assignment]
        self.index = asked.partition
        self.high_watermark = _UNKNOWN
        self.log_start_offset = _UNKNOWN
        self.current_leader_epoch = asked.current_leader_epoch
        self.fetch_offset = asked.fetch_offset
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.max_bytes = asked.partition_max_bytes

    @property
    def key(self) -> Key:
        return (self.topic_id if self.topic_id != ZERO_TOPIC_ID else self.topic), self.index


class FetchSession:
    """One client's partitions, in reading order."""

    __slots__ = ("cleared", "epoch", "id", "partitions", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, *, uses_topic_ids: bool) -> None:
        self.id = session_id
        self.epoch = 1
        """The epoch that the next request must have."""
        self.uses_topic_ids = uses_topic_ids
        self.used_ms = 0
        self.partitions: dict[Key, WantedPartition] = {}
        self.cleared: object = None
        """For whom, and by which rights, every partition was found to be readable."""

    def change(self, request: FetchRequest, asked: dict[Key, WantedPartition]) -> None:
        """Add, change and forget partitions as an incremental request says."""
        for key, wanted in asked.items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = wanted
            else:
                known.current_leader_epoch = wanted.current_leader_epoch
                known.fetch_offset = wanted.fetch_offset
                known.last_fetched_epoch = wanted.last_fetched_epoch
                known.max_bytes = wanted.max_bytes
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if topic.topic_id != ZERO_TOPIC_ID else topic.topic
            for index in topic.partitions:
                self.partitions.pop((name, index), None)

    def move_back(self, wanted: WantedPartition) -> None:
        """Move a partition that returned data behind the others."""
        key = wanted.key
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = wanted


class Session(Protocol):
    """A session of a consumer or of a follower."""

    id: int
    epoch: int
    uses_topic_ids: bool


def check_next(session: Session, request: FetchRequest, version: int) -> None:
    """Raise KafkaError unless a request is the next one of a session."""
    if session.epoch != request.session_epoch:
        raise KafkaError(
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            f"fetch session {session.id} expects epoch {session.epoch}, "
            f"not {request.session_epoch}",
        )
    if session.uses_topic_ids != (version >= FIRST_WITH_TOPIC_IDS):
        raise KafkaError(
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            f"fetch session {session.id} was opened by a version with other topic keys",
        )


class FetchSessions:
    """All sessions of a node, bounded."""

    def __init__(self, slots_max: int, choose_id: Callable[[], int]) -> None:
        """`choose_id` returns a random number from 1 to 2**31 - 1."""
        self.evictions = 0
        self._slots_max = slots_max
        self._choose_id = choose_id
        self._sessions: dict[int, FetchSession] = {}
        """Sessions in the order of their last use."""
        self._by_size: list[tuple[int, int]] = []
        """A heap of (size, id); a session that shrank also has an entry with its new size, other
        entries may be stale."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def resume(
        self,
        request: FetchRequest,
        asked: dict[Key, WantedPartition],
        version: int,
        now_ms: int,
    ) -> FetchSession:
        """Return the session of an incremental request, updated; raise KafkaError if none.

        `asked` are the partitions of the request.
        """
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"there is no fetch session {request.session_id}",
            )
        check_next(session, request, version)
        size = len(session.partitions)
        session.change(request, asked)
        if len(session.partitions) < size:
            self._rank(session)
        session.epoch = next_epoch(session.epoch)
        self._touch(session, now_ms)
        return session

    def begin(
        self, wanted: dict[Key, WantedPartition], version: int, now_ms: int
    ) -> FetchSession | None:
        """Open a session for some partitions, or return None if there is no room for it."""
        session = FetchSession(self._new_id(), uses_topic_ids=version >= FIRST_WITH_TOPIC_IDS)
        session.partitions = dict(wanted)
        if not self._make_place(session, now_ms):
            return None
        self._rank(session)
        self._touch(session, now_ms)
        return session

    def end(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.used_ms = now_ms
        self._sessions.pop(session.id, None)
        self._sessions[session.id] = session

    def _make_place(self, newcomer: FetchSession, now_ms: int) -> bool:
        if len(self._sessions) < self._slots_max:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        victim = oldest
        if now_ms - oldest.used_ms <= EVICTION_MS_MIN:
            victim = self._smallest()
            if len(newcomer.partitions) <= len(victim.partitions):
                return False
        del self._sessions[victim.id]
        self.evictions += 1
        return True

    def _smallest(self) -> FetchSession:
        """Return the session to evict first."""
        heap = self._by_size
        while True:
            size, session_id = heap[0]
            session = self._sessions.get(session_id)
            if session is not None and size == len(session.partitions):
                return session
            if session is None:
                heappop(heap)
            else:  # stale
                heapreplace(heap, (len(session.partitions), session_id))

    def _rank(self, session: FetchSession) -> None:
        """Update the size of a session in the heap."""
        heap = self._by_size
        if len(heap) > 2 * len(self._sessions) + RANKS_MIN:
            heap[:] = [_rank_of(each) for each in self._sessions.values()]
            heapify(heap)
        heappush(heap, _rank_of(session))

    def _new_id(self) -> int:
        while (session_id := self._choose_id()) in self._sessions:
            pass
        return session_id


def _rank_of(session: FetchSession) -> tuple[int, int]:
    return len(session.partitions), session.id


def next_epoch(epoch: int) -> int:
    """Return the epoch of the request after one; the largest wraps around to 1."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1


def wanted_partitions(topics: list[FetchTopic]) -> dict[Key, WantedPartition]:
    """Return the partitions of a request in its order; the second of a duplicate counts."""
    wanted: dict[Key, WantedPartition] = {}
    for topic in topics:
        name, topic_id = topic.topic, topic.topic_id
        key = topic_id if topic_id != ZERO_TOPIC_ID else name
        for asked in topic.partitions:
            wanted[key, asked.partition] = WantedPartition(name, topic_id, asked)
    return wanted


def wanted_of(topic: FetchTopic, partitions: list[FetchPartition]) -> dict[Key, WantedPartition]:
    """Return the wanted partitions of one topic of a request."""
    name, topic_id = topic.topic, topic.topic_id
    key = topic_id if topic_id != ZERO_TOPIC_ID else name
    return {(key, asked.partition): WantedPartition(name, topic_id, asked) for asked in partitions}
