"""What Spark reports of running queries, summed up for people: rows, rates, what is left. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

OFFSET_KEYS_SKIPPED: Final = "#"
"""How keys of an offset begin that are no topics."""


class StepProgress(msgspec.Struct):
    """The progress of one query of a run."""

    step: str
    state: str = "waiting"
    """waiting, running, done, stopped or failed."""
    batch: int | None = None
    rows: int = 0
    rows_per_second: float = 0.0
    left: int | None = None
    """Records that its topics have and it has not read, where that is known."""
    problem: str | None = None
    counted: tuple[str, int] = ("", -1)
    """The run of Spark's, and its last batch that is counted: reports come in order, and again."""

    def take(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Count reports of Spark's, each once, however often it comes."""
        for report in reports:
            batch = int(report.get("batchId", -1))
            rows = int(report.get("numInputRows") or 0)
            self.left = left_of(report.get("sources") or ())
            if batch >= 0 and rows > 0:
                run, last = self.counted
                if batch > last or str(report.get("runId")) != run:
                    self.counted = str(report.get("runId")), batch
                    self.rows += rows
                self.batch = batch if self.batch is None else max(self.batch, batch)
                self.rows_per_second = float(report.get("processedRowsPerSecond") or 0.0)

    @property
    def share(self) -> float | None:
        """The part of what is known of that is done, between 0 and 1."""
        if self.state == "done":
            return 1.0
        if self.left is None:
            return None
        whole = self.rows + self.left
        return self.rows / whole if whole else 1.0

    def plain(self) -> dict[str, object]:
        """Return it as a status file has it."""
        return {
            "step": self.step,
            "state": self.state,
            "batch": self.batch,
            "rows": self.rows,
            "rows_per_second": round(self.rows_per_second, 1),
            "left": self.left,
            "problem": self.problem,
        }


def left_of(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Return how many records the topics of a report have behind its end; None if unknown."""
    total: int | None = None
    for source in sources:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if end and latest:
            behind = sum(max(latest[each] - end.get(each, latest[each]), 0) for each in latest)
            total = behind + (total or 0)
    return total


def _offsets(value: Any) -> dict[tuple[str, str], int]:
    """Return the offsets of a source of topics by topic and partition; nothing of any other."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.MsgspecError:
            return {}
    if not isinstance(value, dict):
        return {}
    found = {}
    for topic, partitions in value.items():
        if topic.startswith(OFFSET_KEYS_SKIPPED) or not isinstance(partitions, dict):
            continue
        for index, offset in partitions.items():
            if isinstance(offset, int):
                found[topic, str(index)] = offset
    return found
