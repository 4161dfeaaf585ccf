"""The target offsets of a reset, bounded by the partitions' offsets."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Self

import msgspec

from headrace.cli.consume import parse_time
from headrace.cli.running import usage_error
from headrace.cli.whole_numbers import whole_number
from headrace.client.admin import Admin
from headrace.client.groups import CommittedOffset
from headrace.client.offsets import Start
from headrace.client.outcomes import values_of
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError


class Place(Enum):
    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"


class Target(msgspec.Struct, frozen=True):
    """The target; `number` is an offset, a time in ms or a distance."""

    place: Place
    number: int = 0

    @classmethod
    def chosen(
        cls,
        *,
        to_beginning: bool,
        to_end: bool,
        to_offset: int | None,
        to_time: str | None,
        shift: int | None,
    ) -> Self:
        """Return the target of a command's options; usage error unless there is exactly one."""
        found = [
            *([cls(Place.BEGINNING)] if to_beginning else []),
            *([cls(Place.END)] if to_end else []),
            *([] if to_offset is None else [cls(Place.OFFSET, to_offset)]),
            *([] if to_time is None else [cls(Place.TIME, parse_time(to_time))]),
            *([] if shift is None else [cls(Place.SHIFT, shift)]),
        ]
        if len(found) != 1:
            usage_error(
                "say where to: one of --to-beginning, --to-end, --to-offset, --to-time, --shift"
            )
        return found[0]


class Move(msgspec.Struct, frozen=True):
    """One partition's offset, before and after; None before if nothing was committed."""

    partition: TopicPartition
    old_offset: int | None
    new_offset: int

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "from": self.old_offset,
            "to": self.new_offset,
        }


def parse_wanted(words: Iterable[str]) -> dict[str, list[int]]:
    """Parse `topic` and `topic:0,2`; no indexes mean all partitions."""
    wanted: dict[str, list[int]] = {}
    for word in words:
        name, _, indexes = word.partition(":")
        parts = [whole_number(part) for part in indexes.split(",")] if indexes else []
        if not name or None in parts:
            usage_error(f"--topic {word}: write it as TOPIC or TOPIC:0,2")
        wanted[name] = [part for part in parts if part is not None]
    return wanted


async def plan_reset(
    admin: Admin,
    committed: Mapping[TopicPartition, CommittedOffset],
    wanted: Mapping[str, list[int]],
    target: Target,
) -> list[Move]:
    """Return the moves: of the wanted topics, or of all with committed offsets."""
    if wanted:
        partitions = []
        for name, indexes in wanted.items():
            topic = await admin.describe_topic(name)
            chosen = indexes or range(len(topic.partitions))
            partitions += [TopicPartition(name, index) for index in chosen]
    else:
        partitions = list(committed)
    begins = values_of(await admin.list_offsets(dict.fromkeys(partitions, Start.BEGINNING)))
    ends = values_of(await admin.list_offsets(dict.fromkeys(partitions, Start.END)))
    by_time = {}
    if target.place is Place.TIME:
        by_time = values_of(await admin.list_offsets(dict.fromkeys(partitions, target.number)))
    moves = []
    for partition in partitions:
        at = committed.get(partition)
        begin, end = begins[partition].offset, ends[partition].offset
        match target.place:
            case Place.BEGINNING:
                aim = begin
            case Place.END:
                aim = end
            case Place.OFFSET:
                aim = target.number
            case Place.TIME:
                found = by_time[partition].offset
                aim = found if found >= 0 else end
            case Place.SHIFT:
                if at is None:
                    raise KafkaError(
                        ErrorCode.OFFSET_OUT_OF_RANGE,
                        f"--shift: nothing is committed for {partition} to count from",
                    )
                aim = at.offset + target.number
        old = None if at is None else at.offset
        moves.append(Move(partition, old, min(max(aim, begin), end)))
    return sorted(moves, key=lambda move: move.partition)
