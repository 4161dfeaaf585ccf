"""The journal of one sink in a cluster.

Records are plain, not transactional: one record is atomic. Their producer id is that of the sink's
own transactional id, because the coordinator gives it a larger epoch each time, and the partition
then refuses smaller ones. (After 32,767 claims the id changes and the fence of the previous one
no longer applies; then only what is read counts.)
"""

import contextlib
from typing import Final

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.errors import raise_for
from headrace.errors import ErrorCode
from headrace.spark.sink.coordination import Coordination
from headrace.spark.sink.decisions import Claim, Decision, Fenced, History, Writer, claim_of
from headrace.spark.sink.journal_partition import JournalPartition
from headrace.spark.sink.protocol import ID_PREFIX

_INIT_TIMEOUT_MS: Final = 1
"""No transaction is begun under the journal's id; the request wants a number."""
_OUTDATED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})


class ClusterJournal:
    """The journal of the sink with this name."""

    def __init__(self, cluster: Cluster, partition: JournalPartition, name: str) -> None:
        self._cluster = cluster
        self._partition = partition
        self._name = name

    async def read(self) -> History:
        """Return everything that was written before the call; the caller may change it."""
        await self._partition.read()
        entry = self._partition.entries.get(self._name)
        return History() if entry is None else msgspec.structs.replace(entry.history)

    async def claim(self, run: str, writer: str = "", over: str = "") -> History:
        """Write a claim, unless a newer one comes in between; return everything up to it.

        With `over`, only if that run, or none, holds the sink.
        """
        transactional_id = f"{ID_PREFIX}-{self._name}"
        producer = await Coordination(self._cluster, _INIT_TIMEOUT_MS).begin(transactional_id)
        history = await self.read()
        if over and history.claim is not None and history.claim.run != over:
            return history
        with contextlib.suppress(Fenced):  # somebody claimed meanwhile: whoever asked looks again
            await self.append(claim_of(history, run, *producer, writer))
        return await self.read()

    async def append(self, record: Claim | Decision) -> None:
        """Write a record; Fenced if a newer claim than its token's is there."""
        code = await self._partition.append(self._name, record)
        if code in _OUTDATED:
            raise Fenced(
                f"another run of {self._name} writes now; is the query running twice on one "
                "checkpoint?"
            )
        if code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            raise_for(code, None, f"the journal of {self._name} in {self._partition}")

    def is_stopped(self, writer: Writer) -> bool:
        """Return whether the driver has written down that a writer is over, as far as was read."""
        stop = self._partition.stops.get(writer.label)
        return stop is not None and writer.made_ns <= stop.made_ns
