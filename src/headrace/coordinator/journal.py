"""The partition that a shard writes to."""

from typing import Any, Protocol

from headrace.log.log import Appended, Log


class Journal(Protocol):
    """A partition of an internal topic (`headrace.replication.partition.Partition`)."""

    log: Log
    produce_waiters: dict[Any, int | None]
    is_leader: bool

    @property
    def name(self) -> str: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def has_enough_replicas(self) -> bool:
        """Whether min.insync.replicas are in sync: else `append_own` refuses."""

    def append_own(self, batch: memoryview, *, transaction_version: int = 0) -> Appended: ...


class Leadership:
    """One epoch in which this node leads a partition."""

    __slots__ = ("_journal", "epoch")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.epoch = journal.leader_epoch

    def __call__(self) -> bool:
        """Return whether this node still leads, and in this epoch."""
        return self._journal.is_leader and self._journal.leader_epoch == self.epoch
