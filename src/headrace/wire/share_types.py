"""Numbers of the share group protocol (KIP-932) that clients and brokers share."""

from enum import IntEnum


class AcquireMode(IntEnum):
    """How exactly a fetch keeps to its number of records (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """Whole batches of the log, which may be more records than asked for. The fastest mode."""
    RECORD_LIMIT = 1
    """No more records are acquired than asked for."""
