"""A mirror: topics, records and positions of groups of one cluster, kept in another.

    async with Mirror("kafka:9092", "headrace:9092", MirrorOptions()) as mirror:
        await mirror.run_once()

It keeps nothing of its own: what is in the target says where it goes on. So it may be killed at
any time, and run twice at the same time, for nothing but double work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final, Self

import msgspec

from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.errors import NotReachable
from headrace.client.mirror.choice import Choice
from headrace.client.mirror.group_positions import GroupCopy, GroupPositions
from headrace.client.mirror.looking import Looks
from headrace.client.mirror.progress import Copy, Phase
from headrace.client.mirror.streams import Streams
from headrace.client.mirror.topic_copies import CopyOptions, MirroredTopic, TopicCopies
from headrace.client.settings import ClientSettings
from headrace.client.topics import BROKERS_DEFAULT, TopicPartition
from headrace.errors import KafkaError

CLIENT_ID: Final = "headrace-mirror"
TOPICS_SECONDS: Final = 10.0
"""How often topics, partitions and configs are compared."""
TOPIC_ATTEMPTS: Final = 5
"""How often that is tried at the start of a single run, while errors are of those that pass."""
RETRY_SECONDS: Final = 1.0
MISSING_MAX: Final = 3
"""After how many comparisons without a topic the source has deleted it: a node may lag behind."""
GROUPS_SECONDS: Final = 5.0
"""How often positions of groups are copied."""
GROUP_ATTEMPTS: Final = 3
"""How often that is tried at the end of a single run."""


class MirrorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is mirrored, and how."""

    topics: Choice = Choice()
    groups: Choice = Choice()
    configs: Mapping[str, str] = {}
    """Configs that mirrors have instead of the source's."""
    replication_factor: int = BROKERS_DEFAULT
    bytes_per_second: int | None = None
    skips_lost: bool = False
    """Whether to go on behind records that the source deleted before they were copied."""
    moves_groups_back: bool = False
    is_dry_run: bool = False


class Mirror:
    """Copies one cluster to another while it runs."""

    def __init__(
        self,
        source: str,
        target: str,
        options: MirrorOptions,
        *,
        source_settings: ClientSettings | None = None,
        target_settings: ClientSettings | None = None,
    ) -> None:
        """Take bootstrap addresses, and settings to connect to each cluster."""
        theirs = source_settings or ClientSettings(client_id=CLIENT_ID)
        ours = target_settings or ClientSettings(client_id=CLIENT_ID)
        self._source = Admin(source, theirs)
        self._target = Admin(target, ours)
        # Records have connections of their own: a request waits for those before it.
        self._read_from = Cluster(source, theirs)
        self._write_to = Cluster(target, ours)
        self._options = options
        self._stack = AsyncExitStack()
        self._streams: Streams | None = None
        self._missing: dict[str, int] = {}
        """In how many comparisons in a row the source did not list a topic."""
        self.topics: list[MirroredTopic] = []
        """The chosen topics, as of the last comparison."""
        self.groups: list[GroupCopy] = []
        """The chosen groups that have positions in mirrored topics, likewise."""
        self.trouble = ""
        """Why topics or groups could not be compared the last time, empty if they could."""

    async def __aenter__(self) -> Self:
        self._options.topics.check()
        self._options.groups.check()
        for each in (self._source, self._target, self._read_from, self._write_to):
            await self._stack.enter_async_context(each)
        looks = Looks(self._read_from, self._write_to, skips_lost=self._options.skips_lost)
        self._streams = Streams(
            self._read_from,
            self._write_to,
            looks,
            bytes_per_second=self._options.bytes_per_second,
        )
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    @property
    def copies(self) -> list[Copy]:
        """The partitions that are copied, sorted."""
        assert self._streams is not None
        return [copy for _, copy in sorted(self._streams.copies.items())]

    async def refresh_topics(self) -> None:
        """Create, grow and configure topics, and copy what is new."""
        options = CopyOptions(
            topics=self._options.topics,
            configs=self._options.configs,
            replication_factor=self._options.replication_factor,
            is_dry_run=self._options.is_dry_run,
        )
        self.topics = await TopicCopies(self._source, self._target, options).refresh()
        if not self._options.is_dry_run:
            self._follow_topics()

    def _follow_topics(self) -> None:
        assert self._streams is not None
        copies = self._streams.copies
        for topic in self.topics:
            if topic.is_passing:
                continue  # what is copied goes on
            for index in range(topic.partitions):
                partition = TopicPartition(topic.name, index)
                known = copies.get(partition)
                if known is None or (topic.is_new and not topic.problem):
                    known = Copy(partition=partition, source=topic.source)
                    self._streams.add(known)
                known.is_compacted = topic.is_compacted
                known.may_end_early = topic.source_may_end_early
                if topic.problem and known.phase is not Phase.HALTED:
                    known.halt(topic.problem)
        names = {topic.name for topic in self.topics}
        gone = {partition.topic for partition in copies} - names
        self._missing = {name: self._missing.get(name, 0) + 1 for name in gone}
        for partition, copy in copies.items():
            is_deleted = self._missing.get(partition.topic, 0) >= MISSING_MAX
            if is_deleted and copy.phase is not Phase.HALTED:
                copy.halt("the source has deleted the topic: promote or delete it in the target")

    async def refresh_groups(self) -> None:
        """Copy positions of groups, as far as their records are copied."""
        ends = {
            copy.partition: copy.target_end
            for copy in self.copies
            if copy.goal >= 0 and copy.phase is not Phase.HALTED
        }
        positions = GroupPositions(
            self._source,
            self._target,
            self._options.groups,
            goes_back=self._options.moves_groups_back,
        )
        self.groups = await positions.refresh(ends, is_dry_run=self._options.is_dry_run)

    async def run_once(self, on_progress: Callable[[], None] = lambda: None) -> None:
        """Copy what the source has now; return when that is done, as far as it can be."""
        assert self._streams is not None
        for _ in range(TOPIC_ATTEMPTS - 1):
            await self.refresh_topics()
            if not any(topic.is_passing for topic in self.topics):
                break
            await asyncio.sleep(RETRY_SECONDS)
        else:
            await self.refresh_topics()
        ticking = asyncio.create_task(_tick(on_progress))
        try:
            await self._streams.run(until=self._streams.are_at_goal)
        finally:
            ticking.cancel()
        for left in reversed(range(GROUP_ATTEMPTS)):
            try:
                await self.refresh_groups()
                break
            except NotReachable:  # a node that is gone is asked until the cluster says so
                if not left:
                    raise

    async def run(self, on_progress: Callable[[], None]) -> None:
        """Copy until it is cancelled; errors of single requests are retried forever."""
        assert self._streams is not None
        await self.refresh_topics()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._streams.run(until=lambda: False))
            group.create_task(self._repeat(self.refresh_topics, TOPICS_SECONDS))
            group.create_task(self._repeat(self.refresh_groups, GROUPS_SECONDS))
            group.create_task(_tick(on_progress))

    async def _repeat(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except (KafkaError, NotReachable) as error:
                self.trouble = str(error)
            else:
                self.trouble = ""


TICK_SECONDS: Final = 1.0


async def _tick(on_progress: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(TICK_SECONDS)
        on_progress()
