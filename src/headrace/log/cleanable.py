"""Which part of a log compaction may work on now, and which of many logs needs it most.

Pure: facts about segments and the time go in, a plan comes out. `compaction` asks the log for the
facts and carries out the plan.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from headrace.log.settings import LogSettings

Name = TypeVar("Name")

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
"""What an index can say: offsets of a segment are relative to its base."""


class SegmentFacts(NamedTuple):
    """What planning asks of a segment."""

    base_offset: int
    size_bytes: int
    index_bytes: int
    first_timestamp: int
    """The timestamp of its first batch; NO_TIMESTAMP if there is none or no lag is set."""
    largest_timestamp: int
    """The same holds here."""


class Cleanable(NamedTuple):
    """The part of a log that is dirty and may be compacted, and whether that is due."""

    first_dirty_offset: int
    end_offset: int
    """Where the dirty part ends that may be compacted now; the first dirty offset if none may."""
    clean_bytes: int
    dirty_bytes: int
    is_forced: bool
    """Whether a record has waited for longer than max.compaction.lag.ms."""
    dirty_ratio_min: float

    @property
    def dirty_ratio(self) -> float:
        """The share of dirty bytes among those that a compaction would read."""
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        return self.dirty_bytes > 0 and (self.is_forced or self.dirty_ratio > self.dirty_ratio_min)


def plan(
    segments: Sequence[SegmentFacts],
    settings: LogSettings,
    *,
    start_offset: int,
    checkpoint: int,
    stable_offset: int,
    now_ms: int,
) -> Cleanable:
    """Return what may be compacted of a log with these segments, the active one last.

    Never the active segment, nothing from the last stable offset on, and with
    min.compaction.lag.ms nothing from the first segment on that has a younger record. A
    checkpoint outside the log is ignored: the whole log is dirty then.
    """
    active = segments[-1].base_offset
    first_dirty = checkpoint if start_offset <= checkpoint <= active else start_offset
    end_offset = min(active, stable_offset)
    clean_bytes = dirty_bytes = 0
    first_timestamps = []
    for segment, following in pairwise(segments):
        if following.base_offset <= first_dirty:
            clean_bytes += segment.size_bytes
            continue
        if (
            settings.min_compaction_lag_ms > 0
            and segment.largest_timestamp > now_ms - settings.min_compaction_lag_ms
        ):
            end_offset = min(end_offset, segment.base_offset)
        if segment.base_offset >= end_offset:
            break
        dirty_bytes += segment.size_bytes
        if segment.first_timestamp > 0:
            first_timestamps.append(segment.first_timestamp)
    lag_ms = max(settings.max_compaction_lag_ms, settings.min_compaction_lag_ms)
    return Cleanable(
        first_dirty,
        max(end_offset, first_dirty),
        clean_bytes,
        dirty_bytes if end_offset > first_dirty else 0,
        bool(first_timestamps) and min(first_timestamps) < now_ms - lag_ms,
        settings.min_cleanable_dirty_ratio,
    )


def choose(plans: Mapping[Name, Cleanable]) -> Name | None:
    """Name the dirtiest log of those that are due, or None."""
    due = {name: cleanable.dirty_ratio for name, cleanable in plans.items() if cleanable.is_due}
    return max(due, key=lambda name: due[name], default=None)


SEGMENTS_MAX: Final = 32
"""How many segments one swap replaces at most: their renames are done at once, on the loop."""


def group(
    segments: Iterable[SegmentFacts], settings: LogSettings, end_offset: int
) -> list[list[SegmentFacts]]:
    """Part segments into runs, each of which makes one new segment.

    None grows beyond segment.bytes, an index beyond segment.index.bytes, or offsets beyond what
    an index can say. `end_offset` is where the last one ends.
    """
    groups: list[list[SegmentFacts]] = []
    every = list(segments)
    ends = [*(segment.base_offset for segment in every[1:]), end_offset]
    for segment, end in zip(every, ends, strict=True):
        run = groups[-1] if groups else []
        if (
            run
            and len(run) < SEGMENTS_MAX
            and sum(part.size_bytes for part in run) + segment.size_bytes <= settings.segment_bytes
            and sum(part.index_bytes for part in run) + segment.index_bytes
            <= settings.segment_index_bytes
            and end - 1 - run[0].base_offset <= RELATIVE_OFFSET_MAX
        ):
            run.append(segment)
        else:
            groups.append([segment])
    return groups
