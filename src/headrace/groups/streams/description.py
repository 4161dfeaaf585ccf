"""A streams group as StreamsGroupDescribe shows it."""

from collections.abc import Iterable

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.groups.state import GroupsState
from headrace.groups.streams.group import StreamsGroup
from headrace.groups.streams.members import StreamsMember
from headrace.groups.streams.requests import find_streams_group
from headrace.groups.streams.target import configure_group
from headrace.groups.streams.tasks import Tasks, write_tasks
from headrace.groups.streams.topology import ConfiguredTopology
from headrace.wire.messages import streams_group_topology_value as stored
from headrace.wire.messages.streams_group_describe_response import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)


def describe_streams_group(
    state: GroupsState, group_id: str, reply: Reply[DescribedGroup]
) -> Outcome:
    """Describe a group; the answer is a DescribedGroup. KafkaError if it is no streams group."""
    group = find_streams_group(state, group_id)
    topology = None
    if group.topology is not None:
        # Numbers of partitions are shown when the group has taken note of them.
        configured = configure_group(state, group, group.topology) if group.is_ready else None
        topology = _topology(group.topology, configured)
    row = DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=topology,
        members=[_member(group, each) for each in group.members.values()],
    )
    return Outcome(replies=(told(reply, row),))


def _topology(
    topology: stored.StreamsGroupTopologyValue, known: ConfiguredTopology | None
) -> Topology:
    """Return the topology, with partition counts if they are known."""
    rows = []
    for each in sorted(topology.subtopologies, key=lambda each: each.subtopology_id):
        row = Subtopology(
            each.subtopology_id,
            sorted(each.source_topics),
            sorted(each.repartition_sink_topics),
            _topics(each.state_changelog_topics, known),
            _topics(each.repartition_source_topics, known),
        )
        rows.append(row)
    return Topology(topology.epoch, rows)


def _topics(
    topics: Iterable[stored.TopicInfo], known: ConfiguredTopology | None
) -> list[TopicInfo]:
    return [
        TopicInfo(
            topic.name,
            known.partition_counts.get(topic.name, topic.partitions) if known else topic.partitions,
            topic.replication_factor,
            [
                KeyValue(each.key, each.value)
                for each in sorted(topic.topic_configs, key=lambda each: each.key)
            ],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(group: StreamsGroup, member: StreamsMember) -> Member:
    endpoint = member.endpoint
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=[KeyValue(key, value) for key, value in member.client_tags],
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(group.target_of(member.member_id)),
    )


def _assignment(tasks: Tasks) -> Assignment:
    return Assignment(*(write_tasks(each, TaskIds) for each in tasks))
