"""What must hold for a group whatever happens: who reads what, and how far it is committed."""

from collections.abc import Iterable


class Violation(AssertionError):
    """Something that must never be."""


class Checks:
    """Told of everything that consumers are granted, read and commit."""

    def __init__(self, ends: list[int]) -> None:
        self.ends = ends
        self.owners: dict[tuple[tuple[int, int], int], str] = {}
        """By era and generation, or epoch, and by partition."""
        self.processes: dict[str, int] = {}
        """The latest of each static member that is known to be in the group."""
        self.read_up_to: dict[int, int] = {}
        self.committed: dict[int, int] = {}
        """What somebody was told to be committed."""
        self.commits = self.refusals = self.fenced = self.migrations = 0
        """What was committed and refused, who was replaced, how often the kind changed."""

    def check_that(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(what)

    def on_owned(self, name: str, generation: tuple[int, int], partitions: Iterable[int]) -> None:
        """Take note of who has what in a generation, or at an epoch of its own.

        A group that was empty may begin to count anew: that is another era.
        """
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), name)
            self.check_that(
                owner == name,
                f"partition {partition} belongs to {owner} and {name} in {generation[1]}",
            )

    def on_entered(self, instance_id: str, number: int) -> None:
        """Take note of a process of a static member; its number grows with each."""
        self.processes[instance_id] = max(self.processes.get(instance_id, 0), number)

    def check_is_latest(self, instance_id: str, number: int) -> None:
        """A process whose place was taken may not commit any more."""
        self.check_that(
            number >= self.processes.get(instance_id, 0),
            f"process {number} of {instance_id} commits, and {self.processes} have its place",
        )

    def on_copied(self, name: str, running: set[int], copied: set[int]) -> None:
        """Take note of what an application runs, and what it keeps a copy of to take over."""
        both = sorted(running & copied)
        self.check_that(not both, f"{name} keeps copies of {both}, which it runs itself")

    def on_read(self, partition: int, begin: int, end: int) -> None:
        read = self.read_up_to.get(partition, 0)
        self.check_that(begin <= read, f"{read} to {begin} of partition {partition} is skipped")
        self.read_up_to[partition] = max(read, end)

    def on_committed(self, partition: int, offset: int) -> None:
        """Take note of a commit as the coordinator answers it."""
        self.commits += 1
        self._grow(partition, offset, "committed")

    def on_fetched(self, partition: int, offset: int) -> None:
        """Take note of an offset that somebody begins from, as the coordinator answers it."""
        self._grow(partition, offset, "fetched")

    def _grow(self, partition: int, offset: int, what: str) -> None:
        before = self.committed.get(partition, 0)
        self.check_that(
            offset >= before, f"{offset} is {what} for partition {partition} after {before}"
        )
        self.committed[partition] = offset

    def is_everything_committed(self) -> bool:
        return all(self.committed.get(i, 0) == end for i, end in enumerate(self.ends))

    def missing(self) -> str:
        left = {
            i: (self.committed.get(i, 0), end)
            for i, end in enumerate(self.ends)
            if self.committed.get(i, 0) != end
        }
        return f"not everything is read though it is calm; committed and there: {left}"
