"""The journal and the transactions of a sink, on this process's connections to the cluster."""

from weakref import WeakKeyDictionary

import msgspec

from headrace.spark.blocking import BlockingCluster, cluster_of
from headrace.spark.sink.coordination import Coordination
from headrace.spark.sink.journal import ClusterJournal
from headrace.spark.sink.journal_partition import (
    JournalPartition,
    JournalPartitions,
    partition_of,
)
from headrace.spark.sink.protocol import Journal, Sink
from headrace.spark.sink.write_options import WriteOptions


class Ports(msgspec.Struct, frozen=True):
    """What the steps of a sink are taken through."""

    blocking: BlockingCluster
    partition: JournalPartition
    journal: Journal
    transactions: Coordination


def open_ports(options: WriteOptions, sink: Sink) -> Ports:
    """Return this process's way to a sink's journal and transactions."""
    blocking, partitions = open_journals(options)
    partition = partitions.at(partition_of(sink.name))
    journal = ClusterJournal(blocking.cluster, partition, sink.name)
    coordination = Coordination(blocking.cluster, options.transaction_timeout_ms)
    return Ports(blocking, partition, journal, coordination)


def open_journals(options: WriteOptions) -> tuple[BlockingCluster, JournalPartitions]:
    """Return this process's way to the journals of all sinks of a cluster."""
    blocking = cluster_of(options.connecting)
    partitions = _PARTITIONS.get(blocking)
    if partitions is None:
        partitions = _PARTITIONS[blocking] = JournalPartitions(blocking.cluster)
    return blocking, partitions


_PARTITIONS: WeakKeyDictionary[BlockingCluster, JournalPartitions] = WeakKeyDictionary()
"""What this process has read of the journals, by cluster."""
