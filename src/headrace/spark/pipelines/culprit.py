"""Which record makes a step fail: halving the offsets of the failed batch until one is left. Pure.

    found = find_culprit({("orders", 0): (100, 5000)}, fails=run_on)

`fails` runs the step on some offsets and says whether it fails there.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

Places: TypeAlias = dict[tuple[str, int], tuple[int, int]]
"""The first offset of each partition, and the one after its last."""

TRIES_MAX: Final = 60
"""How often a step is run again to find a record: enough for 2**40 records in 20 partitions."""


def find_culprit(
    batch: Mapping[tuple[str, int], tuple[int, int]], fails: Callable[[Places], bool]
) -> tuple[str, int, int] | None:
    """Return topic, partition and offset of the first record that fails alone.

    None if no part of the batch fails by itself: then the failure needs several records, is not
    repeatable, or is not about records.
    """
    places: Places = {each: ends for each, ends in batch.items() if ends[0] < ends[1]}
    is_seen = False
    """Whether these places were seen to fail; else they are what is left."""
    for _ in range(TRIES_MAX):
        total = sum(stop - start for start, stop in places.values())
        if total <= 1:
            break
        first, second = _halves(places, total // 2)
        is_seen = fails(first)
        places = first if is_seen else second
    if len(places) != 1:
        return None
    ((topic, partition), (offset, stop)) = next(iter(places.items()))
    if stop - offset != 1 or not (is_seen or fails(places)):
        return None
    return topic, partition, offset


def batch_of(start: Any, end: Any) -> Places:
    """Return the offsets of a batch from Spark's two offsets of a source of topics."""
    places: Places = {}
    before = start if isinstance(start, dict) else {}
    for topic, partitions in (end if isinstance(end, dict) else {}).items():
        if topic.startswith("#") or not isinstance(partitions, dict):
            continue
        for index, stop in partitions.items():
            first = before.get(topic, {}).get(index, 0)
            places[topic, int(index)] = first, stop
    return places


def _halves(places: Places, half: int) -> tuple[Places, Places]:
    """Return the first `half` offsets, and the rest."""
    first: Places = {}
    second: Places = {}
    left = half
    for each, (start, stop) in places.items():
        cut = min(start + left, stop)
        left -= cut - start
        if cut > start:
            first[each] = start, cut
        if stop > cut:
            second[each] = cut, stop
    return first, second
