"""The controller: what the leader of the metadata log does for the cluster.

It registers the nodes that start, fences those that are not heard from, unfences those that have
caught up, and gives nodes their seats in the quorum. Every node has one; it is idle unless the node
leads and has committed in its term. All that it decides it proposes: a controller that has been
replaced proposes in vain.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final, TypeVar

import msgspec

from headrace.cluster import words
from headrace.cluster.address_book import AddressBook
from headrace.cluster.sessions import SessionRow, Sessions
from headrace.cluster.transport.calls import IncomingCall, InvalidPayload
from headrace.cluster.transport.links import Links
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.loop.tasks import Tasks
from headrace.metadata.ddl import ChangeBroker, Ddl, RegisterBroker, decode_ddl, encode_ddl
from headrace.metadata.entries import (
    Batch,
    CatalogDdl,
    Entry,
    Join,
    PromoteToVoter,
    TopologyChange,
)
from headrace.metadata.errors import InvalidEntry
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import Broker, NodeState
from headrace.raft.errors import MembershipRefused, RaftError
from headrace.replication.elections import plan_fencing, plan_registration, plan_unfencing

ENTRY_CHANGES_MAX: Final = 200
"""The most changes of an entry: applying one blocks the loop until it is done."""
RETRY_SECONDS: Final = 0.1
"""When a change that the quorum did not take is tried again."""

W = TypeVar("W", words.Register, words.Heartbeat)

logger = logging.getLogger(__name__)


class Controller:
    """The controller's part of a node."""

    def __init__(
        self,
        quorum: MetadataQuorum,
        links: Links,
        addresses: AddressBook,
        *,
        session_timeout_ms: int,
        heartbeat_interval_ms: int,
        voters_max: int,
    ) -> None:
        self._quorum = quorum
        self._driver = quorum.driver
        self._links = links
        self._addresses = addresses
        self._voters_max = voters_max
        self.sessions = Sessions(timeout_ms=session_timeout_ms, grace_ms=heartbeat_interval_ms * 2)
        """Of every other broker; up to date while this node is the controller."""
        self._term: int | None = None
        self._leading: asyncio.Task[None] | None = None
        self._kicked = asyncio.Event()
        self._registering = asyncio.Lock()
        self._caught_up: set[BrokerId] = set()
        """Fenced brokers that have applied their own registration."""
        self._stopping: set[BrokerId] = set()
        self._tasks = Tasks()
        self.is_active = False
        self.fencings = 0
        """How many brokers this controller fenced."""

    def serve(self) -> None:
        """Take the calls of other nodes, and follow the leadership."""
        self._links.serve(words.REGISTER, self._on_register)
        self._links.serve(words.HEARTBEAT, self._on_heartbeat)
        self._driver.on_leadership.append(self._note_leadership)
        self._note_leadership()

    def close(self) -> None:
        if self._note_leadership in self._driver.on_leadership:
            self._driver.on_leadership.remove(self._note_leadership)
        self._resign()
        self._tasks.cancel()

    def suspect(self, node: BrokerId) -> None:
        """Give a node little time to be heard from, as it cannot be reached."""
        if self.is_active:
            self.sessions.suspect(node, self._now_ms())
            self._kicked.set()

    def describe_sessions(self) -> list[SessionRow]:
        return list(self.sessions.describe(self._now_ms())) if self.is_active else []

    async def register(
        self, node: BrokerId, folder: bytes, wanted: words.Register
    ) -> words.Response:
        """Put a node that starts into the metadata log, or say who can or why not."""
        if not self.is_active:
            return self._redirection()
        async with self._registering:
            try:
                return await self._register(node, folder, wanted)
            except RaftError as error:
                return words.Failed(error.code, error.message, may_retry=True)

    def heard(self, node: BrokerId, heartbeat: words.Heartbeat) -> words.Response:
        """Renew the session of a node, and say what this controller holds of it."""
        if not self.is_active:
            return self._redirection()
        broker = self._quorum.image.broker(node)
        if broker is None or broker.broker_epoch != heartbeat.broker_epoch:
            known = "not registered" if broker is None else f"in epoch {broker.broker_epoch}"
            return words.Failed(
                ErrorCode.STALE_BROKER_EPOCH,
                f"node {node} is {known}, not in epoch {heartbeat.broker_epoch}",
            )
        self.sessions.heard(node, heartbeat.broker_epoch, self._now_ms())
        if heartbeat.is_stopping and not broker.is_fenced:
            self._stopping.add(node)
            self._kicked.set()
        elif not heartbeat.is_stopping and broker.is_fenced:
            self._caught_up.add(node)
            self._kicked.set()
        return words.Heard(broker.is_fenced, may_stop=broker.is_fenced)

    # Calls of other nodes

    def _on_register(self, call: IncomingCall) -> None:
        wanted = _decode(call, words.Register)
        self._tasks.start(self._answer_register(call, wanted))

    async def _answer_register(self, call: IncomingCall, wanted: words.Register) -> None:
        sender = call.sender
        response = await self.register(sender.node, sender.folder_id, wanted)
        call.answer(words.encode(response))

    def _on_heartbeat(self, call: IncomingCall) -> None:
        heartbeat = _decode(call, words.Heartbeat)
        call.answer(words.encode(self.heard(call.sender.node, heartbeat)))

    def _redirection(self) -> words.Response:
        leader = self._driver.state.leader
        address = self._addresses.text(leader)
        if leader is None or leader == self._driver.node or not address:
            return words.Failed(ErrorCode.NOT_CONTROLLER, "there is no leader", may_retry=True)
        return words.Redirected(address)

    # Leadership

    def _note_leadership(self) -> None:
        if self._driver.failure is not None:
            self._resign()
            return
        state = self._driver.state
        leads = state.leader == state.node and state.has_committed_in_term
        if leads and self._term != state.term:
            self._resign()
            self._term = state.term
            self._leading = self._tasks.start(self._lead(state.term_start_index))
        elif not leads:
            self._resign()
        else:
            self._kicked.set()  # a change of the members may allow the next one

    def _resign(self) -> None:
        self.is_active = False
        self._term = None
        if self._leading is not None:
            self._leading.cancel()
            self._leading = None

    async def _lead(self, first_index: int) -> None:
        await self._driver.wait_applied(first_index)
        image = self._quorum.image
        self._caught_up.clear()
        self._stopping.clear()
        self.sessions.begin(
            (
                (broker.broker_id, broker.broker_epoch)
                for broker in image.state.brokers.values()
                if broker.broker_id != self._driver.node
            ),
            self._now_ms(),
        )
        self.is_active = True
        logger.info("node %d is the controller, in term %s", self._driver.node, self._term)
        while True:
            self._kicked.clear()
            is_done = True
            for step in (self._fence, self._unfence, self._tend_members):
                try:
                    is_done &= await step()
                except RaftError as error:
                    is_done = False
                    logger.debug("the controller tries again: %s", error)
            await self._pause(is_done)

    async def _pause(self, is_done: bool) -> None:
        """Wait until there is something to do."""
        seconds = None if is_done else RETRY_SECONDS
        deadline_ms = self.sessions.deadline_ms()
        if deadline_ms is not None:
            left = max(0.0, (deadline_ms - self._now_ms()) / 1000) + 0.001
            seconds = left if seconds is None else min(seconds, left)
        try:
            async with asyncio.timeout(seconds):
                await self._kicked.wait()
        except TimeoutError:
            pass

    # What a controller does; each returns whether nothing is left to be done

    async def _fence(self) -> bool:
        for node, epoch in self.sessions.expired(self._now_ms()):
            broker = self._quorum.image.broker(node)
            if broker is None:
                self.sessions.forget(node)
            elif broker.broker_epoch != epoch or broker.is_fenced:
                self.sessions.fenced(node, epoch)
            else:
                logger.warning("node %d is fenced: it was not heard from in time", node)
                await self._fence_broker(broker)
        for node in tuple(self._stopping):
            self._stopping.discard(node)
            broker = self._quorum.image.broker(node)
            if broker is not None and not broker.is_fenced:
                logger.info("node %d is fenced: it stops", node)
                await self._fence_broker(broker, is_shutting_down=True)
        return True

    async def _fence_broker(self, broker: Broker, *, is_shutting_down: bool | None = None) -> None:
        node, epoch = broker.broker_id, broker.broker_epoch
        fencing = ChangeBroker(node, epoch, is_fenced=True, is_shutting_down=is_shutting_down)
        plan = plan_fencing(self._quorum.image, node)
        changes: Iterator[Ddl] = chain([fencing], plan)
        await self._propose_all(map(_entry, changes))
        self.fencings += 1
        self.sessions.fenced(node, epoch)

    async def _unfence(self) -> bool:
        own = self._driver.node
        for node in (*self._caught_up, own):
            self._caught_up.discard(node)
            broker = self._quorum.image.broker(node)
            if broker is None or not broker.is_fenced:
                continue
            if node == own and broker.is_shutting_down:
                continue
            logger.info("node %d is unfenced", node)
            unfencing = ChangeBroker(
                node, broker.broker_epoch, is_fenced=False, is_shutting_down=False
            )
            # Who gets a leader is planned once the node may lead.
            await self._propose_all([_entry(unfencing)])
            await self._propose_all(map(_entry, plan_unfencing(self._quorum.image, node)))
        return True

    async def _tend_members(self) -> bool:
        """Give nodes their seats in the quorum, one after the other; True if all have theirs."""
        try:
            for node in map(BrokerId, tuple(self._quorum.image.state.nodes)):
                await self._tend_member(node)
            for node in self._driver.state.membership.members:
                if self._quorum.image.node(node) is None and node != self._driver.node:
                    await self._driver.remove(node)
                    logger.info("node %d has left the quorum", node)
        except MembershipRefused as error:
            logger.debug("the members of the quorum stay as they are: %s", error)
            return False
        return not any(self._may_vote(node) for node in self._driver.state.membership.learners)

    async def _tend_member(self, node: BrokerId) -> None:
        image, driver, members = self._quorum.image, self._driver, self._driver.state.membership
        row = image.node(node)
        if row is None or row.state is NodeState.DECOMMISSIONED:
            return
        if node not in members.members:
            await driver.add_learner(node)
        elif node in members.learners and self._may_vote(node):
            await driver.promote(node)
        if row.state is NodeState.LEARNER and node in driver.state.membership.voters:
            await self._quorum.propose(TopologyChange(PromoteToVoter(node)))
            logger.info("node %d votes on the metadata log", node)

    def _may_vote(self, node: BrokerId) -> bool:
        """Return whether a learner is to become a voter: one that was removed is not, by itself."""
        image, members = self._quorum.image, self._driver.state.membership
        row, broker = image.node(node), image.broker(node)
        return (
            len(members.voters) < self._voters_max
            and (row is not None and row.state is NodeState.LEARNER)
            and (broker is not None and not broker.is_fenced)
        )

    async def _register(
        self, node: BrokerId, folder: bytes, wanted: words.Register
    ) -> words.Response:
        image = self._quorum.image
        try:
            ddl = decode_ddl(wanted.broker)
        except InvalidEntry as error:
            return words.Failed(ErrorCode.UNSUPPORTED_VERSION, str(error))
        if not isinstance(ddl, RegisterBroker) or (ddl.broker_id, ddl.log_dirs) != (
            node,
            (folder,),
        ):
            return words.Failed(ErrorCode.INVALID_REQUEST, f"not a registration of node {node}")
        former = image.broker(node)
        if former is not None and former.log_dirs and folder not in former.log_dirs:
            return _wiped(node)
        is_own = node == self._driver.node
        changes: list[Entry] = [TopologyChange(Join(node, wanted.address))]
        if former is not None and former.incarnation_id != ddl.incarnation_id:
            if not former.is_fenced:
                changes.append(_entry(ChangeBroker(node, former.broker_epoch, is_fenced=True)))
            was_clean = wanted.clean_epoch == former.broker_epoch
            changes += map(_entry, plan_registration(image, node, was_clean=was_clean))
        # A controller has all that is committed, so it need not wait to be unfenced.
        changes.append(_entry(msgspec.structs.replace(ddl, is_fenced=not is_own)))
        try:
            index = await self._propose_all(changes)
            if is_own:
                await self._propose_all(map(_entry, plan_unfencing(self._quorum.image, node)))
        except KafkaError as error:
            if isinstance(error, RaftError):
                raise
            return words.Failed(error.code, error.message)
        image = self._quorum.image
        broker = image.broker(node)
        if broker is None or broker.incarnation_id != ddl.incarnation_id:
            return words.Failed(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION, "another process has registered since"
            )
        if not is_own:
            self.sessions.registered(node, broker.broker_epoch, self._now_ms())
        self._kicked.set()
        addresses = {row.node_id: row.addr for row in image.state.nodes.values()}
        return words.Registered(image.state.cluster_id, broker.broker_epoch, index, addresses)

    async def _propose_all(self, changes: Iterable[Entry]) -> int:
        """Propose changes in order, as few entries; return the last index. Refused if one is."""
        rest = iter(changes)
        index = 0
        while entries := tuple(islice(rest, ENTRY_CHANGES_MAX)):
            index = await self._quorum.propose(Batch(entries))
        return index

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


def _decode(call: IncomingCall, expected: type[W]) -> W:
    try:
        request = words.decode_request(call.payload)
    except msgspec.MsgspecError as error:
        raise InvalidPayload(str(error)) from None
    if not isinstance(request, expected):
        raise InvalidPayload(f"a {type(request).__name__} in place of a {expected.__name__}")
    return request


def _entry(ddl: Ddl) -> CatalogDdl:
    return CatalogDdl(encode_ddl(ddl))


def _wiped(node: BrokerId) -> words.Failed:
    return words.Failed(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"node {node} is known with another data folder: if that one is lost, remove the node from "
        f"the cluster first (`headrace cluster remove {node}` on any other node), then start this "
        "one again; if it is not, give this one another node.id",
    )
