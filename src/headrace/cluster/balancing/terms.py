"""What a plan is made from, and what it says: nodes, partitions, moves, loads."""

from typing import Final

from msgspec import Struct

UNKNOWN_BYTES: Final = -1
FILL_MAX: Final = 0.9
"""How full a plan makes a disk."""
TOLERANCE: Final = 0.1
"""How far from the mean a node's load may be before something is moved."""


class NodeRow(Struct, frozen=True):
    """A node that may keep replicas."""

    node_id: int
    rack: str | None = None
    host: str = ""
    """Its machine, which several nodes may share; empty for one of its own."""
    disk: str = ""
    """Its disk, which several nodes may share; empty for one of its own."""
    total_bytes: int = UNKNOWN_BYTES
    free_bytes: int = UNKNOWN_BYTES
    is_up: bool = True
    is_leaving: bool = False
    """Whether it is to get nothing any more, and to lose what it has."""


class PartitionRow(Struct, frozen=True):
    """A partition and what it weighs."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    """The preferred leader first."""
    size_bytes: int = 0
    """The size of one replica."""
    bytes_in: float = 0.0
    """Per second."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Move(Struct, frozen=True):
    """A partition that is to have other replicas, or the same ones in another order."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    size_bytes: int
    reason: str

    @property
    def adding(self) -> tuple[int, ...]:
        """The nodes that copy the partition."""
        return tuple(each for each in self.after if each not in self.before)

    @property
    def copied_bytes(self) -> int:
        """How much goes over the network."""
        return self.size_bytes * len(self.adding)


class NodeLoad(Struct, frozen=True):
    """What a node has."""

    node_id: int
    replicas: int
    leaders: int
    size_bytes: int
    bytes_in: float
    """Per second, as a leader and as a follower."""


class Limits(Struct, frozen=True):
    """What a plan must keep to."""

    fill_max: float = FILL_MAX
    tolerance: float = TOLERANCE
    may_shrink: bool = False
    """Whether a partition may have fewer replicas where too few nodes are left."""
    moves_max: int | None = None
    """The most moves; the best ones come first."""


class Plan(Struct, frozen=True):
    """Moves, why some that are needed are not there, and the loads of nodes without and with them.

    A plan with problems must not be carried out in part where it takes a node out.
    """

    moves: tuple[Move, ...]
    problems: tuple[str, ...]
    before: tuple[NodeLoad, ...]
    after: tuple[NodeLoad, ...]

    @property
    def copied_bytes(self) -> int:
        return sum(move.copied_bytes for move in self.moves)

    @property
    def copies(self) -> int:
        """How many replicas are copied."""
        return sum(len(move.adding) for move in self.moves)
