"""Moves of a partition from its leader to the node that has no replica of it.

A throttle of one byte per second holds a move back until it is released, so that it is on its way
when something happens to a node. It is the leader's, too, or the first fetch of a small partition
would get all of it.
"""

from headrace.client.configs import Change, Resource, ResourceType
from headrace.client.topics import TopicPartition
from headrace.errors import HeadraceError
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)
from tests.chaos.nodes import Nodes
from tests.process_cluster import wait_for

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def allow_throttles(nodes: Nodes) -> None:
    """Set the rate at which throttled replicas catch up; no replica is throttled yet."""
    for number in nodes.places:
        nodes.admin("alter_configs", Resource.broker(number), set=dict.fromkeys(RATES, "1"))


class Move:
    """A partition that one node leaves, its leader, and to which another one comes."""

    def __init__(self, nodes: Nodes, partition: TopicPartition) -> None:
        state = nodes.partition(partition)
        self._nodes = nodes
        self.partition = partition
        self.source = state.leader
        self.target = next(each for each in nodes.places if each not in state.replicas)
        self.replicas = [
            self.target if each == self.source else each
            for each in sorted(state.replicas, key=lambda each: each != state.leader)
        ]

    def begin(self) -> None:
        """Begin it, and return when the node that comes is one of the replicas."""
        self._throttle(Change.SET, "*", self.source)
        self._nodes.admin("alter_reassignments", {self.partition: self.replicas})
        wait_for(
            lambda: self.target in self._nodes.partition(self.partition).replicas,
            f"{self.partition} to have a replica on node {self.target}",
        )

    def is_on_its_way(self) -> bool:
        return self.partition in self._nodes.admin("list_reassignments")

    def release(self, victim: int) -> None:
        """Let it run, by the word of nodes to which nothing happens."""
        others = [number for number in self._nodes.others(victim) if number in self._nodes.nodes]
        state = self._nodes.partitions(others[0])[self.partition]
        assert {self.source, self.target} <= set(state.replicas), "it was over before"
        wait_for(
            lambda: any(self._throttle(Change.DELETE, None, each) for each in others),
            "the throttle to be released",
        )

    def wait_until_over(self) -> None:
        def is_over() -> bool:
            state = self._nodes.partition(self.partition)
            return set(state.replicas) == set(self.replicas) and not self.is_on_its_way()

        wait_for(is_over, f"{self.partition} to be on {self.replicas}")

    def _throttle(self, change: Change, value: str | None, through: int) -> bool:
        configs = [
            AlterableConfig(name=name, config_operation=change, value=value) for name in THROTTLED
        ]
        resource = AlterConfigsResource(
            resource_type=ResourceType.TOPIC,
            resource_name=self.partition.topic,
            configs=configs,
        )
        body = IncrementalAlterConfigsRequest(resources=[resource])
        try:
            answer = self._nodes.ask(through, body, IncrementalAlterConfigsResponse)
        except HeadraceError:
            return False
        return not any(row.error_code for row in answer.responses)
