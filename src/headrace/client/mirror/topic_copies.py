"""Topics of the source in the target: created as mirrors, grown and configured like the source's.

    copies = TopicCopies(source, target, options)
    found = await copies.refresh()

A topic that is there and is not the mirror of the same topic is left alone, and says so: one with
records of its own, one that is promoted, or one whose source was deleted and created again.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from headrace.client.admin import Admin
from headrace.client.configs import Config, ConfigSource, Resource
from headrace.client.metadata import Topic
from headrace.client.mirror.choice import (
    NEVER,
    Choice,
    InvalidChoice,
    choose_configs,
    may_end_early,
    plan_configs,
    source_name,
)
from headrace.client.topics import BROKERS_DEFAULT, NewTopic
from headrace.config.topic import MIRROR_SOURCE
from headrace.errors import ErrorCode, KafkaError

DESCRIBED_AT_ONCE: Final = 200
"""The most topics whose configs one request asks for."""
PASSING: Final = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_REPLICATION_FACTOR})
"""Errors that may pass, besides those that Kafka's clients retry: nodes are down, for one."""
NOT_HEADRACE: Final = (
    "the target does not know the config headrace.mirror.source: only Headrace clusters keep the "
    "offsets of records, use MirrorMaker for others"
)


class CopyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which topics, and what their mirrors have that the source has not."""

    topics: Choice = Choice()
    configs: Mapping[str, str] = {}
    replication_factor: int = BROKERS_DEFAULT
    is_dry_run: bool = False


class MirroredTopic(msgspec.Struct, kw_only=True):
    """A topic of the source and its mirror."""

    name: str
    source: str
    """As the config headrace.mirror.source has it."""
    partitions: int
    is_compacted: bool = False
    source_may_end_early: bool = False
    target_may_end_early: bool = False
    """Whether compaction may have removed the last records there, see `choice`."""
    problem: str = ""
    """Why it is not copied, empty if it is."""
    is_passing: bool = False
    """Whether the problem may be over at the next comparison: no reason to end what is copied."""
    is_new: bool = False
    """Whether its mirror was just created."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What was done, or would be, and what is not copied."""


class TopicCopies:
    """Keeps the topics of the target like those of the source."""

    def __init__(self, source: Admin, target: Admin, options: CopyOptions) -> None:
        self._source = source
        self._target = target
        self._options = options

    async def refresh(self) -> list[MirroredTopic]:
        """Create, grow and configure what is to be; return every chosen topic."""
        wanted = [
            topic
            for topic in await self._source.list_topics()
            if topic.name not in NEVER and self._options.topics.has(topic.name)
        ]
        there = {topic.name: topic for topic in await self._target.list_topics()}
        cluster_id = self._source.cluster.view.cluster_id
        found: list[MirroredTopic] = []
        for first in range(0, len(wanted), DESCRIBED_AT_ONCE):
            part = wanted[first : first + DESCRIBED_AT_ONCE]
            mirrored = [
                MirroredTopic(
                    name=topic.name,
                    source=source_name(cluster_id, topic.topic_id),
                    partitions=len(topic.partitions),
                )
                for topic in part
            ]
            configs = await _describe(self._source, part)
            existing = [there[topic.name] for topic in part if topic.name in there]
            own = await _describe(self._target, existing)
            for topic in mirrored:
                try:
                    rows = _rows_of(configs, topic.name)
                    await self._bring_in_line(
                        topic, rows, own.get(topic.name), there.get(topic.name)
                    )
                except KafkaError as error:
                    topic.problem = error.message
                    topic.is_passing = error.is_retriable or error.code in PASSING
            found += mirrored
        return found

    async def _bring_in_line(
        self,
        topic: MirroredTopic,
        rows: list[Config],
        own: list[Config] | KafkaError | None,
        there: Topic | None,
    ) -> None:
        chosen = choose_configs(rows)
        wanted = {**chosen.copied, **self._options.configs, MIRROR_SOURCE.name: topic.source}
        topic.is_compacted = any(
            "compact" in configs.get("cleanup.policy", "") for configs in (chosen.copied, wanted)
        )
        topic.source_may_end_early = may_end_early(rows)
        left = ", ".join(f"{name}={value}" for name, value in sorted(chosen.left.items()))
        if left:
            topic.notes.append(f"not copied: {left}")
        if there is None or own is None:
            await self._create(topic, wanted)
            return
        topic.target_may_end_early = may_end_early(_checked(own))
        current = {
            row.name: row.value or ""
            for row in _checked(own)
            if row.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        }
        if current.get(MIRROR_SOURCE.name) != topic.source:
            topic.problem = _explain_other(topic, current.get(MIRROR_SOURCE.name))
            return
        await self._grow(topic, len(there.partitions))
        await self._configure(topic, current, wanted)

    async def _create(self, topic: MirroredTopic, configs: Mapping[str, str]) -> None:
        shown = ", ".join(f"{name}={value}" for name, value in sorted(configs.items()))
        topic.notes.append(f"created with {topic.partitions} partitions, {shown}")
        new = NewTopic(topic.name, topic.partitions, self._options.replication_factor, configs)
        outcomes = await self._target.create_topics([new], validate_only=self._options.is_dry_run)
        outcome = outcomes[topic.name]
        if not isinstance(outcome, KafkaError):
            topic.is_new = True
            return
        if outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return  # another mirror was faster: the next look says whether it is ours
        if outcome.code == ErrorCode.INVALID_CONFIG and MIRROR_SOURCE.name in outcome.message:
            raise InvalidChoice(NOT_HEADRACE)
        raise outcome

    async def _grow(self, topic: MirroredTopic, count: int) -> None:
        if count > topic.partitions:
            topic.notes.append(
                f"has {count} partitions in the target, {topic.partitions} at the source"
            )
        elif count < topic.partitions:
            topic.notes.append(f"grown from {count} to {topic.partitions} partitions")
            if not self._options.is_dry_run:
                await self._target.add_partitions(topic.name, topic.partitions)
                self._target.cluster.forget(topic.name)

    async def _configure(
        self, topic: MirroredTopic, current: Mapping[str, str], wanted: Mapping[str, str]
    ) -> None:
        changes = plan_configs(current, wanted)
        if not changes.set and not changes.unset:
            return
        shown = [f"{name}={value}" for name, value in sorted(changes.set.items())]
        shown += [f"{name} unset" for name in changes.unset]
        resource = Resource.topic(topic.name)
        try:
            await self._target.alter_configs(
                resource,
                set=changes.set,
                unset=changes.unset,
                validate_only=self._options.is_dry_run,
            )
        except KafkaError as error:
            topic.notes.append(f"configs not changed ({', '.join(shown)}): {error.message}")
        else:
            topic.notes.append(f"configs changed: {', '.join(shown)}")


async def _describe(admin: Admin, topics: Sequence[Topic]) -> dict[str, list[Config] | KafkaError]:
    if not topics:
        return {}
    found = await admin.describe_configs([Resource.topic(topic.name) for topic in topics])
    return {resource.name: outcome for resource, outcome in found.items()}


def _rows_of(configs: Mapping[str, list[Config] | KafkaError], name: str) -> list[Config]:
    missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} was just deleted")
    return _checked(configs.get(name, missing))


def _checked(outcome: list[Config] | KafkaError) -> list[Config]:
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome


def _explain_other(topic: MirroredTopic, there: str | None) -> str:
    if there is None:
        return (
            "the target has a topic of this name that is not a mirror, or was promoted: exclude "
            "it, or delete it in the target to copy it"
        )
    if there.partition("/")[0] == topic.source.partition("/")[0]:
        return (
            f"the source has deleted the topic that was mirrored ({there}) and created another one "
            f"of its name ({topic.source}): delete the topic in the target to copy the new one, "
            "or promote it"
        )
    return (
        f"the target's topic is a mirror of {there}, not of {topic.source}: only one cluster is "
        "mirrored into a topic"
    )
