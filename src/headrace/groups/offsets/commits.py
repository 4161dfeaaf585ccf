"""Offset commits: which are accepted, and their records.

A transactional commit is the same except for its records: the shell that writes them marks them
with the producer id, and they count when the transaction is committed.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from headrace import config
from headrace.coordinator.machine import Outcome, Reply, told
from headrace.coordinator.records import CoordinatorRecord
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.kinds import NO_GENERATION, Committer, find_group, rules_of
from headrace.groups.offsets.records import NO_EXPIRY, OffsetRecords
from headrace.groups.state import GroupsState, check_stays
from headrace.ids import ZERO_TOPIC_ID, TopicId

DEFAULT_RETENTION: Final = -1
FIRST_WITH_GROUP_ERROR: Final = 9
"""The version of OffsetCommit from which a missing group is called by its name."""


class PartitionOffset(Protocol):
    """What OffsetCommit and TxnOffsetCommit say of a partition."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class TopicOffsets(NamedTuple):
    """What is committed for the partitions of a topic, all of which exist."""

    name: str
    topic_id: bytes
    partitions: Sequence[PartitionOffset]


class Commit(NamedTuple):
    """Offsets that somebody wants to commit."""

    group_id: str
    topics: Sequence[TopicOffsets]
    committer: Committer
    retention_ms: int = DEFAULT_RETENTION


Refused = Mapping[tuple[str, int], ErrorCode]
"""Partitions whose offsets were not taken; all others were."""
_NONE_REFUSED: Final[Refused] = {}


def commit_offsets(
    state: GroupsState, commit: Commit, now_ms: int, reply: Reply[Refused]
) -> Outcome:
    """Commit offsets; the answer says which partitions were `Refused`.

    KafkaError if whoever commits may not do so for this group.
    """
    check_stays(state, commit.group_id)
    _check_committer(state, commit, now_ms)
    units_max = state.settings[config.OFFSET_METADATA_MAX_BYTES]
    expires_ms = NO_EXPIRY
    if commit.retention_ms != DEFAULT_RETENTION:
        expires_ms = min(now_ms + commit.retention_ms, config.INT64_MAX)
    refused: dict[tuple[str, int], ErrorCode] = {}
    records: list[CoordinatorRecord] = []
    for topic, topic_id, partitions in commit.topics:
        # Of a transaction Kafka does not write the id.
        written_id = ZERO_TOPIC_ID if commit.committer.is_transactional else topic_id
        make = OffsetRecords(commit.group_id, topic, written_id, now_ms, expires_ms).make
        for each in partitions:
            index, metadata = each.partition_index, each.committed_metadata or ""
            if metadata and _is_longer(metadata, units_max):
                refused[topic, index] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            records.append(
                make(index, each.committed_offset, each.committed_leader_epoch, metadata)
            )
    return Outcome(tuple(records), (told(reply, refused or _NONE_REFUSED),))


def _is_longer(text: str, units_max: int) -> bool:
    """Compare a length as Kafka does: neither in bytes nor in characters, but as UTF-16."""
    if 2 * len(text) <= units_max:
        return False
    return len(text.encode("utf-16-le", "surrogatepass")) // 2 > units_max


def _check_committer(state: GroupsState, commit: Commit, now_ms: int) -> None:
    committer, group_id = commit.committer, commit.group_id
    group = find_group(state, group_id)
    if group is None:
        # Without a generation it is a tool, or a consumer that assigns for itself: the group begins
        # with this commit.
        if committer.generation > NO_GENERATION:
            raise _no_such_group(group_id, committer)
        return
    is_anonymous = not committer.member_id and committer.instance_id is None
    if committer.is_transactional and is_anonymous and committer.generation <= NO_GENERATION:
        return  # a producer that does not know the group's members, as all were before KIP-447
    try:
        check = rules_of(group).check_commit(state, group, committer, now_ms)
        if check is not None:
            for _, topic_id, partitions in commit.topics:
                for each in partitions:
                    check(TopicId(topic_id), each.partition_index)
    except KafkaError as error:
        if committer.is_transactional and error.code == ErrorCode.STALE_MEMBER_EPOCH:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from None
        raise


def _no_such_group(group_id: str, committer: Committer) -> KafkaError:
    is_named = not committer.is_transactional and committer.version >= FIRST_WITH_GROUP_ERROR
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND if is_named else ErrorCode.ILLEGAL_GENERATION,
        f"there is no group {group_id!r}, so it has no generation {committer.generation}",
    )
