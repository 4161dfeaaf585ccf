"""The steps of moving a partition and what undoes them, as the log has them (seed 004).

`migrations` applies them. Up to `LeadershipTransfer` a checkpoint is in the log before its step is
taken, so that a crash at any point leaves a row that says what may have happened. `Cutover` is in
the log with the change that it speaks of, behind it.
"""

from enum import Enum
from typing import Final

from crc32c import crc32c
from msgspec import Raw, Struct

from headrace.metadata.descriptors import Hlc, UInt32, UInt64
from headrace.metadata.errors import InvalidEntry
from headrace.metadata.variants import ENUMS, Variants


class Phase(Enum):
    """The steps in their order; the values are the names in the log."""

    ADD_LEARNER = "AddLearner"
    CATCH_UP = "CatchUp"
    PROMOTE_LEARNER = "PromoteLearner"
    LEADERSHIP_TRANSFER = "LeadershipTransfer"
    CUTOVER = "Cutover"
    COMPLETE = "Complete"

    @property
    def ordinal(self) -> int:
        return _ORDINALS[self]


class AddLearner(Struct, frozen=True):
    """The target becomes a learner: the first checkpoint, which says what moves."""

    vshard: UInt32
    source_node: UInt64
    target_node: UInt64
    source_group: UInt64
    write_pause_budget_us: UInt64
    started_at_hlc: Hlc


class CatchUp(Struct, frozen=True):
    """The target is a learner and copies."""

    vshard: UInt32
    learner_log_index_at_add: UInt64
    """The index in the metadata log at which the target became a learner."""


class PromoteLearner(Struct, frozen=True):
    """The target has caught up and is in the ISR: it votes on what is committed."""

    vshard: UInt32
    target_node: UInt64
    source_group: UInt64


class TransferLeadership(Struct, frozen=True):
    """The target, or a replica that stays, is about to lead instead of one that leaves."""

    vshard: UInt32
    target_is_voter: bool
    new_leader: UInt64
    source_group: UInt64


class Cutover(Struct, frozen=True):
    """What was to leave has left: from here on there is only forward."""

    vshard: UInt32
    new_leader: UInt64
    source_group: UInt64


class Complete(Struct, frozen=True):
    """The move is over."""

    vshard: UInt32
    actual_pause_us: UInt64
    ghost_stub_installed: bool


Checkpoint = AddLearner | CatchUp | PromoteLearner | TransferLeadership | Cutover | Complete
CHECKPOINTS: Final[Variants[Checkpoint]] = Variants(
    {
        "AddLearner": AddLearner,
        "CatchUp": CatchUp,
        "PromoteLearner": PromoteLearner,
        "LeadershipTransfer": TransferLeadership,
        "Cutover": Cutover,
        "Complete": Complete,
    }
)
_ORDINALS: Final = {phase: ordinal for ordinal, phase in enumerate(Phase)}
_PHASES: Final[dict[type[Checkpoint], Phase]] = {
    AddLearner: Phase.ADD_LEARNER,
    CatchUp: Phase.CATCH_UP,
    PromoteLearner: Phase.PROMOTE_LEARNER,
    TransferLeadership: Phase.LEADERSHIP_TRANSFER,
    Cutover: Phase.CUTOVER,
    Complete: Phase.COMPLETE,
}


class RemoveLearner(Struct, frozen=True):
    """Remove a learner from its group."""

    group_id: UInt64
    peer: UInt64


class RemoveVoter(Struct, frozen=True):
    """Remove a voter from its group."""

    group_id: UInt64
    peer: UInt64


class RestoreLeaderHint(Struct, frozen=True):
    """Restore the former leader."""

    group_id: UInt64
    peer: UInt64


class RemoveGhostStub(Struct, frozen=True):
    """Forget where a partition went."""

    vshard: UInt32


Compensation = RemoveLearner | RemoveVoter | RestoreLeaderHint | RemoveGhostStub
COMPENSATIONS: Final[Variants[Compensation]] = Variants(
    {
        "RemoveLearner": RemoveLearner,
        "RemoveVoter": RemoveVoter,
        "RestoreLeaderHint": RestoreLeaderHint,
        "RemoveGhostStub": RemoveGhostStub,
    }
)
ENUMS[Compensation] = COMPENSATIONS


def seal_checkpoint(checkpoint: Checkpoint) -> tuple[Phase, Raw, int]:
    """Return the contents of a `MigrationCheckpoint`: the phase, the payload and its CRC32C."""
    payload = CHECKPOINTS.encode(checkpoint)
    return _PHASES[type(checkpoint)], Raw(payload), crc32c(payload)


def open_checkpoint(phase: Phase, payload: Raw, checksum: int) -> Checkpoint:
    """Read what `seal_checkpoint` gave; InvalidEntry if bytes or phase do not match."""
    data = bytes(payload)
    if (computed := crc32c(data)) != checksum:
        raise InvalidEntry(f"checkpoint has CRC32C {computed:08x}, the entry says {checksum:08x}")
    checkpoint = CHECKPOINTS.decode(data)
    if (actual := _PHASES[type(checkpoint)]) is not phase:
        raise InvalidEntry(f"phase {phase.value}, but the checkpoint is one of {actual.value}")
    return checkpoint
