"""A node's side of its session with the controller: it says that it is alive, and that it stops."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from headrace.cluster import words
from headrace.cluster.transport.calls import CallError
from headrace.cluster.transport.links import Links
from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.loop.tasks import Tasks
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import Broker
from headrace.raft.errors import RaftStopped

FENCED_SECONDS: Final = 0.05
"""How often a fenced node asks to be unfenced."""
STOP_FAILURES_MAX: Final = 20
"""How many heartbeats in a row of a node that stops may fail before it stops without leave.

A second if nobody leads: that is as long as it takes to elect another leader.
"""

logger = logging.getLogger(__name__)


class Presence:
    """The heartbeats of a registered node."""

    def __init__(
        self,
        quorum: MetadataQuorum,
        links: Links,
        incarnation_id: bytes,
        *,
        interval_ms: int,
        on_superseded: Callable[[str], None],
        hear_own: Callable[[BrokerId, words.Heartbeat], words.Response] | None = None,
    ) -> None:
        """Call `on_superseded` once if this life of the node is not the registered one any more.

        `hear_own` is the node's own controller, which is told if it is the one and the node stops.
        """
        self._quorum = quorum
        self._driver = quorum.driver
        self._links = links
        self._incarnation_id = incarnation_id
        self._interval_ms = interval_ms
        self._on_superseded = on_superseded
        self._hear_own = hear_own
        self._tasks = Tasks()
        self._wake = asyncio.Event()
        self._is_started = False
        self._is_stopping = False
        self.failed = 0
        """Heartbeats that no controller answered."""

    def start(self) -> None:
        """Begin; this life of the node is in its image."""
        self._is_started = True
        self._driver.on_leadership.append(self._wake.set)
        self._tasks.start(self._run())

    def close(self) -> None:
        if self._wake.set in self._driver.on_leadership:
            self._driver.on_leadership.remove(self._wake.set)
        self._tasks.cancel()

    def note_image(self) -> None:
        """Look at the node's own registration, which may be another one now."""
        if not self._is_started:
            return
        broker = self._broker()
        if broker is None and self._is_stopping:
            return  # it was decommissioned, and is removed as soon as it has taken leave
        if broker is None:
            self.close()
            self._on_superseded(
                f"node {self._driver.node} was removed from the cluster: to let it join again, "
                "start it with an empty data folder"
            )
            return
        if broker.incarnation_id == self._incarnation_id:
            return
        self.close()
        self._on_superseded(
            f"node {broker.broker_id} was started a second time, from a copy of this data folder: "
            "the newer process is the node now"
        )

    async def wait_unfenced(self) -> None:
        """Return when the image of this node has it unfenced."""
        while (broker := self._broker()) is None or broker.is_fenced:
            await self._driver.wait_applied(self._driver.applied_index + 1)

    async def stop(self, timeout_seconds: float) -> bool:
        """Tell the controller that this node is stopping; return whether it may stop.

        The node is heard from until nothing is led by it any more, and then may stop. It stops
        without leave if there is nobody to tell: no leader, or one that does not answer.
        """
        self._tasks.cancel()
        self._is_stopping = True
        left = STOP_FAILURES_MAX
        try:
            async with asyncio.timeout(timeout_seconds):
                while (broker := self._broker()) is not None and not broker.is_fenced:
                    response = await self._beat(broker)
                    if isinstance(response, words.Heard) and response.may_stop:
                        break
                    # A leader that is not the controller yet answers too.
                    left = STOP_FAILURES_MAX if response is not None else left - 1
                    if not left:
                        return False
                    await asyncio.sleep(FENCED_SECONDS)
        except (TimeoutError, RaftStopped):
            return False
        return True

    async def _run(self) -> None:
        while self._driver.failure is None:
            self._wake.clear()
            broker = self._broker()
            if broker is not None:
                await self._beat(broker)
            is_fenced = broker is None or broker.is_fenced
            seconds = FENCED_SECONDS if is_fenced else self._interval_ms / 1000
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _beat(self, broker: Broker) -> words.Response | None:
        """Send one heartbeat; None if it was not answered, or this node is the controller."""
        leader = self._driver.leader
        heartbeat = words.Heartbeat(
            broker.broker_epoch, self._driver.applied_index, is_stopping=self._is_stopping
        )
        if leader == self._driver.node and self._is_stopping and self._hear_own is not None:
            return self._hear_own(broker.broker_id, heartbeat)
        if leader is None or leader == self._driver.node:
            return None
        try:
            payload = await self._links.call(
                leader, words.encode(heartbeat), self._interval_ms, kind=words.HEARTBEAT
            )
            response = words.decode_response(payload)
        except (CallError, msgspec.MsgspecError) as error:
            self.failed += 1
            logger.debug("a heartbeat was not answered: %s", error)
            return None
        if isinstance(response, words.Failed) and response.code == ErrorCode.STALE_BROKER_EPOCH:
            logger.warning("the controller does not take a heartbeat: %s", response.message)
        return response

    def _broker(self) -> Broker | None:
        return self._quorum.image.broker(self._driver.node)
