"""Cleanup after batch writes: finish those whose driver died, and drop their journals later.

A streaming query finishes its own batch when it restarts. A batch write is never repeated by
itself, so the next one on the cluster, from any driver, finishes it.
"""

import time
from typing import Final

from headrace.spark.sink.journal_partition import BATCH_WRITE_PREFIX, JournalPartition
from headrace.spark.sink.protocol import LostRows, Sink, Transactions, commit_all, lost_rows

FINISHED_AFTER_MS: Final = 60_000
"""A driver that has not ended its transactions so long after its decision is taken for dead; if it
is not, ending them twice does no harm."""
KEPT_MS: Final = 6 * 60 * 60 * 1000
"""Abandoned tasks may still read the journal of their write, and drivers reuse names: twice as long
as they do (see `pool`)."""


async def tidy(partition: JournalPartition, transactions: Transactions) -> list[LostRows]:
    """End what other batch writes decided and did not end, and drop the journals of old ones.

    Return what the cluster had aborted before it could be ended: these writes are half there.
    """
    now_ms = time.time_ns() // 1_000_000
    dropped: list[str] = []
    lost: list[LostRows] = []
    for name, entry in list(partition.entries.items()):
        age_ms = now_ms - entry.written_ms
        if not name.startswith(BATCH_WRITE_PREFIX) or age_ms < FINISHED_AFTER_MS:
            continue
        if (decision := entry.history.unended) is not None:
            sink = Sink(name, decision.run)
            lost += lost_rows(sink, decision, await commit_all(transactions, sink, decision))
            dropped.append(name)
        elif age_ms >= KEPT_MS:
            dropped.append(name)
    await partition.erase(dropped)
    return lost
