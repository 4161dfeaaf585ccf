"""Heartbeats: the shell around `member`, on connections that nothing else waits on."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.coordinators import CoordinatorType, find_coordinator
from headrace.client.errors import ClientError, NotReachable
from headrace.client.goodbyes import say_goodbye
from headrace.client.retrying import pause_ms
from headrace.client.share.member import JOINING_EPOCH, Member, Next
from headrace.errors import HeadraceError
from headrace.surroundings import new_random
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

_LOGGER = logging.getLogger(__name__)
_IDLE_BEATS_MAX: Final = 16


class Membership:
    """Keeps a member in its group until `leave`."""

    def __init__(
        self,
        cluster: Cluster,
        member: Member,
        *,
        on_assignment: Callable[[], None],
        on_failure: Callable[[HeadraceError], None],
    ) -> None:
        """`on_failure` is called with the error that ends the membership, at most once."""
        self.member = member
        self._cluster = cluster
        self._on_assignment = on_assignment
        self._on_failure = on_failure
        self._random = new_random()
        self._coordinator_id: int | None = None
        self._former_id: int | None = None
        """The coordinator that was found last: if it fails, it is not asked for the next."""
        self._failures = 0
        self._idle_beats = 0
        self._is_due = asyncio.Event()
        self._may_be_in = False
        """Whether the coordinator may take us for a member, so that leaving says something."""
        self._task: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Join the group and start heartbeats; raise HeadraceError if that is refused.

        Waits for a coordinator that is not available yet, up to the API timeout.
        """
        timeout_ms = self._cluster.settings.api_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                pause = await self._beat()
                while self.member.epoch == JOINING_EPOCH:
                    await asyncio.sleep(pause)
                    pause = await self._beat()
        except TimeoutError:
            raise NotReachable(
                f"no coordinator took us into group {self.member.group_id!r} within {timeout_ms} ms"
            ) from None
        self._task = asyncio.create_task(self._run(pause))

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to other topics; the next heartbeat is sent at once."""
        self.member.subscribe(topics)
        self._is_due.set()

    async def leave(self) -> None:
        """Stop, and leave the group if its coordinator can be reached.

        This is worth a moment even in a hurry: the partitions of a member that disappears without
        leaving stay unread until its session times out.
        """
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if not self._may_be_in:
            return
        self._may_be_in = False

        async def say() -> int:
            connection = await self._cluster.connection(await self._find())
            answer = await connection.request(self.member.leaving(), ShareGroupHeartbeatResponse)
            return answer.error_code

        await say_goodbye(say, self._look_again, self._cluster.settings)

    async def _run(self, pause: float) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._is_due.wait()
            self._is_due.clear()
            try:
                pause = await self._beat()
            except HeadraceError as error:
                self._on_failure(error)
                return

    async def _beat(self) -> float:
        """Send one heartbeat; give the seconds until the next."""
        member = self.member
        body = member.heartbeat()
        before = member.assignment
        try:
            connection = await self._cluster.connection(await self._find())
            might_be_in, self._may_be_in = self._may_be_in, True
            answer = await connection.request(body, ShareGroupHeartbeatResponse)
        except NotReachable as error:
            _LOGGER.debug("no heartbeat of group %r: %s", member.group_id, error)
            member.miss()
            return await self._look_elsewhere()
        try:
            following = member.take(body, answer)
        finally:
            self._may_be_in = might_be_in or member.epoch != JOINING_EPOCH
        if member.assignment != before:
            self._on_assignment()
        if following is Next.AFTER_FINDING:
            return await self._look_elsewhere()
        if following is Next.AFTER_PAUSE:
            return self._pause()
        self._failures = 0
        return self._interval() if following is Next.AFTER_INTERVAL else 0

    async def _find(self) -> int:
        """Return the coordinator: the one that is known, or the one that there is now."""
        if self._coordinator_id is None:
            self._coordinator_id = self._former_id = await find_coordinator(
                self._cluster,
                CoordinatorType.GROUP,
                self.member.group_id,
                former=self._former_id,
            )
        return self._coordinator_id

    def _interval(self) -> float:
        """Return the pause after a successful heartbeat, in seconds.

        A coordinator assigns a moment after the join, and reports it in its next response. A
        member without partitions asks sooner, with a growing pause: so a new member is not idle
        for a whole interval.
        """
        wanted = self.member.interval_ms / 1000
        if self.member.assignment:
            self._idle_beats = 0
            return wanted
        sooner = self._cluster.settings.retry_backoff_ms / 1000 * 2.0**self._idle_beats
        self._idle_beats = min(self._idle_beats + 1, _IDLE_BEATS_MAX)
        return min(wanted, sooner)

    def _look_again(self) -> None:
        self._coordinator_id = None

    async def _look_elsewhere(self) -> float:
        self._look_again()
        self._cluster.doubt()
        with suppress(ClientError):
            await self._cluster.refresh()
        return self._pause()

    def _pause(self) -> float:
        self._failures += 1
        return pause_ms(self._failures - 1, self._cluster.settings, self._random) / 1000
