"""Tuning of a node's memory allocation and garbage collection."""

import ctypes
import gc
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
LARGEST_KEPT_BYTES: Final = 32 * 1024 * 1024
"""The largest block that comes from the heap (the most that glibc allows)."""
_THRESHOLDS: Final = 700, 10, 5
"""Collections of the youngest objects that lead to one of older ones, and of all: a few
ten thousand objects apart."""
_OLDEST_GENERATION: Final = 2
KEPT_FREE_BYTES: Final = 128 * 1024 * 1024


def keep_large_blocks() -> None:
    """Make the allocator reuse the memory of one large response for the next.

    By default, glibc maps every block above 128 KB anew and the kernel zeroes it page by page: half
    of the CPU that a consumer costs. Without glibc this does nothing.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_FREE_BYTES)


def settle_collector() -> None:
    """Make the collector visit every object once, so that no collection takes long.

    By default, it traverses the node's whole state again and again, and each time the loop stalls:
    0.2 s with a million objects. Objects that survive a full collection are frozen. They are still
    freed when nothing refers to them; only cycles would stay, and long-lived objects here are
    trees.
    """
    gc.set_threshold(*_THRESHOLDS)
    gc.callbacks.append(_on_collection)
    gc.collect()


def _on_collection(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] == _OLDEST_GENERATION:
        gc.freeze()
