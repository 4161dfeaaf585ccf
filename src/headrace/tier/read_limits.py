"""What reading from the tier may use of the machine and of the store."""

from typing import Final

from msgspec import Struct

from headrace.config import INFLATED_BATCH_MAX_BYTES

MIB: Final = 1024 * 1024


class ReadLimits(Struct, frozen=True, kw_only=True):
    """The settings of a RemoteReader, by what they limit."""

    chunk_bytes: int = 4 * MIB
    """How much is fetched from the store at a time (headrace.tier.chunk.bytes)."""
    chunk_cache_bytes: int = 256 * MIB
    """How much memory keeps what was fetched (headrace.tier.chunk.cache.bytes)."""
    read_ahead_bytes_max: int = 64 * MIB
    """How far ahead of a sequential reader is read (headrace.tier.read.ahead.max.bytes)."""
    fill_bytes_max: int = 256 * MIB
    """How many bytes may be on their way from the store (headrace.tier.fill.budget.bytes)."""
    fills_max: int = 10
    """How many requests for data run at a time (remote.log.reader.threads)."""
    pending_max: int = 100
    """How many more reads may wait (remote.log.reader.max.pending.tasks)."""
    fill_timeout_ms: int = 180_000
    """After how long a fill is given up, whatever its store promised."""
    index_cache_bytes: int = 1024 * MIB
    """How much of the disk keeps indexes (remote.log.index.file.cache.total.size.bytes)."""
    index_ttl_ms: int = 15 * 60 * 1000
    """After how long without a read an index is dropped; -1 for never."""
    bytes_per_second: int = 2**63 - 1
    """How fast data is fetched (remote.log.manager.fetch.max.bytes.per.second)."""
    quota_windows: int = 11
    """Over how many windows the rate is measured (...fetch.quota.window.num)."""
    quota_window_ms: int = 1000
    """How long such a window is (...fetch.quota.window.size.seconds)."""
    inflated_bytes_max: int = INFLATED_BATCH_MAX_BYTES.default
    """How large a batch may become that is inflated to find a time in it."""
