"""How a table is: what it has, how far it is, who writes it, what threatens it."""

import msgspec

from headrace.spark.blocking import cluster_of
from headrace.spark.lookup import ends, find_topics
from headrace.spark.offsets import EARLIEST, LATEST
from headrace.spark.read_options import ReadOptions
from headrace.spark.tables.administration import Where, find_table, read_options_of, store_options
from headrace.spark.tables.alarms import alarms_of, next_offset
from headrace.spark.tables.column_types import type_text
from headrace.spark.tables.commits import Head
from headrace.spark.tables.definition import Definition
from headrace.spark.tables.planning import Gap, check_topic, plan_batch
from headrace.spark.tables.table_store import open_table
from headrace.spark.tables.topic_view import TopicView
from headrace.spark.tables.writer_lease import WriterLease, is_over
from headrace.spark.tier.stores import BlockingStore
from headrace.surroundings import clocks


class PartitionState(msgspec.Struct, frozen=True):
    """How far a table is in a partition."""

    partition: int
    log_start: int
    log_end: int
    table: int | None
    """The next offset; None if the partition was not begun."""
    lag: int


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """One table."""

    name: str
    topic: str
    to: str
    mode: str
    location: str
    rows: int
    files: int
    bytes: int
    dead_letters: int
    writer: str
    partitions: list[PartitionState]
    columns: dict[str, str]
    alarms: list[str]


def state_of(bootstrap: Where, name: str) -> TableState:
    """Return the state of a table."""
    definition = find_table(bootstrap, name)
    options = read_options_of(bootstrap, definition.topic)
    stored = store_options(definition)
    rows = open_table(definition, definition.name, stored)
    letters = open_table(definition, definition.dead_letters, stored)
    store = BlockingStore(definition.location, stored)
    try:
        head = rows.head()
        files = rows.files()
        letters_head = letters.head()
        dead = sum(each.rows for each in letters.files())
        claim = WriterLease(store, name).latest()
        now_ms = clocks().time_ns() // 1_000_000
        writer = "" if claim is None or is_over(claim, now_ms - claim.renewed_ms) else str(claim)
        blocking = cluster_of(options.connecting)
        found = blocking.run(find_topics(blocking.cluster, options.subscription))
        cluster, partitions = blocking.cluster, found.partitions
        earliest = blocking.run(ends(cluster, partitions, EARLIEST, options))
        latest = blocking.run(ends(cluster, partitions, LATEST, options))
        return TableState(
            name=name,
            topic=definition.topic,
            to=definition.to,
            mode=definition.mode,
            location=definition.location,
            rows=sum(each.rows for each in files),
            files=len(files),
            bytes=sum(each.size_bytes for each in files),
            dead_letters=dead,
            writer=writer,
            partitions=[
                PartitionState(
                    each.partition,
                    earliest[each],
                    latest[each],
                    head.offsets.get(each.partition),
                    max(0, latest[each] - next_offset(definition, head, each, earliest)),
                )
                for each in partitions
            ],
            columns={each.name: type_text(each.type) for each in rows.schema()},
            alarms=_losses(definition, options, head, letters_head)
            or alarms_of(definition, options, head),
        )
    finally:
        store.close()
        rows.close()
        letters.close()


def _losses(definition: Definition, options: ReadOptions, head: Head, letters: Head) -> list[str]:
    """Return what the next run would be refused for."""
    topic = TopicView(definition, options)
    try:
        state = topic.state()
        check_topic(definition, state, head)
        for each in (head, letters):
            topic.check_cuts(each)
        plan_batch(definition, state, head, letters, records_max=1)
    except Gap as error:
        return [str(error)]
    return []
