"""What must hold for a group whatever happens: who reads what, and how far it is committed."""

from collections.abc import Iterable


class Violation(AssertionError):
    """Something that must never be."""


class Checks:
    """Told of everything that consumers are granted, read and commit."""

    def __init__(self, ends: list[int]) -> None:
        self.ends = ends
        self.owners: dict[tuple[int, int], str] = {}
        """By generation, or epoch, and partition."""
        self.read_up_to: dict[int, int] = {}
        self.committed: dict[int, int] = {}
        """What somebody was told to be committed."""
        self.commits = self.refusals = 0

    def check_that(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(what)

    def on_owned(self, name: str, generation: int, partitions: Iterable[int]) -> None:
        """Take note of who has what in a generation, or at an epoch of its own."""
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), name)
            self.check_that(
                owner == name,
                f"partition {partition} belongs to {owner} and {name} in {generation}",
            )

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
