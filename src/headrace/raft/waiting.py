"""Callers that wait for the log: for a proposal to be applied, or for a read to be valid."""

import asyncio
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from headrace.ids import BrokerId as NodeId
from headrace.raft.errors import (
    DiskFull,
    ProposalLost,
    ProposalUncertain,
    RaftError,
    ReadDropped,
)
from headrace.raft.ready import Proposed

NEVER_MS: Final = 2**53
READ_ORIGINS: Final = 2**62
"""How many places there are for a life's first read id; ids stay below 2**63."""


class _Proposal(NamedTuple):
    term: int
    deadline_ms: int
    future: "asyncio.Future[int]"


class Waiting:
    """Futures by index and by read; each is resolved once, and a cancelled one is passed over."""

    def __init__(self, node: NodeId, read_origin: int) -> None:
        """`read_origin` is the first read id: random, so different after every restart.

        A slow response may arrive after its node has restarted. Its id must not be that of another
        read, whose index it would understate.
        """
        self._node = node
        self._proposals: dict[int, _Proposal] = {}
        """By index, in the order of their deadlines."""
        self._reads: dict[int, asyncio.Future[int]] = {}
        """Those without an index yet."""
        self._confirmed: list[tuple[int, int, asyncio.Future[int]]] = []
        """Callers that wait for an index to be applied: a heap of index, number, future."""
        self._last_read_id = read_origin

    def add_proposal(
        self, loop: asyncio.AbstractEventLoop, proposed: Proposed, deadline_ms: int
    ) -> "asyncio.Future[int]":
        future: asyncio.Future[int] = loop.create_future()
        replaced = self._proposals.pop(proposed.index, None)
        if replaced is not None:
            reason = "this node has lost its leadership since"
            _fail(replaced.future, ProposalUncertain(proposed.index, replaced.term, reason))
        self._proposals[proposed.index] = _Proposal(proposed.term, deadline_ms, future)
        return future

    def add_read(self, loop: asyncio.AbstractEventLoop) -> "tuple[int, asyncio.Future[int]]":
        self._last_read_id += 1
        future: asyncio.Future[int] = loop.create_future()
        self._reads[self._last_read_id] = future
        return self._last_read_id, future

    def add_index(self, loop: asyncio.AbstractEventLoop, index: int) -> "asyncio.Future[int]":
        """Return a future that is resolved once an index is applied, whatever is there."""
        self._last_read_id += 1
        future: asyncio.Future[int] = loop.create_future()
        heappush(self._confirmed, (index, self._last_read_id, future))
        return future

    def forget_read(self, read_id: int) -> None:
        self._reads.pop(read_id, None)

    def note_applied(self, index: int, term: int) -> None:
        proposal = self._proposals.pop(index, None)
        if proposal is not None:
            if proposal.term == term:
                _resolve(proposal.future, index)
            else:
                _fail(proposal.future, ProposalLost(index, proposal.term))
        if self._confirmed:
            self._serve(index)

    def note_restored(self, index: int) -> None:
        """Handle that a snapshot replaced entries, so that their outcomes are unknown."""
        for at in [at for at in self._proposals if at <= index]:
            proposal = self._proposals.pop(at)
            reason = "a snapshot took the place of the entries there"
            _fail(proposal.future, ProposalUncertain(at, proposal.term, reason))
        self._serve(index)

    def note_reads(
        self, served: list[tuple[int, int]], dropped: list[int], applied_index: int
    ) -> None:
        for read_id, index in served:
            future = self._reads.pop(read_id, None)
            if future is not None:
                heappush(self._confirmed, (index, read_id, future))
        for read_id in dropped:
            future = self._reads.pop(read_id, None)
            if future is not None:
                _fail(future, ReadDropped(self._node))
        self._serve(applied_index)

    def give_up(self, now_ms: int) -> None:
        """Fail callers that waited too long."""
        while self.deadline_ms() <= now_ms:
            index, proposal = next(iter(self._proposals.items()))
            del self._proposals[index]
            reason = "headrace.raft.proposal.timeout.ms has passed"
            _fail(proposal.future, ProposalUncertain(index, proposal.term, reason))

    def refuse_unstored(self, persisted_index: int, refusal: DiskFull) -> None:
        """Fail callers that wait for entries after an index for which the disk has no room."""
        for at in [at for at in self._proposals if at > persisted_index]:
            proposal = self._proposals.pop(at)
            _fail(proposal.future, ProposalUncertain(at, proposal.term, refusal.message))
        refused = [read for read in self._confirmed if read[0] > persisted_index]
        self._confirmed = [read for read in self._confirmed if read[0] <= persisted_index]
        heapify(self._confirmed)
        for _, _, future in refused:
            _fail(future, refusal)

    def refuse_reads(self, refusal: DiskFull) -> None:
        """Fail callers that wait for a read which cannot be confirmed now."""
        futures = list(self._reads.values())
        self._reads.clear()
        for future in futures:
            _fail(future, refusal)

    def deadline_ms(self) -> int:
        for proposal in self._proposals.values():
            return proposal.deadline_ms
        return NEVER_MS

    def fail_all(self, error: RaftError) -> None:
        futures = [proposal.future for proposal in self._proposals.values()]
        futures += self._reads.values()
        futures += [future for _, _, future in self._confirmed]
        self._proposals.clear()
        self._reads.clear()
        self._confirmed.clear()
        for future in futures:
            _fail(future, error)

    def _serve(self, applied_index: int) -> None:
        while self._confirmed and self._confirmed[0][0] <= applied_index:
            _resolve(heappop(self._confirmed)[2], applied_index)


def _resolve(future: "asyncio.Future[int]", index: int) -> None:
    if not future.done():
        future.set_result(index)


def _fail(future: "asyncio.Future[int]", error: RaftError) -> None:
    if not future.done():
        future.set_exception(error)
