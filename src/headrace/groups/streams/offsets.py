"""A streams group's checks when its offsets are committed and fetched."""

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.state import GroupsState, PartitionCheck
from headrace.groups.streams.group import StreamsGroup
from headrace.groups.streams.partitions import sources_of
from headrace.groups.streams.requests import find_member
from headrace.groups.streams.tasks import TaskId
from headrace.ids import TopicId


def validate_offset_commit(
    state: GroupsState, group: StreamsGroup, member_id: str, epoch: int
) -> PartitionCheck | None:
    """KafkaError if nobody may commit like this; else what to ask of each partition, if anything.

    A member whose epoch is behind may commit for the tasks that it has had since then: it has not
    heard yet that the group moved on. Of all others it is stale.
    """
    if epoch < 0 and group.is_empty:
        return None  # a tool
    member = find_member(group, member_id)
    if epoch == member.epoch:
        return None
    if not 0 <= epoch < member.epoch:
        raise _stale(group, member_id, epoch, member.epoch)

    def check(topic_id: TopicId, index: int) -> None:
        topic = state.image.topic_by_id(topic_id)
        task = _task_of(group, topic.name, index) if topic is not None else None
        got = member.active_epochs.get(task) if task is not None else None
        if got is None or epoch < got:
            raise _stale(group, member_id, epoch, member.epoch)

    return check


def validate_offset_fetch(group: StreamsGroup, member_id: str | None, epoch: int) -> None:
    """KafkaError if offsets are not for whoever asks: members have to be of their epoch."""
    if not member_id and epoch < 0:
        return
    member = find_member(group, member_id or "")
    if epoch != member.epoch:
        raise _stale(group, member_id or "", epoch, member.epoch)


def _task_of(group: StreamsGroup, topic: str, index: int) -> TaskId | None:
    """Return the task that reads a partition."""
    for each in group.topology.subtopologies if group.topology is not None else ():
        if topic in sources_of(each):
            return TaskId(each.subtopology_id, index)
    return None


def _stale(group: StreamsGroup, member_id: str, epoch: int, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"member {member_id!r} of group {group.group_id!r} has epoch {expected}, not {epoch}",
    )
