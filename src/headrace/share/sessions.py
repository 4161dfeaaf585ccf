"""Share sessions (KIP-932): a member's partitions, remembered between its requests.

Pure. A session belongs to one member of one group; ShareFetch and ShareAcknowledge share its
epochs. The shell ends it with the connection that opened it, and a member's records are released
when its session ends.
"""

from collections.abc import Callable, Collection, Iterable
from itertools import chain, islice
from typing import Final, TypeAlias

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId

INITIAL_EPOCH: Final = 0
"""The epoch that opens a session."""
FINAL_EPOCH: Final = -1
"""Ends it."""
_EPOCH_MAX: Final = 2**31 - 1

PartitionId: TypeAlias = tuple[TopicId, int]
"""A partition by its topic's id and its number."""


class ShareSession:
    """One member's partitions, in the order in which it added them."""

    __slots__ = (
        "client_host",
        "client_id",
        "epoch",
        "group_id",
        "is_ended",
        "member_id",
        "on_ended",
        "partitions",
        "touched",
    )

    def __init__(
        self, group_id: str, member_id: str, partitions: Iterable[PartitionId] = ()
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = 1
        """The epoch that the next request must have."""
        self.partitions: dict[PartitionId, None] = dict.fromkeys(partitions)
        self.touched: dict[PartitionId, None] = {}
        """The partitions that the member acquired records of and may still hold some."""
        self.client_id: str | None = None
        """The client id, for inspection."""
        self.client_host = ""
        self.is_ended = False
        self.on_ended: Callable[[], None] | None = None
        """Called once when the session ends, for any reason."""

    def change(
        self, named: Iterable[PartitionId], forgotten: Iterable[PartitionId]
    ) -> Collection[PartitionId]:
        """Add a request's partitions, then drop its forgotten ones; return the new ones."""
        partitions = self.partitions
        new = dict.fromkeys(each for each in named if each not in partitions)
        partitions.update(new)
        for each in forgotten:
            partitions.pop(each, None)
        return new

    def in_turn(self, epoch: int) -> Iterable[PartitionId]:
        """Return the partitions, rotated by the epoch, so that each gets its turn."""
        count = len(self.partitions)
        first = (epoch - 1) % count if epoch > 0 < count else 0
        if first == 0:
            return self.partitions
        return chain(islice(self.partitions, first, None), islice(self.partitions, first))

    def advance(self) -> None:
        """Expect the next epoch; the largest wraps around to the first."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1


class ShareSessions:
    """All share sessions of a node, bounded."""

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._counts: dict[str, int] = {}
        """The number of sessions per group."""

    def count_of(self, group_id: str) -> int:
        """Return how many sessions a group has."""
        return self._counts.get(group_id, 0)

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, group_id: str, member_id: str, partitions: Iterable[PartitionId]
    ) -> ShareSession:
        """Open a session, replacing the one that the member has, if any.

        Raise KafkaError SHARE_SESSION_LIMIT_REACHED if there is no room for it.
        """
        if (former := self._sessions.get((group_id, member_id))) is not None:
            self.end(former)
        if len(self._sessions) >= self._sessions_max:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"this node keeps {self._sessions_max} share sessions "
                "(group.share.max.share.sessions)",
            )
        session = ShareSession(group_id, member_id, partitions)
        if former is not None:
            session.touched = former.touched
        self._sessions[group_id, member_id] = session
        self._counts[group_id] = self._counts.get(group_id, 0) + 1
        return session

    def resume(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Return the session of a request with that epoch, and expect the next one.

        Raise KafkaError if there is none, or if it expects another epoch.
        """
        session = self.find(group_id, member_id)
        if session.epoch != epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"the share session of member {member_id} in group {group_id!r} expects epoch "
                f"{session.epoch}, not {epoch}",
            )
        session.advance()
        return session

    def find(self, group_id: str, member_id: str) -> ShareSession:
        """Return a member's session; raise KafkaError if it has none."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"member {member_id} of group {group_id!r} has no share session here",
            )
        return session

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        """Return a member's session, if it has one."""
        return self._sessions.get((group_id, member_id))

    def end(self, session: ShareSession) -> None:
        """End a session for good."""
        if session.is_ended:
            return
        session.is_ended = True
        group_id = session.group_id
        del self._sessions[group_id, session.member_id]
        self._counts[group_id] -= 1
        if not self._counts[group_id]:
            del self._counts[group_id]
        if session.on_ended is not None:
            session.on_ended()
