"""What a stream of a queue writes into Spark's offset log: the records of a batch. Pure.

An offset of such a stream is not a place in a log but a list: which offsets of which partitions the
batch has. So a batch can be read again exactly, without a lease, whatever died in between. Beside
the batch it has *debts*: records that an earlier batch made durable and that could not be
acknowledged then, as their lease was lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from headrace.client.share.session import SharedPartition
from headrace.errors import HeadraceError
from headrace.ids import parse_topic_id, topic_id_text
from headrace.spark.share.intervals import aligned, merged

_BATCH: Final = "batch"
_GROUP: Final = "group"
_RECORDS: Final = "records"
_DEBTS: Final = "debts"
_REJECTED: Final = "!"


class WrongCheckpoint(HeadraceError):
    """A checkpoint of a query that read something else."""


class Run(NamedTuple):
    """Offsets that follow each other, both ends included, and the how many-th delivery it is."""

    first: int
    last: int
    delivery_count: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class Debt(NamedTuple):
    """Offsets that are durable and not acknowledged, delivered so often when they were read."""

    first: int
    last: int
    delivery_count: int
    is_rejected: bool


Runs = dict[SharedPartition, list[Run]]
Debts = dict[SharedPartition, list[Debt]]


class ShareOffset(msgspec.Struct, frozen=True):
    """The records of one batch, and what is still owed to the group."""

    group: str
    batch: int = 0
    """Grows with every batch: Spark wants offsets that do not repeat."""
    runs: Runs = {}
    debts: Debts = {}

    def to_json(self) -> dict[str, Any]:
        """Return the text that Spark stores, in a fixed order, as Spark compares texts."""
        stored: dict[str, Any] = {_BATCH: self.batch, _GROUP: self.group}
        if self.runs:
            stored[_RECORDS] = _to_json(self.runs)
        if self.debts:
            stored[_DEBTS] = _to_json(self.debts)
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ShareOffset":
        """Read what `to_json` gave; WrongCheckpoint if it was something else."""
        try:
            return cls(
                str(stored[_GROUP]),
                int(stored[_BATCH]),
                _from_json(stored.get(_RECORDS, {}), _run),
                _from_json(stored.get(_DEBTS, {}), _debt),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise WrongCheckpoint(
                "the checkpoint belongs to another kind of query, not to a queue: use another "
                "checkpointLocation"
            ) from None


def joined(runs: Iterable[Run]) -> list[Run]:
    """Return runs by ascending offset, neighbours of the same delivery count as one."""
    found: list[Run] = []
    for run in sorted(runs):
        before = found[-1] if found else None
        if before and before[1] + 1 == run.first and before[2] == run.delivery_count:
            found[-1] = Run(before.first, run.last, run.delivery_count)
        else:
            found.append(run)
    return found


def newest(rounds: Sequence[Sequence[Run]]) -> list[Run]:
    """Return the runs of several fetches as one; what came again counts as it came last."""
    found = joined(run for runs in rounds for run in runs)
    if all(before.last < after.first for before, after in pairwise(found)):
        return found
    found = []
    for runs in rounds:
        older = [
            Run(first, last, run.delivery_count)
            for run, again, first, last in aligned(found, merged(runs))
            if again is None
        ]
        found = sorted([*older, *runs])
    return joined(found)


def size_of(runs: Mapping[SharedPartition, Iterable[Run]]) -> int:
    """Return how many offsets there are."""
    return sum(run.size for each in runs.values() for run in each)


def _to_json(runs: Mapping[SharedPartition, Iterable[Run | Debt]]) -> dict[str, dict[str, str]]:
    """Return texts like `0-499*1`, by topic (with its id: it may be re-created) and index."""
    topics: dict[str, dict[str, str]] = {}
    for shared, each in sorted(runs.items()):
        name = f"{shared.topic}/{topic_id_text(shared.topic_id)}"
        topics.setdefault(name, {})[str(shared.partition_index)] = " ".join(map(_text, each))
    return topics


def _from_json(stored: Mapping[str, Any], parse: Any) -> dict[SharedPartition, list[Any]]:
    found: dict[SharedPartition, list[Any]] = {}
    for name, partitions in stored.items():
        topic, _, topic_id = name.partition("/")
        for index, text in partitions.items():
            shared = SharedPartition(parse_topic_id(topic_id), topic, int(index))
            found[shared] = [parse(word) for word in text.split()]
    return found


def _text(run: Run | Debt) -> str:
    mark = _REJECTED if isinstance(run, Debt) and run.is_rejected else ""
    return f"{run.first}-{run.last}*{run.delivery_count}{mark}"


def _run(text: str) -> Run:
    offsets, _, count = text.partition("*")
    first, _, last = offsets.partition("-")
    return Run(int(first), int(last), int(count))


def _debt(text: str) -> Debt:
    return Debt(*_run(text.rstrip(_REJECTED)), text.endswith(_REJECTED))
