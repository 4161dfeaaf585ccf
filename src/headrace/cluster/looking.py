"""A node that knows no leader looks for other nodes, and hears whether they still know it."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from headrace.cluster import words
from headrace.cluster.address_book import AddressBook
from headrace.cluster.joining import CannotJoin, ask_for_peers
from headrace.cluster.transport.links import Links
from headrace.cluster.transport.refusals import Reason, Refused
from headrace.ids import BrokerId
from headrace.loop.tasks import Tasks
from headrace.metadata.quorum import MetadataQuorum
from headrace.raft.errors import NotLeader, RaftError, ReadDropped

LOOK_SECONDS: Final = 1.0
"""How often a node without a leader looks for other nodes at the addresses that it knows."""
DENIALS_MIN: Final = 2
"""How often a controller must deny that it knows this node: the first may be one that has been
replaced and does not know it yet."""
EXPLAIN_SECONDS: Final = 10
"""How often a node says why it waits for a leader."""

logger = logging.getLogger(__name__)


class Looking:
    """The search for a leader."""

    def __init__(
        self,
        quorum: MetadataQuorum,
        links: Links,
        addresses: AddressBook,
        *,
        seeds: Iterable[str],
        own_address: str,
        learn: Callable[[BrokerId, str], None],
    ) -> None:
        """`learn` takes the address at which a node was found."""
        self._quorum = quorum
        self._links = links
        self._addresses = addresses
        self._seeds = frozenset(seeds)
        self._own_address = own_address
        self._learn = learn
        self._denials = 0
        """How often a controller has said that it does not know this node."""
        self._is_taken = False
        """Whether it knows another one with this id."""
        self._tasks = Tasks()

    async def wait_for_leader(self) -> None:
        """Return when this node has all that was committed before the call.

        CannotJoin if it was removed from its cluster.
        """
        driver = self._quorum.driver
        if driver.state.membership.is_sole_voter(driver.node):
            await self._quorum.read()
            return
        helpers = [self._tasks.start(self._ask_often()), self._tasks.start(self._explain())]
        try:
            while True:
                try:
                    if driver.leader is None:
                        await self._wait_for_news()
                    await self._quorum.read()
                    return
                except (NotLeader, ReadDropped):
                    await asyncio.sleep(0.01)
        finally:
            for helper in helpers:
                helper.cancel()

    def watch(self, on_removed: Callable[[str], None]) -> None:
        """Look for other nodes whenever there is no leader: one may know that this is removed."""
        self._tasks.start(self._watch(on_removed))

    def close(self) -> None:
        self._tasks.cancel()

    async def stop(self) -> None:
        """Return when nobody looks any more."""
        await self._tasks.stop()

    async def _watch(self, on_removed: Callable[[str], None]) -> None:
        driver = self._quorum.driver
        while driver.failure is None and self._denials < DENIALS_MIN:
            try:
                if driver.leader is not None:
                    self._denials = 0
                    await driver.wait_leadership()
                    continue
                async with asyncio.timeout(LOOK_SECONDS):
                    await driver.wait_leadership()
            except RaftError:
                return
            except TimeoutError:
                await self._ask()
        if driver.failure is None:
            on_removed(self._removed_text())

    async def _wait_for_news(self) -> None:
        """Return after a while, or when there is a leader; CannotJoin if it is not this node's."""
        if self._denials >= DENIALS_MIN:
            raise CannotJoin(self._removed_text())
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._quorum.driver.wait_leadership()
        except TimeoutError:
            pass

    async def _ask_often(self) -> None:
        while True:
            await self._ask()
            await asyncio.sleep(LOOK_SECONDS)

    async def _ask(self) -> None:
        """Announce this node at every known address, and learn which nodes are there."""
        known = {self._addresses.text(node) for node in self._addresses.nodes}
        wanted = sorted({*known, *self._seeds} - {"", self._own_address})
        await ask_for_peers(
            self._links, wanted, self._own_address, self._on_answer, self._on_refused
        )

    def _on_answer(self, node: BrokerId, address: str, response: words.Response) -> None:
        if isinstance(response, words.Member) and response.is_stranger:
            self._denials += 1
        self._learn(node, address)

    def _on_refused(self, refused: Refused) -> None:
        if refused.is_proven and refused.reason is Reason.TAKEN_NODE_ID:
            self._denials += 1
            self._is_taken = True

    async def _explain(self) -> None:
        """Log from time to time why there is no leader."""
        while True:
            await asyncio.sleep(EXPLAIN_SECONDS)
            logger.warning("waiting for a leader: %s", " ".join(self._quorum.explain()))

    def _removed_text(self) -> str:
        node = self._quorum.driver.node
        if self._is_taken:
            return (
                f"node {node} was removed from the cluster, and a node with another data folder "
                "has its id now: to let this one join again, start it with an empty data folder "
                "and another node.id"
            )
        return (
            f"node {node} was removed from the cluster: to let it join again, "
            "start it with an empty data folder"
        )
