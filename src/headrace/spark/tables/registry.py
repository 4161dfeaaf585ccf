"""Where definitions are: a compacted topic of the cluster that the topic is in.

So `run` finds a table by its name wherever it is started, on a laptop as in a cluster, with nothing
but the bootstrap address. A definition is a record, its key the table's name; dropping a table
writes a tombstone.
"""

import logging
from typing import Final

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.fetched import ConsumedRecord
from headrace.client.producer import Producer
from headrace.client.topics import NewTopic, TopicPartition, create_topics
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.spark.tables.definition import Definition, suggest
from headrace.spark.topic_tail import TopicTail

LOG = logging.getLogger("headrace.spark.tables")

TOPIC: Final = "__headrace_tables"
CONFIGS: Final = {"cleanup.policy": "compact"}


class UnknownTable(HeadraceError):
    """No table has that name."""


class DefinitionChanged(HeadraceError):
    """The table is defined otherwise than when its definition was read."""


class UnreadableDefinition(HeadraceError):
    """A record of the topic that this version cannot read."""


async def read_all(cluster: Cluster) -> dict[str, Definition]:
    """Return every table of a cluster whose definition can be read."""
    found = {}
    for name, value in (await _stored(cluster)).items():
        try:
            found[name] = _decoded(name, value)
        except UnreadableDefinition as error:
            LOG.warning("%s", error)
    return found


async def find(cluster: Cluster, name: str) -> Definition | None:
    """Return the definition of a table; UnreadableDefinition if there is one that cannot be."""
    value = (await _stored(cluster)).get(name)
    return None if value is None else _decoded(name, value)


async def read_one(cluster: Cluster, name: str) -> Definition:
    """Return the definition of a table; UnknownTable with a suggestion."""
    stored = await _stored(cluster)
    if name in stored:
        return _decoded(name, stored[name])
    there = f"there are {', '.join(sorted(stored))}" if stored else "there is none yet"
    raise UnknownTable(
        f"no table {name!r}{suggest(name, sorted(stored))} ({there}; `headrace table create` makes "
        "one)"
    )


async def _stored(cluster: Cluster) -> dict[str, bytes]:
    """Return the definitions by the names of tables, as they are stored."""
    stored: dict[str, bytes] = {}

    def take(record: ConsumedRecord) -> None:
        name = (record.key or b"").decode(errors="backslashreplace")
        if record.value is None:
            stored.pop(name, None)
        else:
            stored[name] = record.value

    try:
        await TopicTail(cluster, TopicPartition(TOPIC, 0), take, stored.clear).read()
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    return stored


def _decoded(name: str, value: bytes) -> Definition:
    try:
        return msgspec.json.decode(value, type=Definition)
    except msgspec.DecodeError as error:
        raise UnreadableDefinition(
            f"the definition of table {name!r} in topic {TOPIC!r} cannot be read ({error}): it was "
            "written by another version; `headrace table drop` removes it"
        ) from None


async def write(cluster: Cluster, name: str, definition: Definition | None) -> None:
    """Store a definition, or remove it; durable on return."""
    await _find_topic(cluster)
    value = None if definition is None else msgspec.json.encode(definition)
    async with Producer(cluster) as producer:
        await (await producer.send(TOPIC, value, name.encode(), 0))


async def _find_topic(cluster: Cluster) -> None:
    try:
        await cluster.topic(TOPIC)
        return
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    outcome = (
        await create_topics(cluster, [NewTopic(TOPIC, 1, configs=CONFIGS)], validate_only=False)
    )[TOPIC]
    cluster.forget(TOPIC)
    if isinstance(outcome, KafkaError) and outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS:
        raise KafkaError(
            outcome.code,
            f"{outcome.message}. Tables are defined in topic {TOPIC!r}: let it be created, or "
            "create it with one partition and cleanup.policy=compact",
        )
    await cluster.topic(TOPIC, may_create=True)
