"""What a group has committed: read and written as one of its members, or from outside.

Topics go by their id where broker and metadata have it: a commit for a topic that was deleted does
not become one for another that has its name.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Final

from headrace.client.errors import NotReachable, raise_for, refusal
from headrace.client.group.link import CoordinatorLink
from headrace.client.groups import CommittedOffset, GroupMetadata
from headrace.client.leaders import by_topic
from headrace.client.metadata import View
from headrace.client.retrying import Retries
from headrace.client.topics import TopicPartition
from headrace.errors import COORDINATOR_MOVED, ErrorCode, KafkaError
from headrace.ids import ZERO_TOPIC_ID, TopicId
from headrace.wire import ApiKey
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_commit_response import OffsetCommitResponse
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.offset_fetch_response import OffsetFetchResponse

_TOPIC_IDS_FROM: Final = 10
_MANY_GROUPS_FROM: Final = 8
_STABLE_FROM: Final = 7

_UNKNOWN_TOPIC: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)
_UNSETTLED: Final = frozenset(
    {
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
    }
)
_WAYS_OUT: Final = {
    ErrorCode.REBALANCE_IN_PROGRESS: "the group rebalances: poll, then commit what you still have",
    ErrorCode.FENCED_INSTANCE_ID: "another member took over our instance_id",
}
_WAY_OUT: Final = "the partition may be another member's by now, which reads from the last commit"


class CommitFailed(KafkaError):
    """A commit that the group refused because the member may not (any longer) make it.

    What was not committed is delivered again, here or to another member.
    """


class GroupOffsets:
    """Commits of one consumer, one after the other."""

    def __init__(self, link: CoordinatorLink, identify: Callable[[], GroupMetadata]) -> None:
        """`identify` returns the identity to commit with, or raises CommitFailed."""
        self._link = link
        self._identify = identify
        self._turn = asyncio.Lock()
        self.on_stale: Callable[[], None] = lambda: None
        """Called when the coordinator reports another member epoch than ours."""
        self.is_member_named = False
        """Whether only members may read commits, as with KIP-848."""

    async def commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        timeout_ms: int | None = None,
        topic_ids: Mapping[TopicPartition, TopicId | None] | None = None,
    ) -> None:
        """Commit; CommitFailed, another KafkaError or NotReachable says why not.

        Tried again until `timeout_ms`, the API timeout if it is not given, while that may help.
        `topic_ids` has the partitions that are ours: CommitFailed if it loses one before the
        commit is made, for its next owner may have committed already.
        """
        settings = self._link.cluster.settings
        ours = offsets.keys() & (topic_ids or {}).keys()
        async with self._turn:
            left = dict(offsets)
            retries = Retries(settings, timeout_ms)
            of_topic = Retries(settings, min(settings.topic_wait_ms, timeout_ms or 1 << 30))
            while left:
                try:
                    codes = await self._commit_once(left, topic_ids or {}, ours)
                except NotReachable:
                    self._link.forget()
                    if not await retries.pause():
                        raise
                    continue
                left = {partition: left[partition] for partition, code in codes.items() if code}
                error = self._worst(codes)
                if error is None:
                    return
                waits = of_topic if error.code in _UNKNOWN_TOPIC else retries
                if not self._may_retry(error) or not await waits.pause():
                    raise error

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the group's committed offsets; None where there is none."""
        wanted = list(partitions)
        retries = Retries(self._link.cluster.settings)
        while wanted:
            try:
                return await self._fetch_once(wanted)
            except NotReachable:
                self._link.forget()
                if not await retries.pause():
                    raise
            except KafkaError as error:
                if error.code in COORDINATOR_MOVED:
                    self._link.forget()
                if not error.is_retriable or not await retries.pause():
                    raise
        return {}

    def check_ours(
        self, ours: Set[TopicPartition], topic_ids: Mapping[TopicPartition, TopicId | None]
    ) -> None:
        """Raise CommitFailed if one of `ours` is not, or not any more, in `topic_ids`.

        A coordinator accepts a member's commits for any partition, overwriting its owner's.
        """
        gone = ours - topic_ids.keys()
        if gone:
            raise CommitFailed(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"commit of {min(gone)} in group {self._link.group_id!r}: {_WAY_OUT}",
            )

    def _may_retry(self, error: KafkaError) -> bool:
        if error.code in COORDINATOR_MOVED:
            self._link.forget()
        elif error.code == ErrorCode.STALE_MEMBER_EPOCH:
            self.on_stale()
            return True
        return error.is_retriable

    def _worst(self, codes: Mapping[TopicPartition, int]) -> KafkaError | None:
        """Return the error of the whole: one that no retry mends before one that it might."""
        worst: KafkaError | None = None
        for partition, code in codes.items():
            if not code:
                continue
            error = refusal(code, None, f"commit of {partition} in group {self._link.group_id!r}")
            if error.code in _UNSETTLED or error.code in _WAYS_OUT:
                way_out = _WAYS_OUT.get(error.code, _WAY_OUT)
                error = CommitFailed(error.code, f"{error.message}; {way_out}")
            if worst is None or (worst.is_retriable and not error.is_retriable):
                worst = error
        return worst

    async def _commit_once(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        topic_ids: Mapping[TopicPartition, TopicId | None],
        ours: Set[TopicPartition],
    ) -> dict[TopicPartition, int]:
        connection = await self._link.connection()
        self.check_ours(ours, topic_ids)
        version = connection.version_of(ApiKey.OFFSET_COMMIT)
        ids = _ids_of(offsets, self._link.cluster.view, topic_ids)
        if ids is None:
            version = min(version, _TOPIC_IDS_FROM - 1)
        who = self._identify()
        body = OffsetCommitRequest(
            group_id=who.group_id,
            generation_id_or_member_epoch=who.generation,
            member_id=who.member_id,
            group_instance_id=who.instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=ZERO_TOPIC_ID if ids is None else ids[topic],
                    partitions=[
                        _commit_row(index, offsets[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )
        answer = await connection.request(body, OffsetCommitResponse, version=version)
        names = _names_of(ids) if version >= _TOPIC_IDS_FROM else None
        return {
            TopicPartition(_name(topic, names), row.partition_index): row.error_code
            for topic in answer.topics
            for row in topic.partitions
        }

    async def _fetch_once(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        connection = await self._link.connection()
        version = connection.version_of(ApiKey.OFFSET_FETCH)
        ids = _ids_of(partitions, self._link.cluster.view, {})
        if ids is None:
            version = min(version, _TOPIC_IDS_FROM - 1)
        body = self._fetch_request(by_topic(partitions), ids, version)
        answer: Any = await connection.request(body, OffsetFetchResponse, version=version)
        group = answer.groups[0] if version >= _MANY_GROUPS_FROM else answer
        about = f"the offsets of group {self._link.group_id!r}"
        if group.error_code in _UNSETTLED:
            self.on_stale()
            raise NotReachable(f"{about}: the group does not know us (yet, or any more)")
        raise_for(group.error_code, None, about)
        found: dict[TopicPartition, CommittedOffset | None] = dict.fromkeys(partitions)
        names = _names_of(ids) if version >= _TOPIC_IDS_FROM else None
        for topic in group.topics:
            for row in topic.partitions:
                partition = TopicPartition(_name(topic, names), row.partition_index)
                raise_for(row.error_code, None, f"{about} in {partition}")
                if row.committed_offset >= 0:
                    found[partition] = CommittedOffset(
                        row.committed_offset, row.committed_leader_epoch, row.metadata or ""
                    )
        return found

    def _fetch_request(
        self, topics: Mapping[str, list[int]], ids: Mapping[str, TopicId] | None, version: int
    ) -> OffsetFetchRequest:
        body = OffsetFetchRequest(require_stable=version >= _STABLE_FROM)
        if version < _MANY_GROUPS_FROM:
            body.group_id = self._link.group_id
            body.topics = [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ]
            return body
        group = OffsetFetchRequestGroup(
            group_id=self._link.group_id,
            topics=[
                OffsetFetchRequestTopics(
                    name=name,
                    topic_id=ZERO_TOPIC_ID if ids is None else ids[name],
                    partition_indexes=indexes,
                )
                for name, indexes in topics.items()
            ],
        )
        who = self._identify_if_member()
        if who is not None:
            group.member_id, group.member_epoch = who.member_id, who.generation
        body.groups = [group]
        return body

    def _identify_if_member(self) -> GroupMetadata | None:
        """Return our identity; an anonymous one if we are not in the group."""
        if not self.is_member_named:
            return None
        try:
            who = self._identify()
        except CommitFailed:
            return None
        return who if who.member_id else None


def _commit_row(index: int, offset: CommittedOffset) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _ids_of(
    partitions: Iterable[TopicPartition],
    view: View,
    known: Mapping[TopicPartition, TopicId | None],
) -> dict[str, TopicId] | None:
    """Return the id of each topic, as it was assigned or as metadata has it; None if one lacks."""
    ids: dict[str, TopicId] = {}
    for partition in partitions:
        topic_id = known.get(partition) or view.topic_id(partition.topic)
        if topic_id == ZERO_TOPIC_ID:
            return None
        ids[partition.topic] = topic_id
    return ids


def _names_of(ids: Mapping[str, TopicId] | None) -> dict[TopicId, str]:
    return {topic_id: name for name, topic_id in (ids or {}).items()}


def _name(row: Any, names: Mapping[TopicId, str] | None) -> str:
    return str(row.name) if names is None else names[TopicId(row.topic_id)]
