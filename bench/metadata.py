"""The metadata image at 100,000 partitions: what a look-up costs, and what building it takes."""

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import Figure, report, seconds_side_by_side
from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.metadata.applier import Applier
from headrace.metadata.ddl import (
    Assignment,
    ChangePartition,
    CreateTopic,
    Ddl,
    RegisterBroker,
    encode_ddl,
)
from headrace.metadata.entries import Batch, CatalogDdl, encode_entry
from headrace.metadata.image import Image
from headrace.metadata.snapshot import load_snapshot, take_snapshot

TOPICS = 1000
PARTITIONS_EACH = 100
BROKERS = 12
BATCH_ENTRIES = 100
LOOK_UPS = 1000


def main() -> None:
    applier, rates = build()
    report([look_up_topic(applier.image)])
    print_rates(applier, rates)


def look_up_topic(image: Image) -> Figure:
    """Look topics up by name, another one each time; the loop around it is counted in."""
    names = [TopicName(f"topic-{number * 7 % TOPICS}") for number in range(LOOK_UPS)]

    def run() -> None:
        for name in names:
            image.topic(name)

    micros = seconds_side_by_side(run)[0] / LOOK_UPS * 1e6
    detail = f"{micros:.3f} us of 1 us, {TOPICS * PARTITIONS_EACH} partitions"
    return Figure("metadata.topic_look_up", micros, 1, True, detail)


def build() -> tuple[Applier, list[str]]:
    """Apply the entries that make the image, one topic each, then new leaders in batches."""
    creations = [data_of([create(number)]) for number in range(TOPICS)]
    partitions = TOPICS * PARTITIONS_EACH
    gc.collect()
    before = resident_bytes()
    applier = Applier(Image())
    brokers = [RegisterBroker(number, number.to_bytes(16), ()) for number in range(BROKERS)]
    applier.apply([(1, data_of(brokers))])
    created = seconds(lambda: applier.apply(enumerate(creations, 2)))
    gc.collect()
    kept = resident_bytes() - before
    changes = [change(number) for number in range(20_000)]
    index = TOPICS + 1
    single = [(index := index + 1, data_of([each])) for each in changes[:10_000]]
    batched = [
        (index := index + 1, data_of(changes[first : first + BATCH_ENTRIES]))
        for first in range(10_000, 20_000, BATCH_ENTRIES)
    ]
    singly = seconds(lambda: applier.apply(single))
    in_batches = seconds(lambda: applier.apply(batched))
    return applier, [
        f"creating partitions         {partitions / created / 1e3:7.0f} k/s",
        f"new leaders, one by one     {len(single) / singly / 1e3:7.0f} k/s",
        f"new leaders, batches of {BATCH_ENTRIES} {10_000 / in_batches / 1e3:7.0f} k/s",
        f"memory                      {kept / 2**20:7.1f} MB, {kept / partitions:.0f} B each",
    ]


def print_rates(applier: Applier, rates: list[str]) -> None:
    """What no issue bounds, for those who plan with it."""
    image = applier.image
    name, index = TopicName("topic-500"), PartitionIndex(50)
    topic = image.topic(name)
    assert topic is not None
    by_id, partition, group = seconds_side_by_side(
        lambda: image.topic_by_id(topic.topic_id),
        lambda: image.partition(name, index),
        lambda: image.group(50_051),
    )
    snapshot = take_snapshot(applier)
    taken, loaded = (
        min(seconds(work) for _ in range(3))
        for work in (lambda: take_snapshot(applier), lambda: load_snapshot(snapshot))
    )
    assert load_snapshot(snapshot) == image
    for line in (
        *rates,
        f"snapshot                    {taken * 1e3:7.0f} ms, {len(snapshot) / 2**20:.1f} MB",
        f"load                        {loaded * 1e3:7.0f} ms",
        f"look-up by id               {by_id * 1e9:7.0f} ns",
        f"look-up of a partition      {partition * 1e9:7.0f} ns",
        f"look-up of a group          {group * 1e9:7.0f} ns",
    ):
        print(f"  {line}", flush=True)


def create(number: int) -> CreateTopic:
    return CreateTopic(
        TopicName(f"topic-{number}"),
        topic_id(number),
        tuple(assign(number + index) for index in range(PARTITIONS_EACH)),
    )


def assign(number: int) -> Assignment:
    replicas = tuple(BrokerId((number + place) % BROKERS) for place in range(3))
    return Assignment(replicas, replicas, replicas[0])


def change(number: int) -> ChangePartition:
    topic, partition = number % TOPICS, number // TOPICS
    return ChangePartition(
        topic_id(topic), PartitionIndex(partition), leader=(topic + partition + 1) % BROKERS
    )


def topic_id(number: int) -> TopicId:
    return TopicId(number.to_bytes(16, "big"))


def data_of(ddls: list[Any]) -> bytes:
    entries = tuple(wrap(each) for each in ddls)
    return encode_entry(entries[0] if len(entries) == 1 else Batch(entries))


def wrap(ddl: Ddl) -> CatalogDdl:
    return CatalogDdl(encode_ddl(ddl))


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
