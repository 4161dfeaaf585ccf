"""Restoring the metadata of a backup into a cluster that has no topics.

Topics come back with their ids, partitions and configs, on the nodes that there are; so do configs
of the cluster, of groups and of subscriptions, quotas and ACLs. A restore that was interrupted is
run again: what is there already, by its id, is left as it is.
"""

import asyncio
from collections.abc import Collection, Iterator
from typing import Final

from msgspec import Struct

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, TopicId, TopicName, parse_topic_id
from headrace.metadata.backup import Backup, TopicBackup
from headrace.metadata.ddl import AddAcls, CreateTopic, Ddl, SetConfigs, SetQuota
from headrace.metadata.image import Image
from headrace.metadata.state import ResourceType
from headrace.server.broker import Broker
from headrace.server.proposals import propose_each
from headrace.topics.assignment import Placement
from headrace.topics.configs import checked_configs
from headrace.topics.creation import candidates, with_roles
from headrace.topics.validation import INTERNAL_TOPICS, check_name

TIMEOUT_MS: Final = 240_000
"""How long a restore may take before it is to be run again."""
PLANNED_AT_ONCE: Final = 20
PROPOSED_AT_ONCE: Final = 200
ACLS_AT_ONCE: Final = 200
"""How many ACLs an entry has: an entry is limited, and applied in one turn of the loop."""
THROTTLES: Final = frozenset(
    {
        "follower.replication.throttled.rate",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.rate",
        "leader.replication.throttled.replicas",
    }
)
"""Configs of moves in progress, of which a restored cluster has none."""
TIER_TOPIC: Final = "__remote_log_metadata"


class Restored(Struct, frozen=True):
    """What a restore did, or would do."""

    topics: int
    partitions: int
    configs: int
    """How many resources besides topics have configs again."""
    quotas: int
    acls: int
    notes: tuple[str, ...]
    """What is different now, or was not restored."""


async def restore_backup(
    broker: Broker, backup: Backup, *, is_dry_run: bool, without_configs: Collection[str]
) -> Restored:
    """Restore a backup; raise KafkaError, before any change, if the cluster cannot take it."""
    image = broker.image
    _require_empty(image, backup)
    notes: list[str] = []
    changes: list[Ddl]
    created: list[Ddl] = []
    count = 0
    for number, topic in enumerate(_missing(image, backup, notes)):
        created.append(_create(broker, topic, without_configs, notes))
        count += len(topic.replicas)
        if number % PLANNED_AT_ONCE == 0:
            await asyncio.sleep(0)
    configs = _configs(image, backup, notes)
    quotas = [
        SetQuota(tuple(row.entity), name, value)
        for row in backup.quotas
        for name, value in row.limits.items()
    ]
    _note_left(image, backup, notes)
    _note_kept(image, backup, notes)
    if not is_dry_run:
        # Rights first: a topic must not be there without them, however the restore ends.
        for first in range(0, len(backup.acls), ACLS_AT_ONCE):
            acls = backup.acls[first : first + ACLS_AT_ONCE]
            await _propose(broker, [AddAcls(tuple(acls))])
        changes = [*quotas, *configs, *created]
        for first in range(0, len(changes), PROPOSED_AT_ONCE):
            await _propose(broker, changes[first : first + PROPOSED_AT_ONCE])
    return Restored(len(created), count, len(configs), len(quotas), len(backup.acls), tuple(notes))


async def _propose(broker: Broker, changes: list[Ddl]) -> None:
    for error in await propose_each(broker, changes, TIMEOUT_MS, None):
        if error is not None:
            raise KafkaError(error.code, f"{error.message}; run the restore again")


def _require_empty(image: Image, backup: Backup) -> None:
    ours = {topic.name: parse_topic_id(topic.id) for topic in backup.topics}
    for topic in image.topics():
        if not _is_skipped(topic.name) and ours.get(topic.name) != topic.topic_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the cluster is not empty: it has topic {topic.name}, which is not the backup's; "
                "restore into a new cluster",
            )


def _is_skipped(name: str) -> bool:
    """Return whether a topic is the cluster's own, created when it is needed."""
    return name in INTERNAL_TOPICS or name == TIER_TOPIC


def _missing(image: Image, backup: Backup, notes: list[str]) -> Iterator[TopicBackup]:
    skipped = [topic.name for topic in backup.topics if _is_skipped(topic.name)]
    if skipped:
        notes.append(f"not restored, as nodes create them: {', '.join(sorted(skipped))}")
    there = 0
    for topic in backup.topics:
        if _is_skipped(topic.name):
            continue
        if image.topic(TopicName(topic.name)) is not None:
            there += 1
        else:
            yield topic
    if there:
        notes.append(f"there already, from an earlier restore: {there} topics")


def _create(
    broker: Broker, topic: TopicBackup, without_configs: Collection[str], notes: list[str]
) -> CreateTopic:
    image = broker.image
    check_name(topic.name)
    given = {name: value for name, value in topic.configs.items() if name not in THROTTLES}
    configs = {name: value for name, value in given.items() if name not in without_configs}
    if len(configs) < len(given):
        left = ", ".join(sorted(given.keys() - configs.keys()))
        notes.append(f"topic {topic.name} is without {left}")
    try:
        checked = checked_configs(broker, configs.items())
    except KafkaError as error:
        raise KafkaError(
            error.code,
            f"topic {topic.name}: {error.message}; --without-config NAME leaves a config out",
        ) from None
    nodes = candidates(image)
    factor = min(topic.replication_factor, len(nodes))
    if factor < topic.replication_factor:
        notes.append(
            f"topic {topic.name} has {factor} replicas instead of {topic.replication_factor}: "
            f"there are {len(nodes)} nodes"
        )
    placed = _former_nodes(image, topic)
    if placed is None:
        start = int.from_bytes(parse_topic_id(topic.id)[:2])
        placed = Placement(nodes, factor, start).place(len(topic.replicas))
    return CreateTopic(
        TopicName(topic.name),
        TopicId(parse_topic_id(topic.id)),
        with_roles(image, placed),
        checked,
        is_internal=False,
    )


def _former_nodes(image: Image, topic: TopicBackup) -> list[tuple[BrokerId, ...]] | None:
    """Return the placement of the backup if all of its nodes are here and up, else None."""
    up = {each.broker_id for each in candidates(image) if each.is_up}
    placed = [tuple(map(BrokerId, replicas)) for replicas in topic.replicas]
    is_same = all(len(set(replicas)) == len(replicas) for replicas in placed)
    return placed if is_same and all(up.issuperset(replicas) for replicas in placed) else None


def _configs(image: Image, backup: Backup, notes: list[str]) -> list[SetConfigs]:
    changes: list[SetConfigs] = []
    for row in backup.configs:
        kind = ResourceType.__members__.get(row.type)
        if kind is None or kind is ResourceType.TOPIC:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"configs of {row.type!r}: there is no such resource"
            )
        if kind is ResourceType.BROKER and row.name and not _has_broker(image, row.name):
            notes.append(f"not restored: configs of broker {row.name}, which is not here")
            continue
        values: dict[str, str | None] = {
            name: value for name, value in row.configs.items() if name not in THROTTLES
        }
        if dict(image.configs(kind, row.name)) != values:
            changes.append(SetConfigs(kind, row.name, values))
    return changes


def _has_broker(image: Image, name: str) -> bool:
    return name.isdecimal() and image.broker(BrokerId(int(name))) is not None


def _note_kept(image: Image, backup: Backup, notes: list[str]) -> None:
    """Note what the cluster has beside the backup: nothing is taken away."""
    acls, entities = set(backup.acls), {tuple(row.entity) for row in backup.quotas}
    kept = {
        "ACLs": sum(acl not in acls for same in image.state.acls.values() for acl in same),
        "quotas": sum(entity not in entities for entity in image.state.quotas),
    }
    if shown := ", ".join(f"{count} {name}" for name, count in kept.items() if count):
        notes.append(f"not in the backup, and kept as the cluster has them: {shown}")


def _note_left(image: Image, backup: Backup, notes: list[str]) -> None:
    notes.append(
        "not restored: records and committed offsets (`headrace mirror` or `headrace tier restore` "
        "bring records back)"
    )
    given = [*(topic.configs for topic in backup.topics), *(row.configs for row in backup.configs)]
    throttled = sum(not THROTTLES.isdisjoint(configs) for configs in given)
    if throttled:
        notes.append(
            f"not restored: the rate limits of moves that {throttled} topics and brokers had"
        )
    lower = {
        name: level for name, level in backup.features.items() if image.feature_level(name) < level
    }
    if lower:
        shown = ", ".join(f"{name} {level}" for name, level in sorted(lower.items()))
        notes.append(f"features were higher ({shown}): `headrace cluster upgrade` raises them")
    left = backup.left_out
    for name in left.__struct_fields__:
        if count := getattr(left, name):
            notes.append(f"not in the backup: {count} {name.replace('_', ' ')}")
