"""The controller: what the leader of the metadata log does for the cluster.

It registers the nodes that start, fences those that are not heard from, unfences those that have
caught up, looks after partitions (`partition_care`), and gives nodes their seats in the quorum.
Every node has one; it is idle unless the node leads and has committed in its term. All that it
decides it proposes: a controller that has been replaced proposes in vain.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, TypeVar

import msgspec

from headrace.cluster import words
from headrace.cluster.address_book import AddressBook
from headrace.cluster.expiry import is_any_token_over, is_anything_over
from headrace.cluster.partition_care import CareSettings, PartitionCare
from headrace.cluster.plans import ddl_entry, propose_all, propose_plan
from headrace.cluster.registrar import Admission, Registrar
from headrace.cluster.sessions import SessionRow, Sessions
from headrace.cluster.transport.calls import IncomingCall, InvalidPayload
from headrace.cluster.transport.links import Links
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.loop.tasks import Tasks
from headrace.metadata.applier import Outcome
from headrace.metadata.ddl import ChangeBroker, Ddl, Expire, UnregisterBroker
from headrace.metadata.entries import Entry, Leave, PromoteToVoter, TopologyChange
from headrace.metadata.image import Image
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import Broker, NodeState
from headrace.raft.errors import MembershipRefused, RaftStopped
from headrace.replication.elections import (
    AllowsUnclean,
    is_active,
    never,
    plan_fencing,
    plan_unfencing,
)

RETRY_SECONDS: Final = 0.1
"""When a change that the quorum did not take is tried again."""
EXPIRE_SECONDS: Final = 60.0
"""How often leases and join tokens are looked through for those that have ended."""
TOKEN_CHECK_SECONDS_MIN: Final = 0.1
"""The shortest time between looks at delegation tokens, whatever the settings say."""

W = TypeVar("W", words.Register, words.Heartbeat)

logger = logging.getLogger(__name__)


class Controller:
    """The controller's part of a node."""

    def __init__(  # noqa: PLR0913  what its duties need
        self,
        quorum: MetadataQuorum,
        links: Links,
        addresses: AddressBook,
        *,
        session_timeout_ms: int,
        heartbeat_interval_ms: int,
        voters_max: Callable[[], int],
        admission: Admission,
        care: CareSettings = CareSettings(),  # noqa: B008  frozen
        token_check_seconds: float = EXPIRE_SECONDS,
    ) -> None:
        self._quorum = quorum
        self._driver = quorum.driver
        self._links = links
        self._addresses = addresses
        self._voters_max = voters_max
        self._care = PartitionCare(quorum, care, admission.now_ms)
        self._registrar = Registrar(quorum, admission, self._care.allows_unclean)
        self._wall_clock_ms = admission.now_ms
        self._expire_at = 0.0
        """When to look for leases and join tokens that have ended, by the loop's clock."""
        self._token_check_seconds = max(token_check_seconds, TOKEN_CHECK_SECONDS_MIN)
        self._tokens_expire_at = 0.0
        """When to look for delegation tokens that have ended."""
        self.sessions = Sessions(timeout_ms=session_timeout_ms, grace_ms=heartbeat_interval_ms * 2)
        """Sessions of every other broker; up to date while this node is the controller."""
        self._term: int | None = None
        self._leading: asyncio.Task[None] | None = None
        self._kicked = asyncio.Event()
        self._caught_up: set[BrokerId] = set()
        """Fenced brokers that have applied their own registration."""
        self._stopping: set[BrokerId] = set()
        """Brokers that stop, and have something to hand over yet."""
        self._stopped: set[BrokerId] = set()
        """Brokers that may stop: nothing is led by them any more."""
        self._must_repair = False
        self._tasks = Tasks()
        self._registrations = Tasks()
        """Registrations of other nodes; they end with the term."""
        self.is_active = False
        self.fencings = 0
        """How many brokers this controller fenced."""

    def serve(self) -> None:
        """Take the calls of other nodes, and follow the leadership."""
        self._links.serve(words.REGISTER, self._on_register, for_unregistered=True)
        self._links.serve(words.HEARTBEAT, self._on_heartbeat)
        self._driver.on_leadership.append(self._note_leadership)
        self._note_leadership()

    def close(self) -> None:
        if self._note_leadership in self._driver.on_leadership:
            self._driver.on_leadership.remove(self._note_leadership)
        self._resign()
        self._tasks.cancel()

    def suspect(self, node: BrokerId) -> None:
        """Shorten the session of a node that cannot be reached."""
        if self.is_active:
            self.sessions.suspect(node, self._now_ms())
            self._kicked.set()

    def gone(self, node: BrokerId) -> None:
        """Fence a node at once: nobody listens at its address, and it holds no connection."""
        if self.is_active:
            self.sessions.gone(node, self._now_ms())
            self._kicked.set()

    def note_outcome(self, outcome: Outcome) -> None:
        """Look after the partitions that an entry has changed."""
        if self.is_active and self._care.note(outcome):
            self._kicked.set()

    def note_image(self) -> None:
        """Look at the nodes again, which have changed in the image."""
        self._kicked.set()

    def describe_sessions(self) -> list[SessionRow]:
        return list(self.sessions.describe(self._now_ms())) if self.is_active else []

    async def register(
        self, node: BrokerId, folder: bytes, wanted: words.Register
    ) -> words.Response:
        """Put a node that starts into the metadata log, or say who can or why not."""
        if not self.is_active:
            return self.redirection()
        registered = await self._registrar.register(node, folder, wanted)
        if isinstance(registered, words.Registered):
            if node != self._driver.node:
                self.sessions.registered(node, registered.broker_epoch, self._now_ms())
            self._kicked.set()
        return registered

    def heard(self, node: BrokerId, heartbeat: words.Heartbeat) -> words.Response:
        """Renew the session of a node, and say what this controller holds of it."""
        if not self.is_active:
            return self.redirection()
        epoch = heartbeat.broker_epoch
        broker = self._quorum.image.broker(node)
        if broker is None or broker.broker_epoch != epoch:
            known = "not registered" if broker is None else f"in epoch {broker.broker_epoch}"
            return words.Failed(
                ErrorCode.STALE_BROKER_EPOCH, f"node {node} is {known}, not in epoch {epoch}"
            )
        is_own = node == self._driver.node
        if not is_own and not self.sessions.heard(node, epoch, self._now_ms()):
            self.sessions.registered(node, epoch, self._now_ms())
        may_stop = heartbeat.is_stopping and self._has_handed_over(broker)
        if heartbeat.is_stopping and not broker.is_fenced:
            (self._stopped if may_stop else self._stopping).add(node)
            self._kicked.set()
        elif broker.is_fenced and not heartbeat.is_stopping:
            self._caught_up.add(node)
            self._kicked.set()
        return words.Heard(broker.is_fenced, may_stop=may_stop)

    def hear_guest(self, node: BrokerId) -> None:
        """Renew the session of a node that was registered by the node-to-node protocol."""
        broker = self._quorum.image.broker(node)
        if self.is_active and broker is not None and broker.node_name:
            self.heard(node, words.Heartbeat(broker.broker_epoch, 0))

    def _has_handed_over(self, broker: Broker) -> bool:
        """Return whether a broker leads nothing any more, and gets nothing to lead."""
        if broker.is_fenced:
            return True
        return broker.is_shutting_down and not self._quorum.image.leader_count(broker.broker_id)

    # Calls of other nodes

    def _on_register(self, call: IncomingCall) -> None:
        self._registrations.start(self._answer_register(call, _decode(call, words.Register)))

    async def _answer_register(self, call: IncomingCall, wanted: words.Register) -> None:
        sender = call.sender
        response: words.Response = words.Failed(
            ErrorCode.NOT_CONTROLLER, "this node leads no more", may_retry=True
        )
        try:
            response = await self.register(sender.node, sender.folder_id, wanted)
        finally:
            call.answer(words.encode(response))

    def _on_heartbeat(self, call: IncomingCall) -> None:
        heartbeat = _decode(call, words.Heartbeat)
        call.answer(words.encode(self.heard(call.sender.node, heartbeat)))

    def redirection(self) -> words.Response:
        """Return where the controller is, for a call that only it can answer."""
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
        # What a node asked of this controller must not reach the next one behind its next life.
        self._registrations.cancel()

    async def _lead(self, first_index: int) -> None:
        await self._driver.wait_applied(first_index)
        self._begin()
        steps = [
            self._repair,
            self._fence,
            self._unfence,
            self._look_after_partitions,
            self._see_off,
            self._tend_members,
            self._expire,
        ]
        while True:
            self._kicked.clear()
            is_done = True
            for step in steps:
                try:
                    is_done &= await step()
                except RaftStopped:
                    return
                except KafkaError as error:  # the quorum does not take it now, or refuses it
                    is_done = False
                    logger.info("the controller tries again: %s", error)
                except Exception:  # its other duties go on: nobody else fences
                    is_done = False
                    logger.exception("the controller tries again")
            await self._pause(is_done)

    def _begin(self) -> None:
        """Start the session of every broker afresh: nobody knows what the last controller heard."""
        self._caught_up.clear()
        self._stopping.clear()
        self._stopped.clear()
        self._must_repair = True
        self._care.begin(asyncio.get_running_loop().time())
        others = (
            (broker.broker_id, broker.broker_epoch)
            for broker in self._quorum.image.state.brokers.values()
            if broker.broker_id != self._driver.node
        )
        self.sessions.begin(others, self._now_ms())
        self.is_active = True
        logger.info("node %d is the controller, in term %s", self._driver.node, self._term)

    async def _pause(self, is_done: bool) -> None:
        """Wait until there is something to do."""
        now = asyncio.get_running_loop().time()
        looks_at = min(self._expire_at, self._tokens_expire_at)
        seconds = min(max(0.0, looks_at - now), self._care.seconds_left(now))
        if not is_done:
            seconds = min(seconds, RETRY_SECONDS)
        deadline_ms = self.sessions.deadline_ms()
        if deadline_ms is not None:
            left = max(0.0, (deadline_ms - self._now_ms()) / 1000) + 0.001
            seconds = min(seconds, left)
        try:
            async with asyncio.timeout(seconds):
                await self._kicked.wait()
        except TimeoutError:
            pass

    # What a controller does; each returns whether nothing is left to be done

    async def _repair(self) -> bool:
        """Finish what the controller before may have left half done."""
        if self._must_repair:
            allows = self._care.allows_unclean
            is_done = await propose_plan(self._quorum, lambda image: _plan_repair(image, allows))
            self._must_repair = not is_done
        return not self._must_repair

    async def _fence(self) -> bool:
        """Fence the brokers whose sessions ended and those that stop, all at once.

        One after the other, the next leader of a partition might be one that is fenced next. A
        broker that stops hands over first, and is fenced when that is done.
        """
        image, now_ms = self._quorum.image, self._now_ms()
        gone: dict[BrokerId, int] = {}
        stopping: dict[BrokerId, int] = {}
        for node, epoch in self.sessions.expired(now_ms):
            broker = image.broker(node)
            if broker is None:
                self.sessions.forget(node)
            elif broker.broker_epoch != epoch:
                self.sessions.registered(node, broker.broker_epoch, now_ms)
            else:
                gone[node] = epoch
                if not broker.is_fenced:
                    logger.warning("node %d is fenced: it was not heard from in time", node)
        stopped = frozenset(self._stopped)
        for node in stopped:
            if (broker := image.broker(node)) is not None:
                gone[node] = broker.broker_epoch
                logger.info("node %d is fenced: it stops", node)
        for node in self._stopping.difference(gone):
            if (broker := image.broker(node)) is not None:
                stopping[node] = broker.broker_epoch
                logger.info("node %d stops: it hands over what it leads", node)
        self._stopping.clear()  # a heartbeat says it again
        if not gone and not stopping:
            return True
        allows = self._care.allows_unclean
        is_done = await propose_plan(
            self._quorum, lambda image: _plan_fencing(image, gone, stopping, allows)
        )
        self._must_repair |= not is_done
        self._stopped -= stopped
        self.fencings += len(gone)
        for node, epoch in gone.items():
            self.sessions.fenced(node, epoch)
        return is_done

    async def _unfence(self) -> bool:
        """Unfence brokers that have caught up, this node among them."""
        allows = self._care.allows_unclean
        for node in (*self._caught_up, self._driver.node):
            broker = self._quorum.image.broker(node)
            self._caught_up.discard(node)
            if broker is None or not broker.is_fenced or node == self._registrar.registering:
                continue
            if node == self._driver.node and broker.is_shutting_down:
                continue  # it stops
            logger.info("node %d is unfenced", node)
            plan = partial(_plan_unfencing, node=node, allows=allows)
            is_done = False
            try:
                is_done = await propose_plan(self._quorum, plan)
            finally:  # if it fails, the broker may be unfenced and yet lead nothing
                self._must_repair |= not is_done
        return not self._must_repair

    async def _look_after_partitions(self) -> bool:
        return await self._care.run(asyncio.get_running_loop().time())

    async def _see_off(self) -> bool:
        """Remove nodes that were decommissioned and have stopped; their ids are free then."""
        image = self._quorum.image
        for row in tuple(image.state.nodes.values()):
            broker = image.broker(BrokerId(row.node_id))
            is_down = broker is None or broker.is_fenced
            if row.state is NodeState.DECOMMISSIONED and is_down:
                changes: list[Entry] = []
                if broker is not None:
                    changes.append(ddl_entry(UnregisterBroker(broker.broker_id)))
                changes.append(TopologyChange(Leave(row.node_id)))
                await propose_all(self._quorum, changes)
                logger.info("node %d has left the cluster", row.node_id)
        return True

    async def _tend_members(self) -> bool:
        """Add nodes to the quorum one after the other; return True if all are where they belong."""
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
        members = self._driver.state.membership
        return not any(map(self._may_vote, members.learners)) and not any(
            map(self._lost_its_vote, members.voters)
        )

    async def _tend_member(self, node: BrokerId) -> None:
        image, driver, members = self._quorum.image, self._driver, self._driver.state.membership
        row = image.node(node)
        if row is None or row.state is NodeState.DECOMMISSIONED:
            return
        if node not in members.members:
            await driver.add_learner(node)
        elif node in members.learners and self._may_vote(node):
            await driver.promote(node)
        elif self._lost_its_vote(node):
            await self._demote(node)
        if row.state is NodeState.LEARNER and node in driver.state.membership.voters:
            await propose_all(self._quorum, [TopologyChange(PromoteToVoter(node))])
            logger.info("node %d votes on the metadata log", node)

    async def _expire(self) -> bool:
        """Forget leases and tokens that have ended, if it is time to look for them."""
        now = asyncio.get_running_loop().time()
        looks, looks_at_tokens = now >= self._expire_at, now >= self._tokens_expire_at
        # Set also if it fails: nobody waits for it.
        if looks:
            self._expire_at = now + EXPIRE_SECONDS
        if looks_at_tokens:
            self._tokens_expire_at = now + self._token_check_seconds
        image, wall_clock_ms = self._quorum.image, self._wall_clock_ms()
        if (looks and is_anything_over(image, wall_clock_ms)) or (
            looks_at_tokens and is_any_token_over(image, wall_clock_ms)
        ):
            await propose_all(self._quorum, [ddl_entry(Expire(wall_clock_ms))])
            # One entry drops a bounded number of delegation tokens.
            while is_any_token_over(self._quorum.image, wall_clock_ms):
                await propose_all(self._quorum, [ddl_entry(Expire(wall_clock_ms))])
        return True

    async def _demote(self, node: BrokerId) -> None:
        """Take a node's vote; a leader hands over first, so that nobody waits for an election."""
        driver = self._driver
        heir = driver.heir() if node == driver.node else None
        if heir is not None:
            driver.transfer(heir)
            return
        await driver.demote(node)
        logger.info("node %d votes on the metadata log no more", node)

    def _may_vote(self, node: BrokerId) -> bool:
        """Return whether a learner is to become a voter: one that was removed is not, by itself."""
        image, members = self._quorum.image, self._driver.state.membership
        row, broker = image.node(node), image.broker(node)
        if row is None or broker is None or broker.is_fenced:
            return False
        if row.state is NodeState.LEARNER:
            return len(members.voters) < self._voters_max()
        return row.state is NodeState.ACTIVE and node in image.state.metadata_group.members

    def _lost_its_vote(self, node: BrokerId) -> bool:
        """Return whether a voter is to become a learner, as the image says."""
        image = self._quorum.image
        row = image.node(node)
        return (
            row is not None
            and row.state in (NodeState.ACTIVE, NodeState.DRAINING)
            and node in self._driver.state.membership.voters
            and node not in image.state.metadata_group.members
        )

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


def _plan_fencing(
    image: Image,
    gone: Mapping[BrokerId, int],
    stopping: Mapping[BrokerId, int],
    allows: AllowsUnclean,
) -> Iterator[Ddl | None]:
    """Plan that brokers are fenced or stop, in the epochs in which they were heard from last."""
    there = []
    for node, epoch in (*gone.items(), *stopping.items()):
        broker = image.broker(node)
        if broker is None or broker.broker_epoch != epoch:
            continue
        there.append(node)
        if node in gone and not broker.is_fenced:
            yield ChangeBroker(node, epoch, is_fenced=True)
        elif node in stopping and not broker.is_shutting_down:
            yield ChangeBroker(node, epoch, is_shutting_down=True)
    yield from plan_fencing(image, *there, allows_unclean=allows)


def _plan_unfencing(image: Image, node: BrokerId, allows: AllowsUnclean) -> Iterator[Ddl | None]:
    broker = image.broker(node)
    if broker is not None and broker.is_fenced:
        yield ChangeBroker(node, broker.broker_epoch, is_fenced=False, is_shutting_down=False)
    yield from plan_unfencing(image, node, allows)


def _plan_repair(image: Image, allows: AllowsUnclean = never) -> Iterator[Ddl | None]:
    """Plan what is still to do for all brokers, which may come and go meanwhile."""
    brokers = tuple(image.state.brokers)
    gone = [node for node in brokers if not is_active(image, node)]
    yield from plan_fencing(image, *gone, allows_unclean=allows)
    for node in brokers:
        if is_active(image, node):
            yield from plan_unfencing(image, node, allows)


def _decode(call: IncomingCall, expected: type[W]) -> W:
    try:
        request = words.decode_request(call.payload)
    except msgspec.MsgspecError as error:
        raise InvalidPayload(str(error)) from None
    if not isinstance(request, expected):
        raise InvalidPayload(f"a {type(request).__name__} in place of a {expected.__name__}")
    return request
