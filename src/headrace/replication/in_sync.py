"""The followers of a partition that this node leads: who is in sync, and what is committed.

    in_sync = InSync(node, row, end_offset, now_ms)
    in_sync.fetched(follower, position, end_offset=..., now_ms=...)
    log.advance_high_watermark(in_sync.high_watermark(...))
    change = in_sync.plan_join(follower, ...) or in_sync.plan_shrink(...)

One for each leader epoch of a partition with several replicas. Pure: time is an input, and whether
a broker may join is asked of the caller.

The ISR changes only through the metadata log. Until the log has spoken, a proposed ISR is
*pending*, and what counts is the worse of the two: a record is committed when every member of the
ISR has it, and every one that may be a member already. Followers that are about to join count as
well, or they could never catch up with a leader that is busy.

A change is conditional on the partition epoch. So any change of the row settles a pending one: it
was applied, or it will be refused.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from headrace.ids import BrokerId, LeaderEpoch
from headrace.metadata.state import Partition as PartitionRow

UNKNOWN: Final = -1

BrokerEpochs: TypeAlias = Callable[[BrokerId], int | None]
"""Returns the epoch of a broker that may be in sync: registered, not fenced, not stopping."""


class Position(NamedTuple):
    """What a follower's fetch says of its log."""

    broker_epoch: int
    end_offset: int
    start_offset: int


class IsrChange(NamedTuple):
    """An ISR to propose, and the state that it was planned from."""

    isr: tuple[BrokerId, ...]
    epochs: tuple[int, ...]
    """The broker epoch of each member."""
    partition_epoch: int
    leader_epoch: LeaderEpoch
    is_join: bool = False
    """Whether a follower joins; others leave."""
    leader: BrokerId | None = None
    """The broker that should lead if this node resigns."""


class _Follower:
    """How far a follower is, by its fetches in this leader epoch."""

    __slots__ = ("caught_up_ms", "fetched_ms", "leader_end_offset", "position")

    def __init__(self, caught_up_ms: int | None) -> None:
        self.position = Position(UNKNOWN, UNKNOWN, UNKNOWN)
        self.caught_up_ms = caught_up_ms
        """When it last had all that the leader had; None if it never had."""
        self.fetched_ms: int | None = None
        self.leader_end_offset = UNKNOWN
        """Where the leader's log ended at its last fetch."""

    def fetched(self, position: Position, end_offset: int, now_ms: int) -> None:
        offset = position.end_offset
        if self.position.broker_epoch not in (UNKNOWN, position.broker_epoch):
            # How quick its former life was says nothing of this one.
            self.caught_up_ms, self.leader_end_offset = None, UNKNOWN
        if offset >= end_offset:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end_offset > UNKNOWN:
            # It has all that there was when it last asked.
            self.caught_up_ms = self.fetched_ms
        self.position = position
        self.fetched_ms = now_ms
        self.leader_end_offset = end_offset

    def is_caught_up(self, end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        if self.position.end_offset == end_offset:
            return True
        return self.caught_up_ms is not None and now_ms - self.caught_up_ms <= lag_ms_max


class InSync:
    """The followers of one partition, in one leader epoch."""

    __slots__ = (
        "_followers",
        "_leader_epoch",
        "_node",
        "_partition_epoch",
        "isr",
        "pending",
        "start_offset",
    )

    def __init__(
        self, node: BrokerId, row: PartitionRow, *, start_offset: int, now_ms: int
    ) -> None:
        """`start_offset` is where the leader epoch begins."""
        self._node = node
        self._leader_epoch = row.leader_epoch
        self._partition_epoch = row.partition_epoch
        self.start_offset = start_offset
        self.isr = row.isr
        """Those that the metadata log has in the ISR, this node among them."""
        self.pending: tuple[BrokerId, ...] | None = None
        """The ISR that is proposed and not decided."""
        self._followers = {
            node_id: _Follower(now_ms if node_id in row.isr else None)
            for node_id in row.replicas
            if node_id != node
        }

    def altered(self, row: PartitionRow) -> None:
        """Take what the metadata log says now of the same leader epoch."""
        if row.partition_epoch == self._partition_epoch:
            return
        self._partition_epoch = row.partition_epoch
        self.isr = row.isr
        self.pending = None
        known = self._followers
        self._followers = {
            node_id: known.get(node_id) or _Follower(None)
            for node_id in row.replicas
            if node_id != self._node
        }

    def refused(self, change: IsrChange) -> None:
        """Take back a change that the metadata log has refused."""
        if change.partition_epoch == self._partition_epoch and change.isr == self.pending:
            self.pending = None

    # What followers have

    def fetched(
        self, follower: BrokerId, position: Position, *, end_offset: int, now_ms: int
    ) -> None:
        """Note a fetch: the follower has the leader's records below the offset that it asks for."""
        known = self._followers.get(follower)
        if known is not None:
            known.fetched(position, end_offset, now_ms)

    def unchanged(self, follower: BrokerId, fetched_ms: int) -> None:
        """Note that nothing was appended between a follower's last noted fetch and a later one.

        Sessions do not note every fetch of every partition. If the follower had everything then,
        it still had at the later fetch.
        """
        known = self._followers.get(follower)
        if known is None or known.fetched_ms is None:
            return
        if known.position.end_offset >= known.leader_end_offset and known.caught_up_ms is not None:
            known.caught_up_ms = max(known.caught_up_ms, fetched_ms)
            known.fetched_ms = max(known.fetched_ms, fetched_ms)

    def caught_up_ms(self, follower: BrokerId) -> int | None:
        """Return when a follower last had all that the leader had, None if it never had."""
        known = self._followers.get(follower)
        return None if known is None else known.caught_up_ms

    def position_of(self, follower: BrokerId) -> Position | None:
        """Return where a follower was at its last fetch, None if it has not fetched."""
        known = self._followers.get(follower)
        return None if known is None or known.fetched_ms is None else known.position

    def high_watermark(
        self, end_offset: int, now_ms: int, lag_ms_max: int, epoch_of: BrokerEpochs
    ) -> int:
        """Return below which offset all that count have everything; -1 if that is unknown."""
        reached = end_offset
        isr, pending = self.isr, self.pending
        for node, follower in self._followers.items():
            offset = follower.position.end_offset
            if offset < reached and (
                node in isr
                or (pending is not None and node in pending)
                or (
                    follower.is_caught_up(end_offset, now_ms, lag_ms_max)
                    and epoch_of(node) == follower.position.broker_epoch
                )
            ):
                reached = offset
        return reached

    def low_watermark(self, start_offset: int) -> int:
        """Return the smallest offset that a member of the ISR may still have; -1 if unknown."""
        reached = start_offset
        for node, follower in self._followers.items():
            if node in self.isr:
                reached = min(reached, follower.position.start_offset)
        return reached

    # Changes of the ISR

    def plan_join(
        self, follower: BrokerId, high_watermark: int, epoch_of: BrokerEpochs
    ) -> IsrChange | None:
        """Plan that a follower joins the ISR, if it has all that is committed and may join.

        It also must have begun with this leader's records: before that, what is committed may be
        further than the leader knows.
        """
        known = self._followers.get(follower)
        if known is None or self.pending is not None or follower in self.isr:
            return None
        position = known.position
        if position.end_offset < max(high_watermark, self.start_offset):
            return None
        if epoch_of(follower) != position.broker_epoch:
            return None
        return self._plan((*self.isr, follower), epoch_of)

    def plan_shrink(
        self, end_offset: int, now_ms: int, lag_ms_max: int, epoch_of: BrokerEpochs
    ) -> IsrChange | None:
        """Plan that followers leave the ISR which have not caught up for too long."""
        if self.pending is not None:
            return None
        kept = tuple(
            node
            for node in self.isr
            if node == self._node
            or (
                self._followers[node].is_caught_up(end_offset, now_ms, lag_ms_max)
                and epoch_of(node) is not None  # else the controller is about to take it out
            )
        )
        return None if len(kept) == len(self.isr) else self._plan(kept, epoch_of)

    def plan_resignation(
        self, preferred: tuple[BrokerId, ...], epoch_of: BrokerEpochs
    ) -> IsrChange | None:
        """Plan that this node, which cannot write, leaves the ISR and another one leads."""
        kept = tuple(node for node in self.isr if node != self._node and epoch_of(node) is not None)
        heir = next((node for node in preferred if node in kept), None)
        if heir is None or self.pending is not None:
            return None
        change = self._plan(kept, epoch_of)
        return None if change is None else change._replace(leader=heir)

    def _plan(self, isr: tuple[BrokerId, ...], epoch_of: BrokerEpochs) -> IsrChange | None:
        """Return a change if every member may be in sync; the controller removes the others."""
        epochs = tuple(map(epoch_of, isr))
        if None in epochs:
            return None
        self.pending = isr
        return IsrChange(
            isr,
            epochs,  # type: ignore[arg-type]
            self._partition_epoch,
            self._leader_epoch,
            is_join=len(isr) > len(self.isr),
        )
