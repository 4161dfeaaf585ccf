"""Responses to members of a streams group: tasks, problems, and endpoints for queries."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.groups.heartbeats import JOINING_EPOCH
from headrace.groups.state import MemberId
from headrace.groups.streams.group import StreamsGroup
from headrace.groups.streams.members import StreamsMember
from headrace.groups.streams.partitions import sources_of
from headrace.groups.streams.tasks import TaskId, Tasks, by_subtopology, write_tasks
from headrace.groups.streams.topology import ConfiguredTopology, InternalTopic, Problem, StatusCode
from headrace.wire.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from headrace.wire.messages.streams_group_heartbeat_response import (
    Endpoint,
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicPartition,
)
from headrace.wire.messages.streams_group_topology_value import StreamsGroupTopologyValue


class HeartbeatAnswer(NamedTuple):
    """The answer of a heartbeat, and what should be done about it."""

    response: StreamsGroupHeartbeatResponse
    to_create: tuple[InternalTopic, ...] = ()
    """Topics that the application needs and that do not exist."""


class View(NamedTuple):
    """A group as a heartbeat leaves it, before its records have changed it."""

    group: StreamsGroup
    topology: StreamsGroupTopologyValue
    members: Mapping[MemberId, StreamsMember]
    delay: Problem | None
    reported: Tasks | None
    """What the member says it has."""

    @property
    def configured(self) -> ConfiguredTopology:
        return self.group.configured or ConfiguredTopology()


def answer_heartbeat(
    view: View,
    request: StreamsGroupHeartbeatRequest,
    before: StreamsMember,
    after: StreamsMember,
) -> HeartbeatAnswer:
    """Answer a member; tasks are named to who joins, and when they change.

    They are also named to who says that it has others: an answer was lost. Kafka does not, and the
    tasks of that answer would stand still until the next rebalance.
    """
    response = StreamsGroupHeartbeatResponse(
        member_id=after.member_id,
        member_epoch=after.epoch,
        status=[Status(code, detail) for code, detail in _statuses(view, after)],
    )
    is_moved = after.assigned != before.assigned
    is_mistaken = view.reported is not None and view.reported != after.assigned
    if request.member_epoch == JOINING_EPOCH or is_moved or is_mistaken:
        active, standby, warmup = after.assigned
        response.active_tasks = write_tasks(active, TaskIds)
        response.standby_tasks = write_tasks(standby, TaskIds)
        response.warmup_tasks = write_tasks(warmup, TaskIds)
    group, is_new = view.group, view.group.topology is None
    is_moved = is_moved and after.endpoint is not None
    if is_moved and not is_new:
        group.endpoint_epoch += 1
    response.endpoint_information_epoch = group.endpoint_epoch
    # The first member of a group finds no epoch to move on from, and is told all the same.
    if request.endpoint_information_epoch != group.endpoint_epoch or (is_moved and is_new):
        response.partitions_by_user_endpoint = _endpoints(view)
    return HeartbeatAnswer(response, view.configured.to_create)


def _statuses(view: View, member: StreamsMember) -> Iterable[Problem]:
    """Yield the statuses of a group for a member, in Kafka's order."""
    group, epoch = view.group, view.topology.epoch
    if view.delay is not None:
        yield view.delay
    if member.topology_epoch < epoch:
        yield Problem(
            StatusCode.STALE_TOPOLOGY,
            f"the member's topology has epoch {member.topology_epoch}, the group's {epoch}",
        )
    problem = view.configured.problem
    if problem is not None:
        failures = [
            f"{topic.name} ({group.creation_failures[topic.name]})"
            for topic in view.configured.to_create
            if topic.name in group.creation_failures
        ]
        detail = f"; could not be created: {', '.join(failures)}" if failures else ""
        yield Problem(problem.code, problem.detail + detail)
    if group.shutdown_by is not None:
        yield Problem(
            StatusCode.SHUTDOWN_APPLICATION,
            f"member {group.shutdown_by} met a fatal error and asked for the end of the whole "
            "application",
        )


def _endpoints(view: View) -> list[EndpointToPartitions]:
    """Return the partitions whose state can be queried at each endpoint."""
    rows = []
    for member in view.members.values():
        if (endpoint := member.endpoint) is not None:
            rows.append(
                EndpointToPartitions(
                    Endpoint(endpoint.host, endpoint.port),
                    _partitions(view, member.assigned.active),
                    _partitions(view, member.assigned.standby),
                )
            )
    return rows


def _partitions(view: View, tasks: Iterable[TaskId]) -> list[TopicPartition]:
    """Return the partitions that tasks read. Topics of a subtopology may differ in number."""
    counts, sources = view.configured.partition_counts, {}
    for each in view.topology.subtopologies:
        sources[each.subtopology_id] = tuple(sources_of(each))
    found: dict[str, list[int]] = {}
    for subtopology, partitions in by_subtopology(tasks).items():
        for topic in sources.get(subtopology, ()):
            held = [each for each in partitions if each < counts.get(topic, 0)]
            found.setdefault(topic, []).extend(held)
    return [TopicPartition(topic, partitions) for topic, partitions in sorted(found.items())]
