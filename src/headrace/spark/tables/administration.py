"""Creating, opening and dropping tables: the definition, the table, and its dead letters."""

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from headrace.client.cluster import Cluster
from headrace.client.offsets import list_offsets
from headrace.client.outcomes import values_of
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.ids import topic_id_text
from headrace.remote.layout import OWN_PREFIX
from headrace.remote.store_options import StoreOptions, parse_store_url
from headrace.spark.blocking import BlockingCluster, cluster_of
from headrace.spark.offsets import LATEST
from headrace.spark.options import Connecting
from headrace.spark.read_options import ReadOptions, stream_options
from headrace.spark.tables import registry
from headrace.spark.tables.admission import check_columns, refusal
from headrace.spark.tables.claims import held
from headrace.spark.tables.column_types import grow
from headrace.spark.tables.commits import unfinished
from headrace.spark.tables.decoding import first_columns
from headrace.spark.tables.definition import (
    LETTERS,
    METADATA,
    NAMESPACE,
    Definition,
    InvalidTable,
    Start,
    check,
    remember_schema,
    suggest,
)
from headrace.spark.tables.partitioning import check_partitions
from headrace.spark.tables.rules import RULES_MAX, check_column, parse_rule
from headrace.spark.tables.table_store import TableExists, open_table
from headrace.spark.tables.writer_lease import Role, claim_prefix
from headrace.spark.tier.stores import BlockingStore
from headrace.surroundings import new_uuid

Where: TypeAlias = str | Connecting
"""A cluster: its address, or also how it is reached."""

MARKER: Final = f"{OWN_PREFIX}tables/location.json"
"""Tells a location of tables from a folder with something else."""

_NO_TEXT: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")

ALTERABLE: Final = (
    "rules",
    "on_violation",
    "fails_on_bad_record",
    "evolves",
    "schema_text",
    "message",
    "has_registry_header",
    "file_bytes",
    "batch_records",
)
"""What may change while a table has rows."""


class Unfinished(HeadraceError):
    """A batch is half committed, and has to be finished first."""


class ForeignLocation(HeadraceError):
    """A location with files that are not ours."""


def create_table(
    bootstrap: Where,
    name: str,
    *,
    topic: str,
    location: str,
    start_offsets: Mapping[int, int] | None = None,
    start_time_ms: int | None = None,
    **more: Any,
) -> Definition:
    """Create a table for a topic; nothing is read yet. `more` are fields of `Definition`."""
    unknown = sorted(set(more).difference(Definition.__struct_fields__))
    if unknown:
        known = list(Definition.__struct_fields__)
        raise InvalidTable(f"a table has no option {unknown[0]!r}{suggest(unknown[0], known)}")
    definition = check(
        _converted(
            {
                "name": name,
                "id": str(new_uuid()),
                "topic": topic,
                "location": _url(location),
                **more,
            }
        )
    )
    columns = first_columns(definition)
    schema = pa.schema([*METADATA, *columns])
    check_partitions(definition, schema)
    if reason := check_columns(definition, schema):
        raise InvalidTable(reason)
    _check_rules(definition, schema)
    options = store_options(definition)
    blocking = cluster_of(connecting_of(bootstrap))
    definition = blocking.run(
        _ask(blocking.cluster, definition, start_offsets or {}, start_time_ms)
    )
    store = BlockingStore(definition.location, options)
    try:
        store.run(_claim_location(store, definition.location))
    finally:
        store.close()
    with held(definition, options, Role.WRITER):
        _create(blocking, definition, schema)
    return definition


def _create(blocking: BlockingCluster, definition: Definition, schema: pa.Schema) -> None:
    """Define a table and make it. Whatever dies in between leaves a definition, to be dropped."""
    cluster, name, options = blocking.cluster, definition.name, store_options(definition)
    _check_unknown(definition, blocking.run(registry.find(cluster, name)))
    blocking.run(registry.write(cluster, name, definition))
    made: list[str] = []
    try:
        for each, columns in ((name, schema), (definition.dead_letters, LETTERS)):
            table = open_table(definition, each, options)
            try:
                table.create(columns)
            finally:
                table.close()
            made.append(each)
    except HeadraceError:
        _remove(definition, made, purges=True)
        blocking.run(registry.write(cluster, name, None))
        raise


def _check_unknown(definition: Definition, known: Definition | None) -> None:
    if known is not None:
        raise TableExists(
            f"table {known.name!r} exists, for topic {known.topic!r} in {known.location}: "
            "`headrace table drop` removes it"
        )


def find_table(bootstrap: Where, name: str) -> Definition:
    """Return the definition of a table; UnknownTable with a suggestion."""
    blocking = cluster_of(connecting_of(bootstrap))
    return blocking.run(registry.read_one(blocking.cluster, name))


def list_tables(bootstrap: Where) -> list[Definition]:
    """Return all tables of a cluster, by name."""
    blocking = cluster_of(connecting_of(bootstrap))
    found = blocking.run(registry.read_all(blocking.cluster))
    return [found[name] for name in sorted(found)]


def alter_table(bootstrap: Where, name: str, **changes: Any) -> Definition:
    """Change how records are decoded and judged from now on; what is written stays."""
    blocking = cluster_of(connecting_of(bootstrap))
    definition = blocking.run(registry.read_one(blocking.cluster, name))
    frozen = sorted(set(changes).difference(ALTERABLE))
    if frozen:
        raise InvalidTable(
            f"{frozen[0]!r} of a table cannot be changed; {', '.join(ALTERABLE)} can"
        )
    options = store_options(definition)
    with held(definition, options, Role.WRITER), held(definition, options, Role.JOB):
        return _alter(blocking, name, changes)


def _alter(blocking: BlockingCluster, name: str, changes: dict[str, Any]) -> Definition:
    """Alter a table that nobody writes. What was begun by the old rules has to be finished first:

    its dead letters are committed, and by other rules its rows would be others.
    """
    old = blocking.run(registry.read_one(blocking.cluster, name))
    if job := unfinished_job(old):
        raise Unfinished(
            f"table {name!r} cannot be altered now: the dead letters of a batch are committed and "
            f"its rows are not. `headrace table {job}` finishes it by the rules that it was begun "
            "with"
        )
    definition = check(_converted({**msgspec.structs.asdict(old), **changes}))
    if (definition.rules, definition.on_violation) != (old.rules, old.on_violation):
        definition = msgspec.structs.replace(definition, has_changed_rules=True)
    definition = remember_schema(definition, old)
    columns = first_columns(definition)
    _check_rules(definition, pa.schema([*METADATA, *columns]))
    if "schema_text" in changes:
        table = open_table(definition, name, store_options(definition))
        try:
            table.head()
            known = table.schema()
            if reason := refusal(definition, known, columns):
                raise InvalidTable(f"--schema: {reason}")
            grown = grow(known, columns)
            if not grown.equals(known):
                table.evolve(grown)
        finally:
            table.close()
    blocking.run(registry.write(blocking.cluster, name, definition))
    return definition


def unfinished_job(definition: Definition) -> str:
    """Return what finishes a batch that is half committed; empty if none is."""
    heads = []
    for each in (definition.name, definition.dead_letters):
        table = open_table(definition, each, store_options(definition))
        try:
            heads.append(table.head())
        finally:
            table.close()
    head, letters = heads
    if unfinished(head, letters):
        return f"run {definition.name} --once"
    if any(begin < head.begins.get(each, begin) for each, begin in letters.begins.items()):
        return f"backfill {definition.name}"
    return ""


def drop_table(bootstrap: Where, name: str, *, purges: bool) -> Definition | None:
    """Remove a table's definition and its catalog entries; with `purges` also its files.

    None if the definition could not be read, and is all that was removed.

    HeldByAnother while it is written, replayed, backfilled or compacted; none of these begins
    before the definition is gone. The claims stay, released: a process that was paused all along
    finds them when it comes back, and stops.
    """
    blocking = cluster_of(connecting_of(bootstrap))
    try:
        definition = blocking.run(registry.read_one(blocking.cluster, name))
    except registry.UnreadableDefinition:
        blocking.run(registry.write(blocking.cluster, name, None))
        return None
    with ExitStack() as claims:
        for role in Role:
            claims.enter_context(held(definition, store_options(definition), role))
        if blocking.run(registry.read_one(blocking.cluster, name)).id != definition.id:
            raise registry.DefinitionChanged(
                f"table {name!r} was dropped and created again just now; nothing was removed"
            )
        _remove(definition, [definition.name, definition.dead_letters], purges=purges)
        _forget(definition)
        blocking.run(registry.write(blocking.cluster, name, None))
    return definition


def _forget(definition: Definition) -> None:
    """Remove what is kept beside a table's files, but for its claims."""
    claims = tuple(claim_prefix(definition.name, role) for role in Role)
    store = BlockingStore(definition.location, store_options(definition))
    try:
        for each in (definition.name, definition.dead_letters):
            store.run(_delete(store, f"{OWN_PREFIX}tables/{each}/", but=claims))
    finally:
        store.close()


def _remove(definition: Definition, names: list[str], *, purges: bool) -> None:
    """Remove tables from their catalog, and with `purges` their files."""
    options = store_options(definition)
    store = BlockingStore(definition.location, options)
    try:
        for each in names:
            table = open_table(definition, each, options)
            try:
                table.drop()
            finally:
                table.close()
            if purges:
                store.run(_delete(store, f"{NAMESPACE}/{each}/"))
    finally:
        store.close()


async def _delete(store: BlockingStore, prefix: str, but: tuple[str, ...] = ()) -> None:
    """Delete what begins with a prefix and with none of others."""
    keys: list[str] = []
    async for page in store.store.list_objects(prefix):
        keys += [each.key for each in page if not each.key.startswith(but)]
    await store.store.delete(keys)


def connecting_of(bootstrap: Where) -> Connecting:
    """Return how a cluster is reached."""
    return read_options_of(bootstrap, "any").connecting


def read_options_of(bootstrap: Where, topic: str) -> ReadOptions:
    """Return how a topic is read."""
    if isinstance(bootstrap, Connecting):
        options = read_options_of(bootstrap.bootstrap, topic)
        return msgspec.structs.replace(options, connecting=bootstrap)
    return stream_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})


def store_options(definition: Definition) -> StoreOptions:
    """Return how a location is reached; credentials come from the environment."""
    return StoreOptions(
        endpoint=definition.store_endpoint or None,
        region=definition.store_region or None,
        allow_http=definition.store_allow_http,
    )


def _converted(fields: dict[str, Any]) -> Definition:
    try:
        return msgspec.convert(
            {
                each: list(value) if isinstance(value, tuple) else value
                for each, value in fields.items()
            },
            Definition,
        )
    except msgspec.ValidationError as error:
        raise InvalidTable(f"a table cannot be defined so: {error}") from None


def _url(location: str) -> str:
    """Return the URL of a location that means the same place to every library."""
    if not location.strip():
        raise InvalidTable("the location is empty: a folder, or a URL such as s3://bucket/prefix")
    if _NO_TEXT.search(location):
        # Readers of URLs leave some of these out, and then have another place.
        raise InvalidTable(f"--location {location!r}: a name with control characters, or not UTF-8")
    is_url = "://" in location
    text = parse_store_url(location).text if is_url else _folder(location)
    if found := sorted(set(text).intersection("%?#\\")):
        raise InvalidTable(
            f"--location {location}: a name with {found[0]!r} means another place in a URL, and "
            "tables name their files by URLs; choose one without"
        )
    return text if is_url else f"file://{text}"


def _folder(location: str) -> str:
    try:
        return str(Path(location).expanduser().resolve())
    except (RuntimeError, ValueError) as error:  # a home that nobody has
        raise InvalidTable(f"--location {location}: {error}") from None


def _check_rules(definition: Definition, schema: pa.Schema) -> None:
    if len(definition.rules) > RULES_MAX:
        raise InvalidTable(f"at most {RULES_MAX} rules")
    for text in definition.rules:
        rule = parse_rule(text)
        if rule.column in schema.names:
            check_column(rule, schema.field(rule.column).type)


async def _ask(
    cluster: Cluster, definition: Definition, given: Mapping[int, int], time_ms: int | None
) -> Definition:
    """Check the topic and the name; fix where the table begins."""
    _check_unknown(definition, await registry.find(cluster, definition.name))
    cluster.forget(definition.topic)  # it may have been created again since it was looked up
    try:
        topic = await cluster.topic(definition.topic)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        names = [each.name for each in await cluster.list_topics() if not each.is_internal]
        raise KafkaError(
            error.code, f"there is no topic {definition.topic!r}{suggest(definition.topic, names)}"
        ) from None
    partitions = [TopicPartition(definition.topic, each.index) for each in topic.partitions]
    foreign = sorted(set(given).difference(each.partition for each in partitions))
    if foreign:
        raise InvalidTable(f"topic {definition.topic!r} has no partition {foreign[0]}")
    starts = {str(each): offset for each, offset in given.items()}
    if time_ms is not None:
        found = values_of(await list_offsets(cluster, dict.fromkeys(partitions, time_ms)))
        late = [each for each, place in found.items() if place.offset < 0]
        latest = values_of(await list_offsets(cluster, dict.fromkeys(late, LATEST)))
        for each in partitions:
            starts[str(each.partition)] = (latest[each] if each in late else found[each]).offset
    elif definition.start is Start.LATEST:
        latest = values_of(await list_offsets(cluster, dict.fromkeys(partitions, LATEST)))
        starts = {str(each.partition): place.offset for each, place in latest.items()} | starts
    return msgspec.structs.replace(
        definition,
        start_offsets=starts,
        topic_id=topic_id_text(topic.topic_id) if any(topic.topic_id) else "",
        partition_count=len(partitions),
    )


async def _claim_location(store: BlockingStore, location: str) -> None:
    """Refuse a location with files of others."""
    async for page in store.store.list_objects(OWN_PREFIX + "tables/"):
        if any(each.key == MARKER for each in page):
            return
    async for page in store.store.list_objects(""):
        if page:
            raise ForeignLocation(
                f"{location} is not empty ({page[0].key} is there), and no table of headrace is in "
                "it: choose an empty folder or prefix, or remove what is there"
            )
    data = msgspec.json.encode({"made_by": "headrace table create", "version": 1})
    await store.store.create(MARKER, data)
