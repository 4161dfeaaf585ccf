"""The input and output of assignors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from headrace.ids import TopicId

Assignment: TypeAlias = Mapping[TopicId, frozenset[int]]
"""Partitions by topic; a topic without any is left out."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """What an assignor knows of a member."""

    topics: frozenset[TopicId]
    """What it is subscribed to, of which everything exists."""
    instance_id: str | None = None
    assigned: Assignment = field(default_factory=dict)
    """What it was assigned last: what it should keep if it can."""


@dataclass(frozen=True, slots=True)
class AssignmentSpec:
    """What is to be assigned, and to whom."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[TopicId, int]
    """The partition count of every topic that a member is subscribed to."""
