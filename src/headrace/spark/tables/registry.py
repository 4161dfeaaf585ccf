"""Where definitions are: a compacted topic of the cluster that the topic is in.

So `run` finds a table by its name wherever it is started, on a laptop as in a cluster, with nothing
but the bootstrap address. A definition is a record, its key the table's name; dropping a table
writes a tombstone.
"""

from typing import Final

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.fetched import ConsumedRecord
from headrace.client.producer import Producer
from headrace.client.topics import NewTopic, TopicPartition, create_topics
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.spark.tables.definition import Definition, suggest
from headrace.spark.topic_tail import TopicTail

TOPIC: Final = "__headrace_tables"
CONFIGS: Final = {"cleanup.policy": "compact"}


class UnknownTable(HeadraceError):
    """No table has that name."""


class DefinitionChanged(HeadraceError):
    """The table is defined otherwise than when its definition was read."""


class UnreadableDefinition(HeadraceError):
    """A record of the topic that this version cannot read."""


async def read_all(cluster: Cluster) -> dict[str, Definition]:
    """Return every table of a cluster."""
    stored: dict[str, bytes] = {}

    def take(record: ConsumedRecord) -> None:
        name = (record.key or b"").decode()
        if record.value is None:
            stored.pop(name, None)
        else:
            stored[name] = record.value

    try:
        await TopicTail(cluster, TopicPartition(TOPIC, 0), take, stored.clear).read()
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    found = {}
    for name, value in stored.items():
        try:
            found[name] = msgspec.json.decode(value, type=Definition)
        except msgspec.DecodeError as error:
            raise UnreadableDefinition(
                f"the definition of table {name!r} in topic {TOPIC!r} cannot be read ({error}): it "
                "was written by another version; `headrace table drop` removes it"
            ) from None
    return found


async def read_one(cluster: Cluster, name: str) -> Definition:
    """Return the definition of a table; UnknownTable with a suggestion."""
    known = await read_all(cluster)
    if name in known:
        return known[name]
    there = f"there are {', '.join(sorted(known))}" if known else "there is none yet"
    raise UnknownTable(
        f"no table {name!r}{suggest(name, sorted(known))} ({there}; `headrace table create` makes "
        "one)"
    )


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
