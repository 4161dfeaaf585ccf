"""How a node's process takes memory from the system and gives it back."""

import ctypes
import gc
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
LARGEST_KEPT_BYTES: Final = 32 * 1024 * 1024
"""The largest block that is taken from the heap (the most that glibc allows)."""
_THRESHOLDS: Final = 700, 10, 5
"""Collections of the youngest objects that lead to one of older ones, and of all: a few
ten thousand objects apart."""
_OLDEST_GENERATION: Final = 2
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
    """Have the collector look at every object once, so that no collection takes long.

    Left alone, it goes through everything that the node knows again and again, and each time the
    loop stands still: 0.2 s with a million objects. What has survived a full collection is taken
    out of its sight. It is freed as before when nothing refers to it; only cycles would stay, and
    what lives that long here is made of trees.
    """
    gc.set_threshold(*_THRESHOLDS)
    gc.callbacks.append(_on_collection)
    gc.collect()


def _on_collection(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] == _OLDEST_GENERATION:
        gc.freeze()
