"""The lease of a command that moves partitions, held while it works.

async with hold_placement(calls, addresses, takes_over=True) as hold:
    ...
    if hold.lost:           # another plan takes over
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from headrace.cli.node_calls import NodeCalls
from headrace.cli.streams import tell
from headrace.client.errors import NotReachable
from headrace.cluster import operator_words as words
from headrace.errors import ErrorCode, KafkaError

TAKE_OVER_SECONDS_MAX: Final = 60.0
RETRY_SECONDS: Final = 0.5


class Hold:
    """A lease, until it is released or lost."""

    def __init__(self) -> None:
        self.version = 0
        self.lease_ms = 0
        self.lost = ""
        """Why it is not held any more, empty while it is."""

    def is_held(self) -> bool:
        return not self.lost


@asynccontextmanager
async def hold_placement(
    calls: NodeCalls, addresses: Sequence[str], *, takes_over: bool = False
) -> AsyncIterator[Hold]:
    """Hold the lease; KafkaError if another plan has it, and is not to be taken over from."""
    hold = Hold()
    await _begin(calls, addresses, hold, takes_over=takes_over)
    renewing = asyncio.ensure_future(_renew(calls, addresses, hold))
    try:
        yield hold
    finally:
        renewing.cancel()
        with contextlib.suppress(NotReachable, KafkaError):  # it ends by itself
            await calls.ask_any(addresses, words.ReleasePlacement(hold.version))


async def _begin(
    calls: NodeCalls, addresses: Sequence[str], hold: Hold, *, takes_over: bool
) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + TAKE_OVER_SECONDS_MAX
    told = ""
    while True:
        try:
            await _hold(calls, addresses, hold, takes_over=takes_over)
        except KafkaError as error:
            is_busy = error.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
            if not is_busy or not takes_over or loop.time() > deadline:
                raise
            if not told:
                told = error.message
                tell(f"waiting: {told}")
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return


async def _renew(calls: NodeCalls, addresses: Sequence[str], hold: Hold) -> None:
    while True:
        await asyncio.sleep(hold.lease_ms / 3000)
        try:
            await _hold(calls, addresses, hold)
        except NotReachable:
            continue
        except KafkaError as error:
            if error.code is ErrorCode.REASSIGNMENT_IN_PROGRESS:
                hold.lost = error.message
                return


async def _hold(
    calls: NodeCalls, addresses: Sequence[str], hold: Hold, *, takes_over: bool = False
) -> None:
    response = await calls.ask_any(addresses, words.HoldPlacement(hold.version, takes_over))
    if isinstance(response, words.Held):
        hold.version, hold.lease_ms = response.version, response.lease_ms
