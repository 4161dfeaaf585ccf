"""What to read in which task, and how much in a micro-batch: arithmetic only."""

from collections.abc import Iterable, Mapping
from itertools import pairwise

import msgspec

from headrace.client.topics import TopicPartition
from headrace.spark.offsets import Offsets


class Range(msgspec.Struct, frozen=True):
    """Offsets of one partition, from `start` up to, not including, `stop`."""

    topic: str
    partition: int
    start: int
    stop: int
    topic_id: bytes = bytes(16)

    @property
    def size(self) -> int:
        return max(0, self.stop - self.start)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def split(
    ranges: Iterable[Range], partitions_min: int | None, records_max: int | None
) -> list[Range]:
    """Split ranges so that there are about `partitions_min`, none above `records_max`.

    As in the connector: a range is split in proportion to its share of all offsets, into at least
    one part, and its parts have equal sizes up to one offset. Empty ranges are dropped.
    """
    full = [each for each in ranges if each.size > 0]
    total = sum(each.size for each in full)
    wanted = partitions_min or 0
    parts: list[Range] = []
    for each in full:
        count = 1
        if wanted > len(full):
            count = max(1, round(wanted * each.size / total))
        if records_max is not None:
            count = max(count, -(-each.size // records_max))
        parts += _cut(each, min(count, each.size))
    return parts


def _cut(whole: Range, count: int) -> list[Range]:
    cuts = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [
        msgspec.structs.replace(whole, start=start, stop=stop) for start, stop in pairwise(cuts)
    ]


def bound_rows(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], rows_max: int
) -> Offsets:
    """Return an end that is `rows_max` offsets away, shared in proportion to the lags.

    Each partition with records advances by at least one offset, so that a small one next to a
    large one does not starve; only with more than `rows_max` partitions are there more offsets.
    """
    lags = {each: max(0, end - start.get(each, end)) for each, end in latest.items()}
    total = sum(lags.values())
    if total <= rows_max:
        return dict(latest)
    shares = {each: max(1, rows_max * lag // total) for each, lag in lags.items() if lag > 0}
    left = rows_max - sum(shares.values())
    for each, share in shares.items():
        # What rounding left over, so that full batches are full.
        extra = max(0, min(left, lags[each] - share))
        shares[each] = share + extra
        left -= extra
    return {each: start[each] + shares[each] if each in shares else latest[each] for each in latest}


def lag(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets in between."""
    return sum(max(0, end - start.get(each, end)) for each, end in latest.items())
