"""Assignors: pure functions from subscriptions to assignments.

`uniform` balances the number of partitions per member and moves as few as possible; `range` assigns
adjacent partitions to each member, and the same ones of topics of the same size. Neither considers
racks: nor do those of Kafka 4.3.1, where a change of racks only triggers a new assignment. `simple`
is for share groups, in which a partition may have many readers.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from headrace.groups.assignors.range import assign_ranges
from headrace.groups.assignors.spec import Assignment, AssignmentSpec, MemberSpec
from headrace.groups.assignors.uniform import assign_uniformly

Assignor: TypeAlias = Callable[[AssignmentSpec], dict[str, Assignment]]

ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}
"""By the names that members and `group.consumer.assignors` give them."""

__all__ = ["ASSIGNORS", "Assignment", "AssignmentSpec", "Assignor", "MemberSpec"]
