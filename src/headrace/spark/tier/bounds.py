"""Where a read of the tier begins and ends in each partition."""

from collections.abc import Mapping

from headrace.client.cluster import Cluster
from headrace.client.offsets import list_offsets
from headrace.client.outcomes import values_of
from headrace.client.topics import TopicPartition
from headrace.remote.coverage import Coverage
from headrace.remote.searching import first_offset_at
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.undecided import stable_end
from headrace.spark import loss
from headrace.spark.lookup import check_covered
from headrace.spark.offsets import EARLIEST, LATEST, AtEnd, AtOffsets, Bound, Offsets, describe
from headrace.spark.options import InvalidOption
from headrace.spark.tier.options import TierOptions

Ends = dict[TopicPartition, tuple[int, int]]
"""The first offset of each partition, and the one after its last."""


def ends_of(partitions: Mapping[TopicPartition, Coverage]) -> Ends:
    """Return the ends of what the tier has."""
    return {
        each: (known.extents[0].start, known.extents[-1].stop) if known.extents else (0, 0)
        for each, known in partitions.items()
    }


async def stable_ends(
    objects: SegmentObjects, partitions: Mapping[TopicPartition, Coverage]
) -> Ends:
    """Return the ends of what is decided in the tier: see `remote.undecided`."""
    ends = ends_of(partitions)
    for each, known in partitions.items():
        if known.extents:
            start, stop = ends[each]
            stable = await stable_end(objects, known.extents[-1].segment)
            ends[each] = start, max(start, min(stop, stable))
    return ends


async def readable_ends(cluster: Cluster, ends: Ends, *, is_committed: bool) -> Ends:
    """Return the ends within what the brokers let clients read: log start and stable offset."""
    starts = values_of(await list_offsets(cluster, dict.fromkeys(ends, EARLIEST)))
    stops = values_of(
        await list_offsets(cluster, dict.fromkeys(ends, LATEST), is_committed=is_committed)
    )
    clipped: Ends = {}
    for each, (first, end) in ends.items():
        start = max(first, starts[each].offset)
        clipped[each] = start, max(start, min(end, stops[each].offset))
    return clipped


async def resolve(
    objects: SegmentObjects,
    partitions: Mapping[TopicPartition, Coverage],
    ends: Ends,
    options: TierOptions,
) -> Ends:
    """Return what the options ask for, within the ends; report what is not there."""
    starts = await _offsets(objects, partitions, ends, options.start, options, is_start=True)
    stops = await _offsets(objects, partitions, ends, options.end, options, is_start=False)
    fails = options.limits.fails_on_data_loss
    found: Ends = {}
    for each, (earliest, latest) in ends.items():
        start, stop = starts[each], stops[each]
        if isinstance(options.start, AtOffsets) and start < min(earliest, stop):
            loss.report(loss.expired(each, start, earliest), fails=fails)
        if max(start, stop) > latest:
            loss.report(not_copied(each, max(start, stop), latest), fails=fails)
        start = max(start, earliest)
        found[each] = start, max(start, min(stop, latest))
    return found


def not_copied(partition: TopicPartition, wanted: int, latest: int) -> str:
    """Offsets that the tier does not have yet, or never will."""
    return (
        f"not in the tier: {partition} can be read up to offset {latest} there, not to {wanted} "
        "(brokers copy segments when they are full, and the end of a transaction may come later; "
        'format("headrace") reads the rest, too)'
    )


def missing(partition: TopicPartition, first: int, last: int) -> str:
    """Offsets in the middle that no segment has."""
    return (
        f"missing: no segment of the tier has offsets {first} to {last} of {partition} "
        "(`headrace tier fsck` says more)"
    )


async def _offsets(
    objects: SegmentObjects,
    partitions: Mapping[TopicPartition, Coverage],
    ends: Ends,
    bound: Bound,
    options: TierOptions,
    *,
    is_start: bool,
) -> Offsets:
    name = "starting" if is_start else "ending"
    if isinstance(bound, AtEnd):
        return {each: ends[each][bound.end == LATEST] for each in partitions}
    if isinstance(bound, AtOffsets):
        check_covered(bound.offsets, list(partitions), f"{name}Offsets")
        known = {EARLIEST: 0, LATEST: 1}
        return {
            each: ends[each][known[offset]] if offset in known else offset
            for each, offset in bound.offsets.items()
        }
    times = dict(bound.times)
    if bound.everywhere is not None:
        times = dict.fromkeys(partitions, bound.everywhere)
    check_covered(times, list(partitions), f"{name}OffsetsByTimestamp")
    found: Offsets = {}
    late: list[TopicPartition] = []
    for each, timestamp_ms in times.items():
        offset = await first_offset_at(objects, partitions[each].extents, timestamp_ms)
        if offset is None:
            late.append(each)
        found[each] = ends[each][1] if offset is None else offset
    if late and is_start and not options.late_start_is_end:
        raise InvalidOption(
            f"no record of {describe(late)} in the tier is as late as the starting timestamp; set "
            "startingOffsetsByTimestampStrategy=latest to start at the end there"
        )
    return found
