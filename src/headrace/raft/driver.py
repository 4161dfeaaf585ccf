"""Core and storage on the loop: proposals are awaited, syncs wait in a thread.

    driver = RaftDriver(node, disk, "metadata", machine=image, transport=network)
    await driver.start(bootstrap=Membership((node,)))
    index = await driver.propose(data)     # committed, and applied here

One task owns core and storage. While it waits for the disk, proposals gather in the core and
share the next sync. Whatever the disk or the state machine refuses stops the node, with a reason
that every caller gets: a node that cannot keep its promises must not go on making them.

Time is the loop's, and threads can be replaced, so a virtual loop drives the same code.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Final, Protocol

from headrace.ids import BrokerId as NodeId
from headrace.log.disk import Disk
from headrace.raft.core import Raft
from headrace.raft.disk_thread import DiskThread, Work
from headrace.raft.entries import Entry, EntryKind, Snapshot
from headrace.raft.errors import InvalidMessage, RaftStopped, SnapshotTooLarge
from headrace.raft.membership import Membership
from headrace.raft.messages import Message
from headrace.raft.ready import Proposed, Ready
from headrace.raft.settings import RaftSettings
from headrace.raft.state import Jitter, State
from headrace.raft.storage import RaftStorage, open_storage
from headrace.raft.waiting import NEVER_MS, Waiting

APPLIED_AT_ONCE_MAX: Final = 1000
"""How many entries are applied before others on the loop get a turn."""

InThread = Callable[[Callable[[], None]], Awaitable[None]]
logger = logging.getLogger(__name__)


class StateMachine(Protocol):
    """What the log is of. An exception from here stops the node: nothing is skipped."""

    def apply(self, index: int, data: bytes) -> None:
        """Take a committed proposal. Indices grow, with gaps."""

    def snapshot(self) -> bytes:
        """Give the state as of the last `apply`; on the loop, so it should be quick."""

    def restore(self, index: int, data: bytes) -> None:
        """Be what `snapshot` gave at an index, whatever the state was."""


class Transport(Protocol):
    """The way to the other nodes; what comes from them goes to `RaftDriver.receive`."""

    def send(self, messages: list[Message]) -> None:
        """Send what can be sent, at once and without waiting; what is lost is sent again."""


class NoTransport:
    """For a quorum of one."""

    def send(self, messages: list[Message]) -> None:
        """Lose everything."""


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
        in_thread: InThread | None = None,
    ) -> None:
        self.node = node
        self.applied_index = 0
        """Up to here everything is applied, what takes an index but is no proposal included."""
        self.failure: str | None = None
        """Why the node has stopped, if it did so by itself."""
        self._disk = disk
        self._folder = folder
        self._machine = machine
        self._transport = transport or NoTransport()
        self._settings = settings or RaftSettings()
        self._jitter = jitter or Random().randrange
        self._thread: DiskThread | None = None
        self._in_thread = in_thread
        self._inbox: deque[Message] = deque()
        self._waiting = Waiting(node)
        self._unsaved_bytes = 0
        """What was applied since the last snapshot."""
        self._saving: asyncio.Task[None] | None = None
        self._saved: Snapshot | None = None
        self._waker: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER_MS
        self._task: asyncio.Task[None] | None = None
        self._raft: Raft
        self._storage: RaftStorage

    async def start(self, *, bootstrap: Membership) -> None:
        """Open the files and run. `bootstrap` counts only if there are none, see `open_storage`."""
        self._loop = asyncio.get_running_loop()
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
            now_ms=self._now_ms(),
        )
        if self._raft.state.membership.is_sole_voter(self.node):
            self._raft.tick(self._now_ms())  # so that it leads when this returns
        if self._in_thread is None:
            self._thread = DiskThread(f"raft {self.node}")
        self._task = self._loop.create_task(self._run(), name=f"raft {self.node}")

    async def stop(self) -> None:
        """Stop; who waits is told so. What was confirmed is on the disk already."""
        tasks = [task for task in (self._task, self._saving) if task is not None]
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._end("it was told to stop")

    async def propose(self, data: bytes) -> int:
        """Give the index at which `data` is committed and applied here.

        RaftError says what is known otherwise: refused (NotLeader names the leader), lost for
        sure (ProposalLost), or nobody knows (ProposalUncertain). To cancel does not take back.
        """
        self._check_runs()
        now_ms = self._now_ms()
        return await self._await_applied(self._raft.propose(data, now_ms), now_ms)

    async def add_learner(self, node: NodeId) -> int:
        self._check_runs()
        now_ms = self._now_ms()
        return await self._await_applied(self._raft.add_learner(node, now_ms), now_ms)

    async def promote(self, node: NodeId) -> int:
        """Make a learner a voter."""
        self._check_runs()
        now_ms = self._now_ms()
        return await self._await_applied(self._raft.promote(node, now_ms), now_ms)

    async def remove(self, node: NodeId) -> int:
        self._check_runs()
        now_ms = self._now_ms()
        return await self._await_applied(self._raft.remove(node, now_ms), now_ms)

    async def read_index(self) -> int:
        """Return when this node has applied all that was committed before the call.

        What the state machine then holds may be read: it is linearizable, on any node.
        """
        self._check_runs()
        read_id, future = self._waiting.add_read(self._loop)
        try:
            self._raft.read(read_id, self._now_ms())
        except BaseException:
            self._waiting.forget_read(read_id)
            raise
        self._wake()
        return await future

    def transfer(self, target: NodeId) -> None:
        """Begin to hand leadership over; `state.leader` tells when it has come about."""
        self._check_runs()
        self._raft.transfer(target, self._now_ms())
        self._wake()

    def receive(self, messages: list[Message]) -> None:
        """Take what other nodes sent; beyond the bound it is dropped, and sent again by them."""
        room = self._settings.inbox_messages_max - len(self._inbox)
        self._inbox.extend(messages[:room])
        self._wake()

    @property
    def state(self) -> State:
        """To look at, for `explain` and metrics."""
        return self._raft.state

    # The task

    async def _run(self) -> None:
        try:
            while True:
                await self._turn()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # whatever it is, the promises cannot be kept any more
            logger.exception("the metadata log of node %s has stopped", self.node)
            self._end(f"{type(error).__name__}: {error}")

    async def _turn(self) -> None:
        if self._inbox:
            self._take_inbox()
        now_ms = self._now_ms()
        if now_ms >= self._raft.deadline_ms():
            self._raft.tick(now_ms)
        if now_ms >= self._waiting.deadline_ms():
            self._waiting.give_up(now_ms)
        if self._saved is not None:
            await self._compact(self._saved)
            now_ms = self._now_ms()
        self._save_if_due()
        ready = self._raft.ready(now_ms)
        if ready is not None:
            await self._process(ready)
            return
        await self._sleep_until(min(self._raft.deadline_ms(), self._waiting.deadline_ms()))

    def _take_inbox(self) -> None:
        while self._inbox:
            message = self._inbox.popleft()
            try:
                self._raft.step(message, self._now_ms())
            except InvalidMessage as error:
                logger.warning("node %s: %s", self.node, error)

    async def _process(self, ready: Ready) -> None:
        if ready.early_messages:
            self._transport.send(ready.early_messages)
        for page in range(0, len(ready.committed), APPLIED_AT_ONCE_MAX):
            if page:
                await asyncio.sleep(0)
            # Durable already, so before the wait for the disk.
            self._apply(ready.committed[page : page + APPLIED_AT_ONCE_MAX])
        if ready.must_persist:
            if ready.snapshot is not None and self._saving is not None:
                await self._saving  # the two would replace the same file
            await self._at_disk(partial(self._storage.store, ready), partial(self._confirm, ready))
        else:
            self._confirm(ready)
        if ready.snapshot is not None:
            self._machine.restore(ready.snapshot.index, ready.snapshot.data)
            self.applied_index = ready.snapshot.index
            self._unsaved_bytes = 0
            self._waiting.note_restored(ready.snapshot.index)
        if ready.reads or ready.dropped_reads:
            self._waiting.note_reads(ready.reads, ready.dropped_reads, self.applied_index)

    def _confirm(self, ready: Ready) -> None:
        """Tell the core and the others that a Ready is durable."""
        self._raft.persisted(ready, self._now_ms())
        if ready.messages:
            self._transport.send(ready.messages)
        if ready.must_persist and ready.snapshot is None:
            committed = self._raft.take_committed(APPLIED_AT_ONCE_MAX)
            if committed:
                self._apply(committed)  # at once: this is what a proposal has waited for

    def _apply(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.kind is EntryKind.DATA:
                self._machine.apply(entry.index, entry.data)
            self.applied_index = entry.index
            self._unsaved_bytes += entry.size_bytes
            self._waiting.note_applied(entry.index, entry.term)

    def _save_if_due(self) -> None:
        """Begin a snapshot if enough was applied; it is written while the node goes on."""
        is_due = self._unsaved_bytes >= self._settings.snapshot_trigger_bytes
        if not is_due or self._saving is not None:
            return
        self._unsaved_bytes = 0
        try:
            snapshot = self._raft.make_snapshot(self.applied_index, self._machine.snapshot())
        except SnapshotTooLarge as error:
            logger.error("node %s keeps its whole log: %s", self.node, error)
            return
        self._saving = self._loop.create_task(self._save(snapshot), name=f"snapshot {self.node}")

    async def _save(self, snapshot: Snapshot) -> None:
        try:
            if self._thread is not None:  # another one: the log must not wait for this
                await asyncio.to_thread(self._storage.store_snapshot, snapshot)
            else:
                await self._at_disk(partial(self._storage.store_snapshot, snapshot), _nothing)
            self._saved = snapshot
        except OSError as error:
            # Nothing was promised: the log is longer than it need be, until the next one.
            logger.warning("node %s could not write a snapshot: %s", self.node, error)
        finally:
            self._saving = None
            self._wake()

    async def _compact(self, snapshot: Snapshot) -> None:
        self._saved = None
        self._raft.compact(snapshot)
        kept_from = snapshot.index - self._settings.kept_entries
        await self._at_disk(partial(self._storage.compact, kept_from), _nothing)

    async def _at_disk(self, work: Work, then: Work) -> None:
        """Do what waits for the disk, without the loop waiting too; then what follows from it."""
        if self._thread is not None:
            await self._thread.run(work, then)
        elif self._in_thread is not None:
            await self._in_thread(work)
            then()

    # Waiting

    def _await_applied(self, proposed: Proposed, now_ms: int) -> "asyncio.Future[int]":
        deadline_ms = now_ms + self._settings.proposal_timeout_ms
        future = self._waiting.add_proposal(self._loop, proposed, deadline_ms)
        self._wake()
        return future

    async def _sleep_until(self, deadline_ms: int) -> None:
        if self._inbox or self._saved is not None:
            return
        if deadline_ms < self._timer_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ms = deadline_ms
            # Half a millisecond later, so that the deadline has come by a clock in whole ones.
            self._timer = self._loop.call_at(deadline_ms / 1000 + 0.0005, self._ring)
        self._waker = self._loop.create_future()
        try:
            await self._waker
        finally:
            self._waker = None

    def _ring(self) -> None:
        """The timer: one that rings too early only costs a turn, so it is not set anew."""
        self._timer, self._timer_ms = None, NEVER_MS
        self._wake()

    def _wake(self) -> None:
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    def _check_runs(self) -> None:
        if self._task is None or self._task.done():
            raise RaftStopped(self.node, self.failure or "it was not started")

    def _end(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason
        self._waiting.fail_all(RaftStopped(self.node, reason))
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.close()  # what it is storing may be cut off nowhere but at its end
            self._thread = None
        self._storage.close()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


def _nothing() -> None:
    """What follows from nothing."""
