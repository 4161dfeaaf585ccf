"""A streams group (KIP-1071), as built from its records.

Three numbers define its progress, as in a consumer group. The *group epoch* grows whenever a member
joins, leaves or changes, and whenever a topic does. A *target assignment* is computed for it and
has its epoch. Each member works towards the target by its own heartbeats; its *member epoch* is
that of the target which it has reached. The group also has the *topology*, which the first member
sends: the parts of the application and the topics that they read.

Groups change by the functions of `streams.records`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headrace.groups.heartbeats import FIRST_EPOCH
from headrace.groups.state import GroupId, GroupKind, MemberId
from headrace.groups.streams.members import StreamsMember
from headrace.groups.streams.tasks import NOTHING_TO_RUN, TaskId, Tasks
from headrace.groups.streams.topology import ConfiguredTopology
from headrace.wire.messages.streams_group_topology_value import StreamsGroupTopologyValue

NOT_VALIDATED: Final = -1
"""Stands for the epoch of a topology whose topics are not all as they should be."""


@dataclass(slots=True)
class StreamsGroup:
    """A group whose members are instances of one Kafka Streams application."""

    group_id: GroupId
    kind: GroupKind = GroupKind.STREAMS
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    """The hash of the topics in the topology, at the group epoch."""
    validated_topology_epoch: int = NOT_VALIDATED
    assignment_configs: tuple[tuple[str, str], ...] = ()
    """What the target depends on beside members and topics, at the group epoch."""
    assignment_epoch: int = FIRST_EPOCH
    assignment_timestamp_ms: int = 0
    topology: StreamsGroupTopologyValue | None = None
    members: dict[MemberId, StreamsMember] = field(default_factory=dict)
    targets: dict[MemberId, Tasks] = field(default_factory=dict)

    # Not in the log: what heartbeats note for each other.
    configured: ConfiguredTopology | None = None
    """The topology with the counts of partitions that the topics have, at `configured_index`."""
    configured_index: int = -1
    configured_hash: int = 0
    endpoint_epoch: int = 0
    """One more whenever tasks of a member change that answers queries."""
    shutdown_by: MemberId | None = None
    """The member that asked to shut down the whole application."""
    creation_failures: dict[str, str] = field(default_factory=dict)
    """Why internal topics could not be created."""
    _active_owners: dict[TaskId, MemberId] = field(default_factory=dict)
    _passive_owners: dict[tuple[TaskId, str], MemberId] = field(default_factory=dict)
    """The member that has a copy, by process."""

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def protocol_type(self) -> str:
        return "streams"

    @property
    def is_ready(self) -> bool:
        """Whether all topics are as the topology needs them."""
        return self.topology is not None and self.validated_topology_epoch == self.topology.epoch

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if not self.is_ready:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        is_reconciled = all(
            each.is_reconciled_to(self.assignment_epoch) for each in self.members.values()
        )
        return "Stable" if is_reconciled else "Reconciling"

    def is_subscribed_to(self, topic: str) -> bool:
        if not self.members or self.topology is None:
            return False
        return any(
            topic in each.source_topics
            or any(topic == source.name for source in each.repartition_source_topics)
            for each in self.topology.subtopologies
        )

    def target_of(self, member_id: MemberId) -> Tasks:
        return self.targets.get(member_id, NOTHING_TO_RUN)

    def releasable(self, wanted: Tasks, process_id: str) -> Tasks:
        """Return the tasks that a member of a process could start at once.

        An active task is run by one member only, and of all copies of a task one belongs to a
        process: their folders are the same. What the member itself has only just given up counts
        as had, as in Kafka: it gets it in another role with the next heartbeat.
        """

        def has_copy(task: TaskId) -> bool:
            return (task, process_id) in self._passive_owners

        def is_run_here(task: TaskId) -> bool:
            owner = self._active_owners.get(task)
            return owner is not None and self.members[owner].process_id == process_id

        def copies(tasks: Iterable[TaskId]) -> frozenset[TaskId]:
            return frozenset(t for t in tasks if not has_copy(t) and not is_run_here(t))

        active = (t for t in wanted.active if t not in self._active_owners and not has_copy(t))
        return Tasks(frozenset(active), copies(wanted.standby), copies(wanted.warmup))

    # Changes: for the functions that replay records

    def put_member(self, member: StreamsMember) -> None:
        self._release(self.members.get(member.member_id))
        self.members[member.member_id] = member
        held = member.held
        for task in held.active:
            self._active_owners[task] = member.member_id
        for task in held.standby | held.warmup:
            self._passive_owners[task, member.process_id] = member.member_id

    def remove_member(self, member_id: MemberId) -> None:
        self._release(self.members.pop(member_id, None))

    def _release(self, former: StreamsMember | None) -> None:
        if former is None:
            return
        # Another may have a task by now: a compacted log has the end of a member after the
        # beginning of the next.
        held, member_id = former.held, former.member_id
        for task in held.active:
            if self._active_owners.get(task) == member_id:
                del self._active_owners[task]
        for task in held.standby | held.warmup:
            place = (task, former.process_id)
            if self._passive_owners.get(place) == member_id:
                del self._passive_owners[place]
