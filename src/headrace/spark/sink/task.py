"""What a task of a write does, from its first Arrow batch to an open transaction."""

import contextlib
from collections.abc import Iterator
from itertools import chain
from random import Random

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.spark.sink.batching import Batching
from headrace.spark.sink.columns import by_partition, by_topic
from headrace.spark.sink.decisions import Slot
from headrace.spark.sink.ports import Ports
from headrace.spark.sink.protocol import Place, open_place
from headrace.spark.sink.sending import Sending
from headrace.spark.sink.write_options import WriteOptions


def write_rows(
    ports: Ports,
    options: WriteOptions,
    place: Place,
    rows: Iterator[pa.RecordBatch],
) -> tuple[Slot | None, int]:
    """Write rows into a transaction that stays open; give its slot and the number of records.

    No slot if nothing was written: there were no rows, or the batch was decided before. A task
    without rows, as there are many after a shuffle, asks nothing of the cluster.
    """
    first = next((some for some in rows if some.num_rows), None)
    if first is None:
        return None, 0
    run = ports.blocking.run
    slot = run(open_place(ports.journal, ports.transactions, place))
    if slot is None:
        return None, 0
    transactional_id = place.transactional_id
    sending = Sending(ports.blocking.cluster, transactional_id, slot, options)
    batching = Batching(slot, options.batch_bytes, options.compression, options.compression_level)
    try:
        _write(ports, options, chain([first], rows), batching, sending)
    except BaseException:
        run(sending.stop())
        with contextlib.suppress(HeadraceError):  # what went wrong first is what counts
            producer = slot.producer_id, slot.producer_epoch
            run(ports.transactions.abort(transactional_id, *producer))
        raise
    return slot, batching.record_count


def _write(
    ports: Ports,
    options: WriteOptions,
    rows: Iterator[pa.RecordBatch],
    batching: Batching,
    sending: Sending,
) -> None:
    run, cluster = ports.blocking.run, ports.blocking.cluster
    # Rows without a key go to one partition for the length of an Arrow batch.
    turn = Random().randrange(2**31)
    for arrow in rows:
        if not arrow.num_rows:
            continue
        for topic, part in by_topic(arrow, options.topic):
            known = cluster.view.topics.get(topic)
            if known is None:
                known = run(cluster.topic(topic, may_create=True))
            count = len(known.partitions)
            turn += 1
            placed = by_partition(
                part, topic, count, keyless=turn % count, has_headers=options.has_headers
            )
            for closed in batching.add(topic, placed):
                sending.add(*closed)
                run(sending.pump())
    for closed in batching.close():
        sending.add(*closed)
    run(sending.flush())
