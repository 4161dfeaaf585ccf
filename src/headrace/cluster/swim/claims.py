"""What is said of a member, and which of two claims holds.

Claims of a member are in one total order: by its boot epoch, then by the incarnation that it was
in, then by how bad they are. The highest holds. So it does not matter in which order, how often or
by which way they arrive: nodes that have seen the same claims agree.

Only the member itself gets to a higher incarnation, and does so to refute a claim. A new process
has a higher boot epoch, so whatever was said of its former life does not touch it.
"""

from enum import IntEnum
from typing import Final

import msgspec

from headrace.ids import BrokerId as NodeId

UNHEARD: Final = -1
"""The incarnation of an unheard-of life: any claim of it is higher."""
INCARNATION_MAX: Final = 2**63 - 1
BOOT_EPOCH_MAX: Final = 2**63 - 1

Rank = tuple[int, int, int]


class Standing(IntEnum):
    """How bad a claim is; the numbers are on the wire."""

    ALIVE = 0
    SUSPECT = 1
    UNREACHABLE = 2
    LEFT = 3


class Claim(msgspec.Struct, frozen=True):
    """A statement about a member."""

    node: NodeId
    boot_epoch: int
    incarnation: int
    standing: Standing
    accuser: NodeId
    """The node whose probe failed, to count accusers; else the member itself."""

    @property
    def rank(self) -> Rank:
        return (self.boot_epoch, self.incarnation, self.standing)

    @property
    def is_heard(self) -> bool:
        """Whether any node has heard of this life of the member."""
        return self.incarnation != UNHEARD

    @property
    def is_present(self) -> bool:
        """Whether the member takes part, as far as known."""
        return self.standing <= Standing.SUSPECT
