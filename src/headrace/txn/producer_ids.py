"""Producer ids: unique in the cluster, from blocks that the metadata log allocates.

A block belongs to this node once its allocation is applied; the rest of it is lost at a stop, which
costs nothing. The next block is allocated before the last one runs out, so that callers rarely
wait.
"""

import asyncio
import logging
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import ProducerId
from headrace.metadata.entries import SurrogateAlloc
from headrace.metadata.events import SurrogatesAllocated
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.surrogates import PRODUCER_ID_BLOCK_SIZE, producer_ids
from headrace.raft.errors import DiskFull

FETCH_AHEAD_IDS: Final = PRODUCER_ID_BLOCK_SIZE // 10
"""How many ids are left when the next block is requested."""
ALLOCATION_ATTEMPTS_MAX: Final = 100
"""How often another node may be faster before the caller must retry."""

logger = logging.getLogger(__name__)


class ProducerIds:
    """Hands out producer ids, each once in the life of the cluster."""

    def __init__(self, quorum: MetadataQuorum) -> None:
        self._quorum = quorum
        self._ids = range(0)
        self._following = range(0)
        """The block that comes after, if it was fetched already."""
        self._allocating: asyncio.Task[None] | None = None

    async def next(self) -> ProducerId:
        """Return an id that was never used.

        Raise COORDINATOR_LOAD_IN_PROGRESS, on which clients retry, if the metadata log cannot
        allocate a block now.
        """
        while not self._ids:
            if self._following:
                self._ids, self._following = self._following, range(0)
            else:
                await self._wait_for_block()
        producer_id = ProducerId(self._ids[0])
        self._ids = self._ids[1:]
        if len(self._ids) < FETCH_AHEAD_IDS and not self._following:
            self._start_allocating()
        return producer_id

    async def _wait_for_block(self) -> None:
        """Wait for the allocation in progress, or start one."""
        try:
            # A caller that is cancelled does not take the block away from the others.
            await asyncio.shield(self._start_allocating())
        except KafkaError as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"the metadata log gives no block of producer ids now, try again: {error.message}",
            ) from error

    def _start_allocating(self) -> "asyncio.Task[None]":
        if self._allocating is None:
            self._allocating = asyncio.get_running_loop().create_task(self._allocate())
            self._allocating.add_done_callback(self._on_allocated)
        return self._allocating

    def _on_allocated(self, done: "asyncio.Task[None]") -> None:
        self._allocating = None
        error = None if done.cancelled() else done.exception()
        if error is not None and not isinstance(error, DiskFull):  # in the log, once
            logger.warning("no block of producer ids was allocated: %s", error)

    async def _allocate(self) -> None:
        """Get the following block."""
        for _ in range(ALLOCATION_ATTEMPTS_MAX):
            wanted = self._quorum.image.state.surrogate_hwm + 1
            outcome = await self._quorum.propose_for_outcome(SurrogateAlloc(wanted))
            for event in outcome.events:
                if isinstance(event, SurrogatesAllocated):
                    self._following = producer_ids(event)
                    return
        raise KafkaError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"other nodes were faster {ALLOCATION_ATTEMPTS_MAX} times",
        )
