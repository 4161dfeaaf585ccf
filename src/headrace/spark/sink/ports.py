"""The journal and the transactions of a sink, on this process's connections to the cluster."""

from weakref import WeakKeyDictionary

import msgspec

from headrace.spark.blocking import BlockingCluster, cluster_of
from headrace.spark.sink.coordination import Coordination
from headrace.spark.sink.journal import ClusterJournal
from headrace.spark.sink.journal_partition import JournalPartition, partition_of
from headrace.spark.sink.protocol import Journal, Sink
from headrace.spark.sink.write_options import WriteOptions


class Ports(msgspec.Struct, frozen=True):
    """What the steps of a sink are taken through."""

    blocking: BlockingCluster
    partition: JournalPartition
    journal: Journal
    transactions: Coordination


def open_ports(options: WriteOptions, sink: Sink) -> Ports:
    """Give this process's way to a sink's journal and transactions."""
    blocking = cluster_of(options.connecting)
    cluster = blocking.cluster
    index = partition_of(sink.name)
    read = _PARTITIONS.setdefault(blocking, {})
    partition = read.get(index)
    if partition is None:
        partition = read[index] = JournalPartition(cluster, index)
    journal = ClusterJournal(cluster, partition, sink.name)
    coordination = Coordination(cluster, options.transaction_timeout_ms)
    return Ports(blocking, partition, journal, coordination)


_PARTITIONS: WeakKeyDictionary[BlockingCluster, dict[int, JournalPartition]] = WeakKeyDictionary()
"""What this process has read of the journals, by cluster and partition."""
