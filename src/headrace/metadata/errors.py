"""Three ways in which an entry fails: before the log, as a refusal, or fatally.

`InvalidEntry` is raised where bytes are encoded or decoded. `Refused` is an outcome: the entry is
committed, every node refuses it alike, and nothing changed. `MetadataStopped` ends the node.
"""

from headrace.errors import ErrorCode, HeadraceError, KafkaError


class InvalidEntry(HeadraceError):
    """Bytes that are no entry, or a value that no entry may have."""


class InvalidSnapshot(HeadraceError):
    """Bytes that are no snapshot of an image."""


class Refused(KafkaError):
    """A committed entry that changes nothing, as the image does not allow it."""


class CompensationFailed(HeadraceError):
    """A step of an aborted migration that cannot be undone: the image cannot be trusted."""


class MetadataStopped(HeadraceError):
    """An entry that this node cannot apply: it must stop, or it would differ from the others.

    The way out is software that knows the entry, or a data directory restored from another node.
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(
            f"metadata entry {index} cannot be applied: {reason}. The node stops, as its metadata "
            "would differ from that of the other nodes: run the version of Headrace that wrote the "
            "entry, or replace this node's data directory"
        )
        self.index = index
        self.reason = reason


def refuse(code: ErrorCode, message: str) -> Refused:
    """Return the refusal to raise; its message says what, which value, and what to do."""
    return Refused(code, message)
