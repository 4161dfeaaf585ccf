"""Core and storage on the loop: proposals are awaitable, syncs run in a thread.

    driver = RaftDriver(node, disk, "metadata", machine=image, transport=network)
    await driver.start(bootstrap=Membership((node,)))
    index = await driver.propose(data)     # committed, and applied here

The loop owns the core, a thread the log's files. While that thread waits for the disk, the core
continues: it handles messages, keeps leadership, and gathers proposals that share the next sync.
Only messages that promise entries being stored wait (see `Raft.ready`). Snapshots have their own
thread, so that the log does not wait for them.

Any failure of the disk or the state machine stops the node, with a reason that every caller gets: a
node that cannot keep its promises must not make more of them. A full disk is the exception: writes
without room are kept and stored when there is some. In the meantime the disk looks slow to the
core, and changes are refused. Clock and threads can be replaced, so a simulation drives the same
code.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from headrace.ids import BrokerId as NodeId
from headrace.log.disk import Disk
from headrace.raft import transfer
from headrace.raft.core import Raft
from headrace.raft.entries import Entry, EntryKind, Snapshot, SnapshotMark
from headrace.raft.errors import EntriesLost, InvalidMessage, RaftStopped, SnapshotTooLarge
from headrace.raft.full_disk import FullDisk, OutOfSpace
from headrace.raft.membership import Membership
from headrace.raft.messages import Message
from headrace.raft.opening import open_storage
from headrace.raft.ports import DiskWorker, Host, LoopHost, NoTransport, StateMachine, Transport
from headrace.raft.ready import Proposed, Ready
from headrace.raft.settings import RaftSettings
from headrace.raft.state import Jitter, Role, State
from headrace.raft.storage import RaftStorage
from headrace.raft.waiting import NEVER_MS, READ_ORIGINS, Waiting
from headrace.surroundings import new_random

MESSAGES_AT_ONCE_MAX: Final = 200
"""How many messages one turn takes: others on the loop want one, too."""

logger = logging.getLogger(__name__)


class RaftDriver:
    """A node of the quorum, running."""

    def __init__(
        self,
        node: NodeId,
        disk: Disk,
        folder: str,
        *,
        machine: StateMachine,
        transport: Transport | None = None,
        settings: RaftSettings | None = None,
        jitter: Jitter | None = None,
        host: Host | None = None,
    ) -> None:
        self.node = node
        self.applied_index = 0
        """Up to here everything is applied, what takes an index but is no proposal included."""
        self.failure: str | None = "it was not started"
        """Why the node does not run; None while it does."""
        self.refused_messages = 0
        """How many messages came that no correct node sends."""
        self.on_leadership: list[Callable[[], None]] = []
        """Called when another leader, term or membership is known, and once the leader of a term
        has committed."""
        self._leadership: object = None
        self._disk = disk
        self._folder = folder
        self._machine = machine
        self._transport = transport or NoTransport()
        self._settings = settings or RaftSettings()
        self._jitter = jitter or new_random().randrange
        self._given_host = host
        self.full_disk = FullDisk(node, self._settings.full_disk_retry_ms_max)
        """Whether the disk has no room for the log; read-only."""
        self._inbox: deque[Message] = deque()
        self._waiting = Waiting(node, self._jitter(READ_ORIGINS))
        self._unsaved_bytes = 0
        """What was applied since the last snapshot."""
        self._is_saving = False
        self._postponed: Ready | None = None
        """One with a snapshot that cannot be stored before the node's own is."""
        self._retry: asyncio.TimerHandle | None = None
        """When a write that found no room is retried."""
        self._turn_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER_MS
        self._loop: asyncio.AbstractEventLoop
        self._host: Host
        self._raft: Raft
        self._storage: RaftStorage
        self._log_worker: DiskWorker
        self._snapshot_worker: DiskWorker
        self._closed: asyncio.Future[None]

    async def start(self, *, bootstrap: Membership) -> None:
        """Open the files and run. `bootstrap` counts only if there are none, see `open_storage`."""
        self._loop = asyncio.get_running_loop()
        self._host = self._given_host or LoopHost()
        self._storage, stored = open_storage(
            self._disk,
            self._folder,
            bootstrap=bootstrap,
            segment_bytes=self._settings.segment_bytes,
        )
        if stored.snapshot.index:
            self._machine.restore(stored.snapshot.index, stored.snapshot.data)
        self.applied_index = stored.snapshot.index
        self._raft = Raft(
            self.node,
            settings=self._settings,
            stored=stored,
            jitter=self._jitter,
            now_ms=self._host.now_ms(),
        )
        if self._raft.state.membership.is_sole_voter(self.node):
            self._raft.tick(self._host.now_ms())  # so that it leads when this returns
        self._log_worker = self._host.make_worker(f"raft {self.node}")
        self._snapshot_worker = self._host.make_worker(f"snapshot {self.node}")
        self._closed = self._loop.create_future()
        self.failure = None
        self._wake()

    async def stop(self) -> None:
        """Stop; pending callers get an error. On return nothing uses the files any more."""
        if self.failure is None:
            self._end("it was told to stop")
        if hasattr(self, "_closed"):
            await asyncio.shield(self._closed)

    def give_up(self, reason: str) -> None:
        """Stop for a reason that lies elsewhere; `wait_stopped` returns it."""
        if self.failure is None:
            logger.error("node %s stops: %s", self.node, reason)
            self._end(reason)

    async def wait_stopped(self) -> str:
        """Wait until the node has stopped, by itself or by `stop`, and return the reason."""
        await asyncio.shield(self._closed)
        assert self.failure is not None
        return self.failure

    async def propose(self, data: bytes) -> int:
        """Propose `data` and return the index at which it is committed and applied here.

        Otherwise raise a RaftError: refused (NotLeader names the leader, DiskFull), lost for sure
        (ProposalLost), or unknown (ProposalUncertain). A cancellation does not undo the proposal.
        """
        self._check_takes_changes()
        now_ms = self._host.now_ms()
        return await self._await_applied(self._raft.propose(data, now_ms), now_ms)

    async def add_learner(self, node: NodeId) -> int:
        self._check_takes_changes()
        now_ms = self._host.now_ms()
        return await self._await_applied(self._raft.add_learner(node, now_ms), now_ms)

    async def promote(self, node: NodeId) -> int:
        """Make a learner a voter."""
        self._check_takes_changes()
        now_ms = self._host.now_ms()
        return await self._await_applied(self._raft.promote(node, now_ms), now_ms)

    async def demote(self, node: NodeId) -> int:
        """Make a voter a learner."""
        self._check_takes_changes()
        now_ms = self._host.now_ms()
        return await self._await_applied(self._raft.demote(node, now_ms), now_ms)

    async def remove(self, node: NodeId) -> int:
        self._check_takes_changes()
        now_ms = self._host.now_ms()
        return await self._await_applied(self._raft.remove(node, now_ms), now_ms)

    async def read_index(self) -> int:
        """Return when this node has applied all that was committed before the call.

        What the state machine then holds may be read: it is linearizable, on any node. DiskFull if
        this node cannot apply that for want of room.
        """
        self._check_runs()
        if self.full_disk.reason is not None and self._is_new_leader():
            raise self.full_disk.refusal()
        read_id, future = self._waiting.add_read(self._loop)
        try:
            self._raft.read(read_id, self._host.now_ms())
        except BaseException:
            self._waiting.forget_read(read_id)
            raise
        self._wake()
        return await future

    async def wait_applied(self, index: int) -> None:
        """Return when this node has applied an index, of which somebody knows that it is committed.

        RaftStopped if it never will; DiskFull if it has no room for it.
        """
        self._check_runs()
        if index > self.applied_index:
            await self._waiting.add_index(self._loop, index)

    async def wait_leadership(self) -> None:
        """Return when `on_leadership` is called next; RaftStopped if the node stops."""
        self._check_runs()
        changed: asyncio.Future[None] = self._loop.create_future()

        def note() -> None:
            if not changed.done():
                changed.set_result(None)

        self.on_leadership.append(note)
        try:
            await changed
        finally:
            self.on_leadership.remove(note)
        self._check_runs()

    def heir(self) -> NodeId | None:
        """Return the voter that leadership would best go to; None if there is none."""
        return transfer.heir(self._raft.state)

    def transfer(self, target: NodeId) -> None:
        """Begin to hand leadership over; `state.leader` tells when it has come about."""
        self._check_runs()
        self._raft.transfer(target, self._host.now_ms())
        self._wake()

    def receive(self, messages: list[Message]) -> None:
        """Queue messages of other nodes; beyond the bound they are dropped, and sent again."""
        room = self._settings.inbox_messages_max - len(self._inbox)
        self._inbox.extend(messages[:room])
        self._wake()

    def note_gone(self, node: NodeId) -> None:
        """Learn that a node does not run: if it led, the others need no timeout to find out."""
        if self.failure is None:
            self._raft.note_gone(node, self._host.now_ms())
            self._wake()

    @property
    def leader(self) -> NodeId | None:
        """The leader as far as this node knows; RaftStopped if it does not run."""
        self._check_runs()
        return self._raft.state.leader

    @property
    def state(self) -> State:
        """The state, read-only, for `explain` and metrics."""
        return self._raft.state

    # One turn: what came in, then what the core wants done

    def _wake(self) -> None:
        if self._turn_handle is None and self.failure is None:
            self._turn_handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_handle = None
        if self.failure is not None:
            return
        try:
            raft = self._raft
            if self._inbox:
                self._take_inbox()
            now_ms = self._host.now_ms()
            if now_ms >= raft.deadline_ms():
                raft.tick(now_ms)
            ready = raft.ready(now_ms)
            if ready is not None:
                if ready.must_persist:
                    self._store(ready)  # first: what follows is done while the disk is at work
                self._process(ready)
            if now_ms >= self._waiting.deadline_ms():
                self._waiting.give_up(now_ms)
            if self._inbox or raft.state.log.has_committed:
                self._wake()  # for the next page
            self._set_timer()
            self._note_leadership()
        except Exception as error:  # whatever it is, the promises cannot be kept any more
            self._fail(error)

    def _note_leadership(self) -> None:
        state = self._raft.state
        known = (state.leader, state.term, state.has_committed_in_term, state.membership)
        if known != self._leadership:
            self._leadership = known
            for note in tuple(self.on_leadership):
                note()

    def _take_inbox(self) -> None:
        for _ in range(min(len(self._inbox), MESSAGES_AT_ONCE_MAX)):
            message = self._inbox.popleft()
            try:
                self._raft.step(message, self._host.now_ms())
            except InvalidMessage as error:
                self.refused_messages += 1
                logger.warning("node %s: %s", self.node, error)

    def _process(self, ready: Ready) -> None:
        """Do what need not wait for the disk."""
        if ready.early_messages:
            self._transport.send(ready.early_messages)
        if ready.committed:
            self._apply(ready.committed)
        if ready.reads or ready.dropped_reads:
            self._waiting.note_reads(ready.reads, ready.dropped_reads, self.applied_index)
        if ready.wants_snapshot:
            self._offer_snapshot()

    def _store(self, ready: Ready) -> None:
        if ready.snapshot is not None and self._is_saving:
            self._postponed = ready  # the two would replace the same file
            return
        work = partial(self._storage.store, ready)
        self._log_worker.run(work, partial(self._note_tried, ready))

    def _note_tried(self, ready: Ready, error: BaseException | None) -> None:
        if isinstance(error, OutOfSpace):
            self._finish(partial(self._wait_for_room, ready, error), None)
        else:
            self._finish(partial(self._note_stored, ready), error)

    def _note_stored(self, ready: Ready) -> None:
        """Do what has waited for a Ready to be durable."""
        now_ms = self._host.now_ms()
        if self.full_disk.reason is not None:
            self.full_disk.note_room(now_ms)
        self._raft.persisted(ready, now_ms)
        if ready.snapshot is not None:
            self._machine.restore(ready.snapshot.index, ready.snapshot.data)
            self.applied_index = ready.snapshot.index
            self._unsaved_bytes = 0
            self._waiting.note_restored(ready.snapshot.index)
        if ready.messages:
            self._transport.send(ready.messages)
        self._apply(self._raft.take_committed())  # at once: this is what a proposal has waited for

    def _apply(self, entries: list[Entry]) -> None:
        for entry in entries:
            index = entry.index
            if entry.kind is EntryKind.DATA:
                self._machine.apply(index, entry.data)
            self.applied_index = index
            self._unsaved_bytes += entry.size_bytes
            self._waiting.note_applied(index, entry.term)
        if self._unsaved_bytes >= self._settings.snapshot_trigger_bytes:
            self._save()

    # A disk that is full

    def _wait_for_room(self, ready: Ready, error: OutOfSpace) -> None:
        """Keep a Ready that found no room for a retry, and fail its waiters."""
        now_ms, state = self._host.now_ms(), self._raft.state
        retry_ms = self.full_disk.note_full(error, now_ms)
        self._retry = self._host.call_at(retry_ms, partial(self._try_again, ready))
        refusal = self.full_disk.refusal()
        self._waiting.refuse_unstored(state.log.persisted, refusal)
        if self._is_new_leader():
            self._waiting.refuse_reads(refusal)
        heir = transfer.heir(state)
        if heir is not None and state.transfer_target is None:
            self._raft.transfer(heir, now_ms)  # it may have room

    def _try_again(self, ready: Ready) -> None:
        self._retry = None
        if self.failure is None:
            self._store(ready)

    def _is_new_leader(self) -> bool:
        """Return whether this node leads but cannot serve reads before its first commit."""
        state = self._raft.state
        return state.role is Role.LEADER and not state.has_committed_in_term

    # Snapshots

    def _save(self) -> None:
        """Begin a snapshot, unless one is begun or a leader's is about to take its place."""
        if self._is_saving or self.applied_index <= self._raft.state.snapshot.index:
            return
        self._unsaved_bytes = 0
        try:
            snapshot = self._raft.make_snapshot(self.applied_index, self._machine.snapshot())
        except SnapshotTooLarge as error:
            logger.error("node %s keeps its whole log: %s", self.node, error)
            return
        self._is_saving = True
        work = partial(self._storage.store_snapshot, snapshot)
        self._snapshot_worker.run(work, partial(self._note_saved, snapshot.mark()))

    def _note_saved(self, snapshot: SnapshotMark, error: BaseException | None) -> None:
        self._is_saving = False
        if isinstance(error, OSError):
            # Nothing was promised: the log is longer than it need be, until the next one.
            logger.warning("node %s could not write a snapshot: %s", self.node, error)
            self._finish(self._store_postponed, None)
        else:
            self._finish(partial(self._compact, snapshot), error)

    def _compact(self, snapshot: SnapshotMark) -> None:
        self._raft.compact(snapshot)
        kept_from = snapshot.index - self._settings.kept_entries
        work = partial(self._storage.compact, kept_from)
        self._log_worker.run(work, partial(self._finish, _nothing))
        self._store_postponed()

    def _store_postponed(self) -> None:
        ready, self._postponed = self._postponed, None
        if ready is not None:
            self._store(ready)

    def _offer_snapshot(self) -> None:
        """Read the snapshot for a member that needs it."""
        found: list[Snapshot] = []

        def read() -> None:
            snapshot = self._storage.read_snapshot()
            assert snapshot.checksum >= 0  # here, as it may take a while
            found.append(snapshot)

        def offer() -> None:
            self._raft.offer_snapshot(found[0])

        self._snapshot_worker.run(read, partial(self._finish, offer))

    # Time and the end

    def _finish(self, then: Callable[[], None], error: BaseException | None) -> None:
        """Go on where a worker has ended."""
        if self.failure is not None:
            return
        try:
            if error is not None:
                raise error
            then()
        except Exception as raised:
            self._fail(raised)
        else:
            self._wake()

    def _await_applied(self, proposed: Proposed, now_ms: int) -> "asyncio.Future[int]":
        deadline_ms = now_ms + self._settings.proposal_timeout_ms
        future = self._waiting.add_proposal(self._loop, proposed, deadline_ms)
        self._wake()
        return future

    def _set_timer(self) -> None:
        """See to a turn when something is due; one too early costs little, so it is left alone."""
        deadline_ms = min(self._raft.deadline_ms(), self._waiting.deadline_ms())
        if deadline_ms < self._timer_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ms = deadline_ms
            self._timer = self._host.call_at(deadline_ms, self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_ms = None, NEVER_MS
        self._wake()

    def _check_runs(self) -> None:
        if self.failure is not None:
            raise RaftStopped(self.node, self.failure)

    def _check_takes_changes(self) -> None:
        self._check_runs()
        if self.full_disk.reason is None:
            return
        state = self._raft.state
        if state.role is Role.LEADER and state.transfer_target is None:
            raise self.full_disk.refusal()  # else the core refuses, and knows whom to ask

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, EntriesLost):
            self.give_up(str(error))  # the disk's fault: where the code was helps nobody
            return
        logger.error("the metadata log of node %s has stopped", self.node, exc_info=error)
        self._end(f"{type(error).__name__}: {error}")

    def _end(self, reason: str) -> None:
        self.failure = reason
        self._waiting.fail_all(RaftStopped(self.node, reason))
        for note in tuple(self.on_leadership):
            note()
        if self._timer is not None:
            self._timer.cancel()
        if self._retry is not None:
            self._retry.cancel()
        if self._turn_handle is not None:
            self._turn_handle.cancel()
        # Behind what they are storing: that may be cut off nowhere but at its end.
        self._snapshot_worker.run(_nothing, self._close_log)
        self._snapshot_worker.close()

    def _close_log(self, _: BaseException | None) -> None:
        self._log_worker.run(self._storage.close, self._note_closed)
        self._log_worker.close()

    def _note_closed(self, _: BaseException | None) -> None:
        if not self._closed.done():
            self._closed.set_result(None)


def _nothing() -> None:
    """What follows from nothing."""
