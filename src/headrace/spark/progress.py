"""How a stream moves on: from where it is to where the next micro-batch ends.

The driver's part of a stream, without Spark around it. Each step asks the cluster what its topics
are now, so that partitions that were added are read from their beginning, and topics that were
deleted, re-created or cut off are noticed before a task fails on them.
"""

import secrets
import time
from collections.abc import Mapping
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.groups import commit_offsets
from headrace.client.outcomes import values_of
from headrace.client.retrying import Retries
from headrace.client.topics import TopicPartition
from headrace.errors import HeadraceError, KafkaError
from headrace.ids import ZERO_TOPIC_ID, parse_topic_id
from headrace.spark import loss
from headrace.spark.lookup import Found, ends, find_topics, high_watermarks, resolve
from headrace.spark.offsets import EARLIEST, LATEST, Offsets, StreamOffset
from headrace.spark.planning import Range, bound_rows, lag, split
from headrace.spark.read_options import ReadOptions

RECHECK_MS_MAX: Final = 3000
"""How long to recheck an end that went back before it counts as a loss."""


class WrongCheckpoint(HeadraceError):
    """A checkpoint of a query that read something else."""


class Progress:
    """One stream's view of its cluster. What it remembers only saves work."""

    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        self.latest: StreamOffset | None = None
        """The newest offsets that there are."""
        self._cluster = cluster
        self._options = options
        self._target: StreamOffset | None = None
        self._committed: StreamOffset | None = None
        self._batch_at = time.monotonic()

    async def begin(self) -> StreamOffset:
        """Where a new query starts."""
        found = await find_topics(self._cluster, self._options.subscription)
        start = await resolve(
            self._cluster, self._options.start, found.partitions, self._options, is_start=True
        )
        return StreamOffset(start, found.id_texts, self._group(""))

    async def set_target(self) -> None:
        """Never go beyond what there is now; topics that are gone are reported by `advance`."""
        subscription = self._options.subscription
        found = await find_topics(
            self._cluster, subscription, may_be_missing=frozenset(subscription.names)
        )
        latest = await ends(self._cluster, found.partitions, LATEST, self._options)
        self._target = StreamOffset(latest, found.id_texts)

    async def advance(
        self, done: StreamOffset, rows_max: int | None, rows_min: int | None
    ) -> StreamOffset:
        """Commit what is done; give where the next micro-batch ends, `done` if there is none."""
        group = self._group(done.group)
        found = await find_topics(
            self._cluster, self._options.subscription, may_be_missing=frozenset(done.topics)
        )
        await self._commit(done, found, group)
        self._check_topics(done, found)
        latest = await self._latest_beyond(done, found)
        self.latest = StreamOffset(latest, found.id_texts)
        start = await self._starts(done, found.id_texts, latest, reports=True)
        reachable = self._capped(start, latest)
        waiting = lag(start, reachable)
        if self._target is None and rows_min is not None and waiting < rows_min:
            waited_ms = (time.monotonic() - self._batch_at) * 1000
            if waited_ms < self._options.trigger_delay_max_ms:
                return StreamOffset(done.offsets, done.topic_ids, group)
        if waiting:
            self._batch_at = time.monotonic()
        end = reachable if rows_max is None else bound_rows(start, reachable, rows_max)
        return StreamOffset(end, found.id_texts, group)

    async def plan(self, start: StreamOffset, end: StreamOffset) -> list[Range]:
        """Cut a micro-batch into ranges."""
        starts = await self._starts(start, end.topic_ids, end.offsets, reports=False)
        ranges = [
            Range(*each, starts[each], stop, await self._topic_id(each.topic, end))
            for each, stop in sorted(end.offsets.items())
            if stop > starts[each]
        ]
        return split(ranges, self._options.partitions_min, self._options.partition_records_max)

    def _check_topics(self, done: StreamOffset, found: Found) -> None:
        """Refuse a checkpoint of other topics; report topics that are gone or no longer read."""
        if not done.offsets:
            return
        named = set(self._options.subscription.names)
        old = done.topics.difference(found.topics, named)
        if old == done.topics and found.topics:
            raise WrongCheckpoint(
                f"the checkpoint is of {', '.join(sorted(old))}, and this query reads "
                f"{self._options.subscription}: use another checkpointLocation"
            )
        fails = self._options.limits.fails_on_data_loss
        for topic in sorted(done.topics.intersection(named).difference(found.topics)):
            loss.report(loss.deleted(topic), fails=fails)
        for topic in sorted(old):
            what = f"topic {topic!r} is in the checkpoint, and the query does not read it any more"
            loss.report(what, fails=fails)
        for each in sorted(set(done.offsets).difference(found.partitions)):
            if each.topic in found.topics and not self._is_another(
                done, found.id_texts, each.topic
            ):
                loss.report(f"deleted: there is no partition {each} any more", fails=fails)

    async def _latest_beyond(self, done: StreamOffset, found: Found) -> Offsets:
        """Where partitions end, which is not before what was read, unless something is lost.

        A new leader may say so for a moment, until it knows the high watermark. A transaction that
        began before `done` holds back what is stable after a change of the isolation level.
        """
        retries = Retries(
            self._cluster.settings, min(RECHECK_MS_MAX, self._cluster.settings.api_timeout_ms)
        )
        while True:
            latest = await ends(self._cluster, found.partitions, LATEST, self._options)
            behind = {
                each: done.offsets[each]
                for each, end in latest.items()
                if done.offsets.get(each, 0) > end
                and not self._is_another(done, found.id_texts, each.topic)
            }
            written = await high_watermarks(self._cluster, behind) if behind else {}
            held = {each: offset for each, offset in behind.items() if written[each] >= offset}
            latest |= held
            if len(held) == len(behind) or not await retries.pause():
                return latest

    async def _starts(
        self,
        done: StreamOffset,
        ids: Mapping[str, str],
        latest: Mapping[TopicPartition, int],
        *,
        reports: bool,
    ) -> Offsets:
        """Return where each partition continues; new ones, also of a new topic, at the start."""
        fails = self._options.limits.fails_on_data_loss
        starts: Offsets = {}
        fresh: list[TopicPartition] = []
        for topic in sorted({each.topic for each in latest}):
            if reports and self._is_another(done, ids, topic):
                loss.report(loss.recreated(topic, done.topic_ids[topic], ids[topic]), fails=fails)
        for each, end in latest.items():
            offset = done.offsets.get(each)
            if offset is None or self._is_another(done, ids, each.topic):
                fresh.append(each)
            elif offset > end:
                if reports:
                    loss.report(loss.cut_off(each, offset, end), fails=fails)
                starts[each] = end
            else:
                starts[each] = offset
        earliest = await ends(self._cluster, fresh, EARLIEST, self._options) if fresh else {}
        return starts | {each: min(offset, latest[each]) for each, offset in earliest.items()}

    def _is_another(self, done: StreamOffset, ids: Mapping[str, str], topic: str) -> bool:
        then, now = done.topic_ids.get(topic), ids.get(topic)
        return then is not None and now is not None and then != now

    def _capped(self, start: Offsets, latest: Offsets) -> Offsets:
        if self._target is None:
            return latest
        target = self._target.offsets
        return {
            each: max(start[each], min(end, target.get(each, start[each])))
            for each, end in latest.items()
        }

    async def _topic_id(self, topic: str, end: StreamOffset) -> bytes:
        text = end.topic_ids.get(topic)
        if text is not None:
            return parse_topic_id(text)
        try:
            return (await self._cluster.topic(topic)).topic_id
        except KafkaError:
            return ZERO_TOPIC_ID

    def _group(self, known: str) -> str:
        """The group that progress is committed for: the user's, or one of this query alone."""
        if self._options.group or known:
            return self._options.group or known
        prefix, topics = self._options.group_prefix, self._options.subscription.slug
        return f"{prefix}-{topics}-{secrets.token_hex(4)}"

    async def _commit(self, done: StreamOffset, found: Found, group: str) -> None:
        """Commit the stream's progress for its group, in topics that were not re-created."""
        offsets = {
            each: offset
            for each, offset in done.offsets.items()
            if each in found.known and not self._is_another(done, found.id_texts, each.topic)
        }
        if self._committed == done or not offsets:
            return
        try:
            values_of(await commit_offsets(self._cluster, group, offsets))
        except HeadraceError as error:
            what = f"the progress of this stream cannot be committed for group {group!r}: {error}"
            if self._options.group:
                raise type(error)(*_renamed(error, what)) from error
            loss.LOG.warning("%s", what)
        self._committed = done


def _renamed(error: HeadraceError, what: str) -> tuple[object, ...]:
    return (error.code, what) if isinstance(error, KafkaError) else (what,)
