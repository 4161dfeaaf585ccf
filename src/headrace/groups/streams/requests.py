"""Validation of heartbeats of streams groups, before and after their member is known."""

from headrace import config
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.heartbeats import JOINING_EPOCH, NOT_GIVEN, STATIC_LEAVING_EPOCH
from headrace.groups.state import GroupId, GroupsState, MemberId
from headrace.groups.streams.group import StreamsGroup
from headrace.groups.streams.members import StreamsMember
from headrace.groups.streams.tasks import Tasks
from headrace.wire.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest


def check_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """INVALID_REQUEST if a heartbeat lacks something, or wants what Kafka 4.3 does not do yet."""
    if not request.member_id.strip():
        raise _invalid("the member id is empty")
    if not request.group_id.strip():
        raise _invalid("the group id is empty")
    _check_supported(request)
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("the rack id is empty; null stands for none")
    epoch = request.member_epoch
    if epoch == JOINING_EPOCH:
        _check_joining(request)
    elif request.topology is not None:
        raise _invalid(f"member epoch {epoch}: the topology is for those who join, with epoch 0")
    elif epoch < STATIC_LEAVING_EPOCH:
        raise _invalid(f"member epoch {epoch}: must be at least {STATIC_LEAVING_EPOCH}")
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if len({each is None for each in tasks}) > 1:
        raise _invalid("a member names its tasks of all three kinds, or of none")


def _check_supported(request: StreamsGroupHeartbeatRequest) -> None:
    if request.instance_id is not None:
        raise _invalid(
            f"instance id {request.instance_id!r}: streams groups have no static members"
        )
    if request.member_epoch == STATIC_LEAVING_EPOCH:
        raise _invalid(f"member epoch {STATIC_LEAVING_EPOCH} is for static members: no instance id")
    if request.task_offsets is not None or request.task_end_offsets is not None:
        raise _invalid("offsets of tasks are not taken")
    if request.warmup_tasks:
        raise _invalid("there are no warm-up tasks")
    if request.topology and any(each.source_topic_regex for each in request.topology.subtopologies):
        raise _invalid("source topics are named one by one, not by a regular expression")


def _check_joining(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == NOT_GIVEN:
        raise _invalid("who joins has to give a rebalance timeout")
    for name, tasks in (
        ("active", request.active_tasks),
        ("standby", request.standby_tasks),
        ("warm-up", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            raise _invalid(f"who joins has to say that it has no {name} tasks")
    if request.topology is None:
        raise _invalid("who joins has to bring the topology")


def check_room(state: GroupsState, group: StreamsGroup) -> None:
    """GROUP_MAX_SIZE_REACHED if a group takes no more members."""
    most = state.settings[config.GROUP_STREAMS_MAX_SIZE]
    if len(group.members) >= most:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id!r} has {most} members, the most that group.streams.max.size "
            "allows",
        )


def find_member(group: StreamsGroup, member_id: str) -> StreamsMember:
    """Return a member; UNKNOWN_MEMBER_ID if it does not exist."""
    member = group.members.get(MemberId(member_id))
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"{member_id!r} is not a member of group {group.group_id!r}",
        )
    return member


def check_epoch(member: StreamsMember, epoch: int, reported: Tasks | None) -> None:
    """FENCED_MEMBER_EPOCH if a member is not where the group thinks it is.

    It may be one epoch behind, as an answer gets lost now and then, if it has nothing that it
    should not have.
    """
    if epoch == member.epoch:
        return
    is_late = epoch == member.previous_epoch and epoch < member.epoch
    if is_late and reported is not None and reported.is_within(member.assigned):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member {member.member_id!r} has epoch {member.epoch}, not {epoch}: it has to give up all "
        "its tasks and join again",
    )


def check_reported(group: StreamsGroup, reported: Tasks | None) -> None:
    """INVALID_REQUEST if a member has tasks that the topology does not."""
    if reported is None or group.configured is None or group.configured.problem is not None:
        return
    counts = group.configured.task_counts
    for tasks in reported:
        for name, partition in tasks:
            if name not in counts:
                raise _invalid(f"the topology has no subtopology {name!r}")
            if not 0 <= partition < counts[name]:
                raise _invalid(
                    f"task {partition} of subtopology {name!r}, which has {counts[name]} tasks"
                )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def find_streams_group(state: GroupsState, group_id: str) -> StreamsGroup:
    """Return a streams group; GROUP_ID_NOT_FOUND if there is none of that name."""
    group = state.groups.get(GroupId(group_id))
    if isinstance(group, StreamsGroup):
        return group
    is_other = group is not None or group_id in state.offsets
    raise KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"group {group_id!r} is not a streams group"
        if is_other
        else f"there is no group {group_id!r}",
    )
