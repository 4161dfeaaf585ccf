"""How a node's process takes memory from the system and gives it back."""

import ctypes
import gc
from contextlib import suppress
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
LARGEST_KEPT_BYTES: Final = 32 * 1024 * 1024
"""The largest block that is taken from the heap (the most that glibc allows)."""
KEPT_FREE_BYTES: Final = 128 * 1024 * 1024


def keep_large_blocks() -> None:
    """Let the allocator use the memory of one large answer for the next.

    Left alone, glibc maps every block above 128 KB anew and the kernel fills it with zeros page by
    page: half of the CPU that a consumer costs. Elsewhere than on glibc nothing happens.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_FREE_BYTES)


def settle_collector() -> None:
    """Take what is there now out of the collector's sight: it stays as long as the node does."""
    gc.collect()
    gc.freeze()
