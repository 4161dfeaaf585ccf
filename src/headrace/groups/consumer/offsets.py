"""A consumer group's checks when its offsets are committed, fetched and deleted."""

from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import ConsumerMember
from headrace.groups.consumer.requests import find_member
from headrace.groups.state import PartitionCheck
from headrace.ids import TopicId

FIRST_WITH_MEMBER_EPOCH: Final = 9
"""The version of OffsetCommit from which its generation may be a member epoch."""


def validate_offset_commit(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    *,
    version: int = FIRST_WITH_MEMBER_EPOCH,
    is_transactional: bool = False,
) -> PartitionCheck | None:
    """KafkaError if nobody may commit like this; else what to ask of each partition, if anything.

    A member whose epoch is behind may commit for the partitions that it has had since then: it
    has not heard yet that the group moved on. Of all others it is stale.
    """
    if epoch < 0 and group.is_empty:
        return None  # a tool, or a consumer that assigns for itself
    member = find_member(group, member_id)
    if member.is_classic:
        _check_generation(member, epoch)
        return None
    if not is_transactional and version < FIRST_WITH_MEMBER_EPOCH:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group "
            "protocol",
        )
    if epoch > member.epoch:
        raise _stale(
            f"Received member epoch {epoch} is newer than current member epoch", member.epoch
        )
    if epoch == member.epoch:
        return None

    def check(topic_id: TopicId, index: int) -> None:
        assigned_at = member.assignment_epoch(topic_id, index)
        if assigned_at is None:
            raise KafkaError(
                ErrorCode.STALE_MEMBER_EPOCH,
                f"partition {index} is neither assigned to member {member_id} nor being revoked",
            )
        if epoch < assigned_at:
            raise _stale(
                f"Received member epoch {epoch} is older than assignment epoch", assigned_at
            )

    return check


def validate_offset_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """KafkaError if offsets are not for whoever asks: members have to be of their epoch."""
    if member_id is None and epoch < 0:
        return
    member = find_member(group, member_id or "")
    if member.is_classic:
        _check_generation(member, epoch)
    elif epoch != member.epoch:
        raise _stale(
            f"The received member epoch {epoch} does not match the expected member epoch",
            member.epoch,
        )


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"generation {generation}: member {member.member_id!r} is in {member.epoch}",
        )


def _stale(message: str, epoch: int) -> KafkaError:
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH, f"{message} {epoch}.")
