"""The members of the metadata log, for every node: how far they are, who votes, who leaves.

    members = QuorumMembers(quorum, links)
    members.serve()
    quorum = await members.describe(timeout_ms)         # as the leader sees it
    await members.add(node, folder, timeout_ms)         # KIP-853, on any node
    await members.remove(node, folder, timeout_ms)
    await members.unregister(node, timeout_ms)          # the node is gone, and its vote

Who is to vote is in the image, by an entry like any other; the controller makes the quorum follow,
and the node that was asked waits until it has. So a change that was decided survives its leader.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from headrace.cluster import words
from headrace.cluster.transport.calls import CallError, IncomingCall
from headrace.cluster.transport.links import Links
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.metadata.ddl import UnregisterBroker, encode_ddl
from headrace.metadata.entries import (
    Batch,
    CatalogDdl,
    Entry,
    Leave,
    PromoteToVoter,
    RemoveMember,
    RoutingChange,
    TopologyChange,
)
from headrace.metadata.image import Image
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import METADATA_GROUP, NodeState
from headrace.raft.errors import NotLeader, ReadDropped
from headrace.raft.membership import Membership
from headrace.raft.state import Role, State

RETRY_SECONDS: Final = 0.05
"""How soon something is looked at again that is not so yet."""
CALL_MS_MAX: Final = 2000
"""How long a leader has to describe the quorum before it, or its successor, is asked again."""
UNKNOWN_MS: Final = -1

T = TypeVar("T")


class QuorumMembers:
    """The members of the metadata log, from the view of any node."""

    def __init__(self, quorum: MetadataQuorum, links: Links) -> None:
        self._quorum = quorum
        self._driver = quorum.driver
        self._links = links

    def serve(self) -> None:
        """Answer other nodes from now on."""
        self._links.serve(words.DESCRIBE_QUORUM, self._on_describe)

    async def describe(self, timeout_ms: int) -> words.Quorum:
        """Return how far the members are; REQUEST_TIMED_OUT if no leader says so in time."""
        return await _within(timeout_ms, self._describe(timeout_ms), "no leader has answered")

    async def add(
        self, node: BrokerId, folder: bytes, timeout_ms: int, *, is_awaited: bool = True
    ) -> None:
        """Make a node a voter that has joined with this data folder, once it has caught up.

        Return when it is, or if that is not awaited, when it is decided. DUPLICATE_VOTER if it is
        one already, REQUEST_TIMED_OUT if it is not there or not caught up in time.
        """
        problem = f"node {node} has not caught up"

        async def work() -> None:
            nonlocal problem
            while problem := await self._why_not_yet(node, folder, timeout_ms):
                await asyncio.sleep(RETRY_SECONDS)
            problem = f"node {node} is to vote, but the quorum has not taken it in yet"
            await self._quorum.propose(TopologyChange(PromoteToVoter(node)))
            if is_awaited:
                await self._wait_members(lambda members: node in members.voters)

        await _within(timeout_ms, work(), lambda: problem)

    async def remove(self, node: BrokerId, folder: bytes | None, timeout_ms: int) -> None:
        """Take a node's vote, whose data folder is this one; return when the quorum has.

        It stays as a learner, and is not made a voter again by itself. VOTER_NOT_FOUND if it does
        not vote; with None the folder does not matter.
        """
        problem = f"node {node} votes still"

        async def work() -> None:
            nonlocal problem
            image = await self._read()
            while (row := image.node(node)) is not None and row.state is NodeState.LEARNER:
                if node not in self._driver.state.membership.voters:
                    break
                await asyncio.sleep(RETRY_SECONDS)  # it votes, which the image has yet to say
                image = self._quorum.image
            self._check_votes(image, node, folder)
            while problem := await self._why_others_cannot(node, timeout_ms):
                await asyncio.sleep(RETRY_SECONDS)
            problem = f"node {node} is to vote no more, but the quorum has not changed yet"
            await self._quorum.propose(RoutingChange(RemoveMember(METADATA_GROUP, node)))
            await self._wait_members(lambda members: node not in members.voters)

        await _within(timeout_ms, work(), lambda: problem)

    async def unregister(self, node: BrokerId, timeout_ms: int) -> None:
        """Forget a node that is down and has no replicas, and take its place in the quorum.

        Another node may join under its id.
        """
        problem = f"node {node} is still there"

        async def work() -> None:
            image = await self._read()
            _check_may_go(image, node)
            if node in image.state.metadata_group.members:
                await self.remove(node, None, timeout_ms)
            changes: list[Entry] = []
            if image.broker(node) is not None:
                changes.append(CatalogDdl(encode_ddl(UnregisterBroker(node))))
            if image.node(node) is not None:
                changes.append(TopologyChange(Leave(node)))
            await self._quorum.propose(Batch(tuple(changes)))
            await self._wait_members(lambda members: node not in members.members)

        await _within(timeout_ms, work(), problem)

    # The leader's view

    def _on_describe(self, call: IncomingCall) -> None:
        response: words.Response
        state = self._driver.state
        if self._driver.failure is not None or state.role is not Role.LEADER:
            response = words.Failed(ErrorCode.NOT_CONTROLLER, "not the leader", may_retry=True)
        else:
            response = _describe(state, self._now_ms())
        call.answer(words.encode(response))

    async def _describe(self, timeout_ms: int) -> words.Quorum:
        asked = words.encode(words.DescribeQuorum())
        while True:
            leader = self._driver.leader
            if leader == self._driver.node:
                return _describe(self._driver.state, self._now_ms())
            if leader is not None:
                try:
                    payload = await self._links.call(
                        leader, asked, min(timeout_ms, CALL_MS_MAX), kind=words.DESCRIBE_QUORUM
                    )
                    response = words.decode_response(payload)
                    if isinstance(response, words.Quorum):
                        return response
                except (CallError, msgspec.MsgspecError):
                    pass
            await asyncio.sleep(RETRY_SECONDS)

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    # What must be so before a change

    def _check_votes(self, image: Image, node: BrokerId, folder: bytes | None) -> None:
        voters = self._driver.state.membership.voters
        broker = image.broker(node)
        folders = broker.log_dirs if broker is not None else ()
        if node not in voters or (folder is not None and folder not in folders):
            known = f", in directory {folders[0].hex()}" if node in voters and folders else ""
            raise KafkaError(
                ErrorCode.VOTER_NOT_FOUND,
                f"node {node} with this directory is not one of the voters: they are "
                f"{', '.join(map(str, voters))}{known}",
            )
        if voters == (node,):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"node {node} is the only voter: add another one first"
            )

    async def _why_others_cannot(self, node: BrokerId, timeout_ms: int) -> str:
        """Return why the voters without this one cannot decide anything; nothing if they can."""
        quorum = await self._describe(timeout_ms)
        election_ms = self._driver.state.settings.election_timeout_ms
        others = [each for each in quorum.members if each.is_voter and each.node != node]
        silent = [each for each in others if not 0 <= each.silent_ms < election_ms]
        if len(others) - len(silent) > len(others) // 2:
            return ""
        names = ", ".join(str(each.node) for each in silent)
        return f"without node {node} a majority of the voters must respond, but node {names} do not"

    async def _why_not_yet(self, node: BrokerId, folder: bytes, timeout_ms: int) -> str:
        """Return why a node cannot vote yet; nothing if it can. KafkaError if it never will."""
        image = await self._read()
        state = self._driver.state
        if node in (*state.membership.voters, *image.state.metadata_group.members):
            raise KafkaError(ErrorCode.DUPLICATE_VOTER, f"node {node} is a voter already")
        row, broker = image.node(node), image.broker(node)
        if row is None or broker is None:
            return f"node {node} has not joined the cluster: start it with headrace.seeds"
        if folder not in broker.log_dirs:
            return f"node {node} has not joined with this directory, but with " + ", ".join(
                each.hex() for each in broker.log_dirs
            )
        if row.state not in (NodeState.LEARNER, NodeState.ACTIVE):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"node {node} is {row.state.name}: it is to leave"
            )
        if broker.is_fenced:
            return f"node {node} is fenced: it is not heard from"
        quorum = await self._describe(timeout_ms)
        lag_max = state.settings.promotion_lag_entries_max
        for member in quorum.members:
            if member.node == node and member.match_index:
                lag = quorum.commit - member.match_index
                return "" if lag <= lag_max else f"node {node} lags behind by {lag} entries"
        return f"node {node} has not got anything of the metadata log yet"

    # Waiting

    async def _read(self) -> Image:
        """Return the image with all that was committed before."""
        while True:
            try:
                return await self._quorum.read()
            except (NotLeader, ReadDropped):
                await asyncio.sleep(RETRY_SECONDS)

    async def _wait_members(self, is_so: Callable[[Membership], bool]) -> None:
        """Return when the members are so, and that is committed."""
        driver = self._driver
        while True:
            if is_so(driver.state.membership):
                await driver.wait_applied(driver.state.log.membership_index)
                if is_so(driver.state.membership):
                    return
            await driver.wait_leadership()


def _describe(state: State, now_ms: int) -> words.Quorum:
    """Return what a leader knows of its members."""
    members = []
    for node in state.membership.members:
        match_index, silent_ms, behind_ms = state.log.last_index, 0, 0
        progress = state.progress.get(node)
        if progress is not None:
            match_index = progress.match_index
            silent_ms = (
                max(now_ms - progress.contact_ms, 0) if progress.has_answered else UNKNOWN_MS
            )
            behind_ms = UNKNOWN_MS
            if progress.caught_up_ms is not None:
                behind_ms = max(now_ms - progress.caught_up_ms, 0)
        is_voter = node in state.membership.voters
        members.append(words.QuorumMember(node, is_voter, match_index, silent_ms, behind_ms))
    return words.Quorum(state.node, state.term, state.log.commit, tuple(members))


def _check_may_go(image: Image, node: BrokerId) -> None:
    broker = image.broker(node)
    if broker is None and image.node(node) is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {node} is not registered")
    if broker is not None and not broker.is_fenced:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {node} is up: stop it first")
    if replicas := image.replica_count(node):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"broker {node} keeps {replicas} replicas: move them away first",
        )


async def _within(timeout_ms: int, work: Awaitable[T], problem: str | Callable[[], str]) -> T:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await work
    except TimeoutError:
        why = problem if isinstance(problem, str) else problem()
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"not done within {timeout_ms} ms: {why}"
        ) from None
