"""The metadata log of a running node: propose a change, read the image.

    quorum = MetadataQuorum(BrokerId(1), disk)
    await quorum.start()                                # one node is a quorum of one
    index = await quorum.propose(CreateTopic(...))      # applied here, and visible in the image
    quorum.image.topic(name)

Any node takes proposals: one that does not lead sends them to the leader, waits until it has
applied them itself, and takes their outcomes from its own image.

The shell around two pure things: `raft` decides the order of entries, the applier makes the image
of them. What a state machine raises stops the node (see `RaftDriver`).
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from headrace.config import METADATA_OUTCOMES_MAX
from headrace.ids import BrokerId
from headrace.log.disk import Disk
from headrace.metadata.applier import Applier, Outcome, OutcomeForgotten, Watchers
from headrace.metadata.ddl import Ddl, encode_ddl
from headrace.metadata.entries import CatalogDdl, Entry, SurrogateAlloc, encode_entry
from headrace.metadata.image import Image
from headrace.metadata.levels import refusal_of
from headrace.metadata.snapshot import load_snapshot, take_snapshot
from headrace.raft.driver import RaftDriver
from headrace.raft.errors import (
    ForwardUncertain,
    NoLeader,
    NotLeader,
    ProposalLost,
    ProposalUncertain,
    RaftError,
    RaftStopped,
    ReadDropped,
    TransferInProgress,
)
from headrace.raft.explain import explain
from headrace.raft.membership import Membership
from headrace.raft.ports import Host, Transport
from headrace.raft.settings import RaftSettings

FOLDER: Final = "__cluster_metadata"
RESOLVE_SECONDS: Final = 10
"""How long a node waits for another leader to learn whether a proposal is in the log."""
RETRY_SECONDS: Final = 0.02
"""How soon a proposal is sent again that nobody took, if nothing is heard of another leader."""


class Forward(Protocol):
    """Sends proposals to a leader."""

    async def __call__(self, leader: BrokerId, term: int, data: bytes, timeout_ms: int) -> int:
        """Return the index at which the leader of a term has applied an entry.

        In no other term does it take the entry, however late it comes. NotLeader if it is surely
        not in the log, ForwardUncertain if that is not known, another RaftError if the leader
        refuses it.
        """


class MetadataQuorum:
    """A node's part in the metadata quorum, and its image."""

    def __init__(  # noqa: PLR0913  what surrounds a quorum, and its bounds
        self,
        node: BrokerId,
        disk: Disk,
        *,
        folder: str = FOLDER,
        watchers: Watchers = Watchers(),  # noqa: B008  frozen
        on_restored: Callable[[Image], None] | None = None,
        transport: Transport | None = None,
        forward: Forward | None = None,
        settings: RaftSettings | None = None,
        host: Host | None = None,
        outcomes_max: int = METADATA_OUTCOMES_MAX.default,
    ) -> None:
        """`on_restored` is called with an image that came from a snapshot.

        `host` provides the clock and the threads; by default the loop's. The outcomes of the last
        `outcomes_max` entries are kept. Without `forward` only a leader takes proposals.
        """
        self._forward = forward
        self._settings = settings or RaftSettings()
        self._machine = _ImageMachine(watchers, on_restored, outcomes_max)
        self.driver = RaftDriver(
            node,
            disk,
            folder,
            machine=self._machine,
            transport=transport,
            settings=self._settings,
            host=host,
        )

    @property
    def image(self) -> Image:
        """The applied image. Do not keep it: a snapshot may replace it."""
        return self._machine.applier.image

    async def start(self, members: Membership | None = None) -> None:
        """Open the log and take part; `members` are those of a new quorum, else this node alone.

        With none a node that has no log waits for a leader to add it.
        """
        if members is None:
            members = Membership((self.driver.node,))
        await self.driver.start(bootstrap=members)

    async def stop(self) -> None:
        await self.driver.stop()

    async def propose(self, change: Entry | Ddl) -> int:
        """Return the index at which a change is applied here, or raise.

        Refused if it was committed but the image does not allow it; RaftError if it was not
        committed, or if that is unknown (see `RaftDriver.propose`); KafkaError if some node may not
        know such a change (see `levels`).
        """
        outcome = await self.propose_for_outcome(change)
        outcome.raise_if_refused()
        return outcome.index

    async def propose_for_outcome(self, change: Entry | Ddl) -> Outcome:
        """Return what a change did, applied here: its events and refusals.

        For callers that need the events of just this entry (which producer ids an allocation
        returned), or the outcome of each part of a batch. Raises RaftError like `propose`.
        """
        entry = self._entry(change)
        # Two nodes may want the same block of ids: an allocation like ours need not be ours.
        is_unmistakable = not isinstance(entry, SurrogateAlloc)
        index = await self.propose_data(encode_entry(entry), is_unmistakable=is_unmistakable)
        return self._outcome(index)

    async def propose_as_leader(self, change: Entry | Ddl) -> Outcome:
        """Return what a change did, like `propose_for_outcome`, but only while this node leads.

        For what a controller decides: a leader that has been replaced gets NotLeader, and its
        decision does not reach the log through the next one, which has decided since.
        """
        entry = self._entry(change)
        return self._outcome(await self.driver.propose(encode_entry(entry)))

    def _entry(self, change: Entry | Ddl) -> Entry:
        """Return the entry of a change; KafkaError if it must not be in the log yet."""
        if (refusal := refusal_of(self.image, change)) is not None:
            raise refusal
        return CatalogDdl(encode_ddl(change)) if isinstance(change, Ddl) else change

    def _outcome(self, index: int) -> Outcome:
        try:
            return self._machine.applier.outcome(index)
        except OutcomeForgotten as error:  # a snapshot took the place of the entries there
            raise ForwardUncertain(
                self.driver.state.leader or self.driver.node, str(error)
            ) from None

    async def propose_data(self, data: bytes, *, is_unmistakable: bool = False) -> int:
        """Return the index at which an encoded entry is applied here; raise RaftError if not.

        What is surely not in the log is proposed again, to whoever leads then; what may be is not.
        If the same bytes of another proposer would do as well (`is_unmistakable`), this node waits
        for the next leader's log to tell what became of an entry whose leader was lost.
        """
        driver = self.driver
        loop = asyncio.get_running_loop()
        timeout_ms = self._settings.proposal_timeout_ms
        deadline = loop.time() + timeout_ms / 1000
        while True:
            leader = driver.node if self._forward is None else driver.leader
            left_ms = int((deadline - loop.time()) * 1000)
            try:
                if self._forward is None:
                    return await driver.propose(data)
                if leader is not None and left_ms > 0:
                    return await self._send(leader, data, deadline, is_unmistakable=is_unmistakable)
            except (NotLeader, TransferInProgress, ProposalLost):
                if self._forward is None:
                    raise
            if left_ms <= 0:
                raise NoLeader(driver.node, timeout_ms)
            await self._wait_for_leader(leader, min(deadline, loop.time() + 1))

    async def _send(
        self, leader: BrokerId, data: bytes, deadline: float, *, is_unmistakable: bool
    ) -> int:
        """Return the index at which a leader took an entry; NotLeader if it is in no log."""
        assert self._forward is not None
        left_ms = int((deadline - asyncio.get_running_loop().time()) * 1000)
        term = self.driver.state.term
        with self._machine.seek(data) as sought:
            try:
                if leader == self.driver.node:
                    return await self.driver.propose(data)
                index = await self._forward(leader, term, data, left_ms)
            except (ForwardUncertain, ProposalUncertain):
                is_alone = self.driver.state.membership.is_sole_voter(self.driver.node)
                if is_alone or not is_unmistakable:
                    raise
                if not await self._resolve(sought, term, deadline):
                    raise
                if sought.index is None:
                    raise NotLeader(self.driver.node, None) from None
                return sought.index
        await self._wait_applied(leader, index, deadline)
        return index

    async def _resolve(self, sought: "_Sought", term: int, deadline: float) -> bool:
        """Find out what became of an entry that was sent to the leader of a term; False if unknown.

        The leader takes it in that term only. One of a later term that has committed in it has all
        that was committed before, and what it lacks never will be.
        """
        driver, loop = self.driver, asyncio.get_running_loop()
        deadline = min(deadline, loop.time() + RESOLVE_SECONDS)
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    is_later = driver.state.term > term
                    try:
                        await driver.read_index()
                    except RaftStopped:
                        raise
                    except RaftError:  # nobody confirms it now
                        is_later = False
                    if sought.is_out_of_sight:
                        return False
                    if sought.index is not None or is_later:
                        return True
                    await self._wait_for_leader(driver.node, deadline)
        except TimeoutError:
            return False

    async def _wait_applied(self, leader: BrokerId, index: int, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self.driver.wait_applied(index)
        except TimeoutError:
            raise ForwardUncertain(
                leader, f"it is in the log at {index}, but node {self.driver.node} has not got it"
            ) from None

    async def _wait_for_leader(self, former: BrokerId | None, deadline: float) -> None:
        """Wait for news of a leader; if one is known that did not take it, only for a moment."""
        if former is not None:
            deadline = min(deadline, asyncio.get_running_loop().time() + RETRY_SECONDS)
        try:
            async with asyncio.timeout_at(deadline):
                await self.driver.wait_leadership()
        except TimeoutError:
            pass

    async def read(self) -> Image:
        """Return the image with everything that was committed before the call, on any node."""
        await self.driver.read_index()
        return self.image

    async def catch_up(self) -> None:
        """Return when the image has all that was committed before the call, on any node.

        For a change that is refused by what this node knows: a node that lags would refuse what the
        cluster allows. RaftError if no leader confirms it in time. A node alone need not wait.
        """
        driver = self.driver
        if self._forward is None or driver.state.membership.is_sole_voter(driver.node):
            return
        timeout_ms = self._settings.proposal_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    try:
                        await driver.read_index()
                        return
                    except (NotLeader, ReadDropped):
                        await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            raise NoLeader(driver.node, timeout_ms) from None

    def explain(self) -> list[str]:
        """Return text on the state of the quorum, as this node sees it."""
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        driver = self.driver
        return explain(
            driver.state, now_ms, failure=driver.failure, full_disk=driver.full_disk.reason
        )


class _Sought:
    """An entry that is looked for among those that are applied."""

    __slots__ = ("index", "is_out_of_sight")

    def __init__(self) -> None:
        self.index: int | None = None
        """Where it was applied first since."""
        self.is_out_of_sight = False
        """Whether a snapshot has taken the place of entries."""


class _ImageMachine:
    """The image as the state machine of the log."""

    def __init__(
        self,
        watchers: Watchers,
        on_restored: Callable[[Image], None] | None,
        outcomes_max: int = METADATA_OUTCOMES_MAX.default,
    ) -> None:
        self.applier = Applier(Image(), watchers, outcomes_max)
        self._outcomes_max = outcomes_max
        self._watchers = watchers
        self._on_restored = on_restored
        self._sought: dict[bytes, list[_Sought]] = {}

    @contextmanager
    def seek(self, data: bytes) -> Iterator[_Sought]:
        """Look for an entry from now on."""
        sought = _Sought()
        seekers = self._sought.setdefault(data, [])
        seekers.append(sought)
        try:
            yield sought
        finally:
            seekers.remove(sought)
            if not seekers:
                self._sought.pop(data, None)

    def apply(self, index: int, data: bytes) -> None:
        self.applier.apply([(index, data)])
        for sought in self._sought.get(data, ()) if self._sought else ():
            if sought.index is None:
                sought.index = index

    def snapshot(self) -> bytes:
        return take_snapshot(self.applier)

    def restore(self, index: int, data: bytes) -> None:
        self.applier = Applier(load_snapshot(data), self._watchers, self._outcomes_max)
        self.applier.advance(index)
        for seekers in self._sought.values():
            for sought in seekers:
                sought.is_out_of_sight = True
        if self._on_restored is not None:
            self._on_restored(self.image)

    @property
    def image(self) -> Image:
        return self.applier.image
