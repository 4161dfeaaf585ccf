"""Queries that are stopped before one of their tasks is done.

Spark tells the driver's side of a sink neither which query it is nor which run, only the number of
the batch and what tasks said, which may be nothing. So a writer has a label, which is the same in
every process of the driver: made of the options, which name the checkpoint or the query, and of
the folder that Spark gives the driver alone. Tasks write it into their claim.
"""

import asyncio
import os
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import msgspec

from headrace.client.errors import raise_for
from headrace.spark.sink.decisions import Stop, Writer
from headrace.spark.sink.driver import driver_folder
from headrace.spark.sink.journal_partition import (
    PARTITIONS,
    STREAMS_FROM,
    JournalPartition,
    JournalPartitions,
)
from headrace.spark.sink.protocol import Sink

STOPS_KEPT_MS: Final = 60 * 60 * 1000
"""Tasks that Spark forgot may still ask whether their query was stopped."""
_LABEL_LENGTH: Final = 32
_TELLING: Final = frozenset({"checkpointlocation", "queryname"})
"""No two queries that run in a driver have the same of these."""


def writer_of(given: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> Writer:
    """Return the identity of the writer being created, in a process of the driver."""
    made_ns = time.monotonic_ns()
    folder = driver_folder(environment)
    options = sorted((name.lower(), str(value)) for name, value in given.items())
    if folder is None or not any(name in _TELLING and value for name, value in options):
        return Writer("", made_ns)
    named = sha256(msgspec.json.encode([str(folder), options]))
    return Writer(named.hexdigest()[:_LABEL_LENGTH], made_ns)


class ClusterStops:
    """Stops, in the topic of the journals."""

    def __init__(self, partitions: JournalPartitions) -> None:
        self._partitions = partitions

    async def stop(self, writer: Writer) -> None:
        """Write into every journal that writers of the query made before this one are over."""
        streams = [self._partitions.at(index) for index in range(STREAMS_FROM, PARTITIONS)]
        await asyncio.gather(*(_stop(partition, writer) for partition in streams))

    async def sinks_of(self, label: str) -> list[Sink]:
        """Return the sinks that a writer with this label holds the claim of."""
        found = []
        for index in range(STREAMS_FROM, PARTITIONS):
            partition = self._partitions.at(index)
            await partition.read()
            for name, entry in partition.entries.items():
                claim = entry.history.claim
                if claim is not None and claim.writer == label:
                    found.append(Sink(name, claim.run))
        return found


async def _stop(partition: JournalPartition, writer: Writer) -> None:
    """Write a stop, and drop those that are old."""
    code = await partition.append(writer.label, Stop(writer.made_ns))
    raise_for(code, None, f"the stop of a query in {partition}")
    await partition.read()
    oldest_ms = time.time_ns() // 1_000_000 - STOPS_KEPT_MS
    old = [label for label, stop in partition.stops.items() if stop.written_ms < oldest_ms]
    await partition.erase_stops(old)
