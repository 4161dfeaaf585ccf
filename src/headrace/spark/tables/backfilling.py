"""Older records into a table, below where it began, while a writer appends above.

A table covers an interval of each partition, from `begins` to `offsets`. A backfill extends it
downwards, batch by batch from the top, so that there is never a hole in it. It needs no claim of
the writer's, which moves only the upper end, while a backfill moves only the lower one; each commit
is on the head that it has read. Of jobs there is one: another one's dead letters would be others.
"""

from collections.abc import Mapping

import msgspec

from headrace.client.offsets import list_offsets
from headrace.client.outcomes import values_of
from headrace.client.topics import TopicPartition
from headrace.spark.blocking import cluster_of
from headrace.spark.planning import Range, split
from headrace.spark.tables.administration import Where, find_table, read_options_of, store_options
from headrace.spark.tables.claims import HeldClaim, held
from headrace.spark.tables.commits import (
    BEGINS,
    COMMIT_ATTEMPTS_MAX,
    CommitConflict,
    Head,
    OutcomeUnknown,
    kept_properties,
    offsets_text,
)
from headrace.spark.tables.committing import pause
from headrace.spark.tables.definition import Definition, InvalidTable, Mode
from headrace.spark.tables.engine import Engine
from headrace.spark.tables.opened import OpenTable
from headrace.spark.tables.planning import TASK_RECORDS_MIN, Gap, TopicState, check_topic
from headrace.spark.tables.table_store import CatalogFailed, Change, TableStore
from headrace.spark.tables.writer_lease import Role


class Backfilled(msgspec.Struct, kw_only=True):
    """What a backfill did."""

    records: int = 0
    rows: int = 0
    dead_letters: int = 0
    begins: dict[int, int] = {}


def backfill_table(
    bootstrap: Where,
    name: str,
    engine: Engine,
    *,
    start_offsets: Mapping[int, int] | None = None,
    start_time_ms: int | None = None,
) -> Backfilled:
    """Write the records between an earlier start and the table's beginning.

    Without a start that is everything that the topic has, which for a tiered topic includes the
    tier.
    """
    definition = find_table(bootstrap, name)
    if definition.mode is Mode.UPSERT:
        raise InvalidTable(
            f"table {name!r} is upserted: older records would replace newer rows. Create it again "
            "with --from earliest"
        )
    with held(definition, store_options(definition), Role.JOB) as claim:
        table = _open(bootstrap, name, engine)
        try:
            return _backfill(table, engine, claim, start_offsets or {}, start_time_ms)
        finally:
            table.close()


def _open(bootstrap: Where, name: str, engine: Engine) -> OpenTable:
    definition = find_table(bootstrap, name)  # it may have been altered before the claim
    options = read_options_of(bootstrap, definition.topic)
    return OpenTable(definition, options, store_options(definition), engine)


def _backfill(
    table: OpenTable,
    engine: Engine,
    claim: HeldClaim,
    start_offsets: Mapping[int, int],
    start_time_ms: int | None,
) -> Backfilled:
    done = Backfilled()
    head, state = table.rows.head(), table.topic.state()
    check_topic(table.definition, state, head)
    table.topic.check_cuts(head)
    table.letters.head()
    wanted = dict(state.earliest)
    if start_time_ms is not None:
        wanted |= _offsets_at(table, table.definition, state, start_time_ms)
    _check(table.definition, state, start_offsets)
    wanted |= start_offsets
    while _step(table, engine, wanted, done, claim):
        pass
    return done


def plan_down(
    begins: Mapping[int, int],
    wanted: Mapping[int, int],
    letters: Mapping[int, int],
    records_max: int,
) -> dict[int, int]:
    """Return where the next batch begins in each partition that is not there yet. Pure.

    If the dead letters of a batch are committed and its rows are not, it is that batch again.
    """
    pending = {each: at for each, at in letters.items() if at < begins.get(each, at)}
    if pending:
        return pending
    left = {each: at - wanted[each] for each, at in begins.items() if wanted.get(each, at) < at}
    if not left:
        return {}
    share = max(1, records_max // len(left))
    return {each: begins[each] - min(size, share) for each, size in left.items()}


def _step(
    table: OpenTable,
    engine: Engine,
    wanted: Mapping[int, int],
    done: Backfilled,
    claim: HeldClaim,
) -> bool:
    definition = table.definition
    head, letters = table.rows.head(), table.letters.head()
    if not head.begins:
        raise InvalidTable(
            f"table {definition.name!r} has not begun: `headrace table run {definition.name}` "
            "first, or create it with an earlier --from"
        )
    starts = plan_down(head.begins, wanted, letters.begins, definition.batch_records)
    done.begins = dict(head.begins)
    if not starts:
        return False
    ranges = [
        Range(definition.topic, each, start, head.begins[each], table.topic.topic_id)
        for each, start in starts.items()
    ]
    size = sum(each.size for each in ranges)
    parts = split(ranges, min(engine.parallelism, size // TASK_RECORDS_MIN) or None, None)
    written, _ = table.write_ranges(parts)
    claim.check(asks=True)
    files = [file for each in written for file in each.letters]
    if files:
        _commit(table.letters, Change(added=files), starts, head, definition.id, is_letters=True)
    rows = Change(added=[file for each in written for file in each.files])
    if not _commit(table.rows, rows, starts, head, definition.id, is_letters=False):
        return True
    done.records += size
    done.rows += sum(each.rows for each in written)
    done.dead_letters += sum(each.bad for each in written)
    return True


def _commit(
    store: TableStore,
    change: Change,
    starts: Mapping[int, int],
    planned: Head,
    query: str,
    *,
    is_letters: bool,
) -> bool:
    """Commit a batch once; return whether it is in the table, else it is planned again."""
    problem: Exception | None = None
    for attempt in range(COMMIT_ATTEMPTS_MAX):
        head = store.head()
        if all(head.begins.get(each, start + 1) <= start for each, start in starts.items()):
            return True  # an earlier attempt got through
        if not is_letters and any(head.begins[each] != planned.begins[each] for each in starts):
            return False  # another backfill
        properties = kept_properties(head, query)
        properties[BEGINS] = offsets_text({**head.begins, **starts})
        try:
            store.commit(head, msgspec.structs.replace(change, properties=properties))
            return True
        except (CommitConflict, OutcomeUnknown) as error:
            problem = error
        pause(attempt)
    raise CatalogFailed(f"a batch of the backfill could not be committed: {problem}; run it again")


def _check(definition: Definition, state: TopicState, given: Mapping[int, int]) -> None:
    for each, offset in given.items():
        if each not in state.earliest:
            raise InvalidTable(f"topic {definition.topic!r} has no partition {each}")
        if offset < state.earliest[each]:
            raise Gap(
                f"{definition.topic}-{each}: {offset} is gone, it begins at {state.earliest[each]}"
            )


def _offsets_at(
    table: OpenTable, definition: Definition, state: TopicState, time_ms: int
) -> dict[int, int]:
    blocking = cluster_of(table.job().connecting)
    partitions = [TopicPartition(definition.topic, each) for each in state.earliest]
    found = values_of(
        blocking.run(list_offsets(blocking.cluster, dict.fromkeys(partitions, time_ms)))
    )
    return {
        each.partition: state.latest[each.partition] if place.offset < 0 else place.offset
        for each, place in found.items()
    }
