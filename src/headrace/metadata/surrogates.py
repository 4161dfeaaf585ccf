"""Blocks of producer ids: the surrogates of seed 004.

The log has one counter, of blocks. The proposer of a higher one owns, once it is applied, the
blocks from the former counter on: its own entry's `SurrogatesAllocated` says which.
"""

from typing import Final

from headrace.errors import ErrorCode
from headrace.ids import ProducerId
from headrace.metadata.entries import SurrogateAlloc
from headrace.metadata.errors import refuse
from headrace.metadata.events import Event, SurrogatesAllocated
from headrace.metadata.image import Image

PRODUCER_ID_BLOCK_SIZE: Final = 1000
"""As many as Kafka hands out at once."""


def allocate(image: Image, entry: SurrogateAlloc) -> list[Event]:
    """Move the high-water mark up; refused if another was faster."""
    hwm = image.state.surrogate_hwm
    if entry.hwm <= hwm:
        raise refuse(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{hwm} blocks of producer ids are taken, {entry.hwm} is no more: retry",
        )
    image.state.surrogate_hwm = entry.hwm
    return [SurrogatesAllocated(hwm, entry.hwm - 1)]


def producer_ids(event: SurrogatesAllocated) -> range:
    """Return the producer ids of the allocated blocks."""
    first = ProducerId(event.first_block * PRODUCER_ID_BLOCK_SIZE)
    return range(first, (event.last_block + 1) * PRODUCER_ID_BLOCK_SIZE)
