"""Plans for large clusters, and what the controller of a very large one costs.

`python -m bench.balance --only plans` measures a part:

plans       planning for 100,000 partitions on 50 nodes: a node leaves, five nodes are new
controller  memory of the metadata image, and the time in which a controller deals with a failed
            node, for 100 nodes and more and more partitions, with the figures for 1,000,000

Times are CPU seconds of one process, so that other work on the machine counts as little as can be.
"""

import argparse
import random
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final, TypeVar

from bench.measure import parts_of
from headrace.cluster.balancing.draining import plan_drain
from headrace.cluster.balancing.spreading import plan_balance
from headrace.cluster.balancing.terms import NodeRow, PartitionRow, Plan
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.applier import Applier
from headrace.metadata.ddl import (
    Assignment,
    ChangeBroker,
    CreateTopic,
    Ddl,
    RegisterBroker,
    encode_ddl,
)
from headrace.metadata.entries import Batch, CatalogDdl, encode_entry
from headrace.metadata.image import Image
from headrace.replication.elections import plan_fencing

PARTS: Final = ("plans", "controller")
NODES: Final = 50
PARTITIONS: Final = 100_000
NEW_NODES: Final = 5
REPLICAS: Final = 3
LARGE_NODES: Final = 100
LARGE_PARTITIONS: Final = (62_500, 125_000, 250_000)
TARGET_PARTITIONS: Final = 1_000_000
TOPIC_PARTITIONS: Final = 100
ENTRY_CHANGES_MAX: Final = 200

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=parts_of(PARTS), default=list(PARTS))
    parts = parser.parse_args().only
    if "plans" in parts:
        measure_plans()
    if "controller" in parts:
        measure_controller()


# Plans


def measure_plans() -> None:
    nodes = [
        NodeRow(each, f"rack {each % 5}", f"host {each}", "", 10**13, 9 * 10**12)
        for each in range(NODES)
    ]
    for partitions in (PARTITIONS // 4, PARTITIONS // 2, PARTITIONS):
        even, uneven = _rows(partitions, NODES), _rows(partitions, NODES - NEW_NODES)
        _say_plan(f"{partitions:,}: a node leaves", partial(plan_drain, nodes, even, {0}))
        _say_plan(
            f"{partitions:,}: {NEW_NODES} nodes are new", partial(plan_balance, nodes, uneven)
        )


def _rows(count: int, on: int) -> list[PartitionRow]:
    """Return partitions on the first nodes, few of them large and busy, replicas in three racks."""
    chosen = random.Random(1)
    rows = []
    for index in range(count):
        first = chosen.randrange(on)
        replicas = tuple((first + each + 5 * chosen.randrange(on // 5)) % on for each in range(3))
        if len(set(replicas)) < REPLICAS:
            replicas = tuple((first + each) % on for each in range(3))
        size, rate = chosen.paretovariate(1.5) * 1e6, chosen.paretovariate(1.5) * 1e3
        topic, partition = divmod(index, TOPIC_PARTITIONS)
        rows.append(PartitionRow(f"topic-{topic}", partition, replicas, int(size), rate))
    return rows


def _say_plan(name: str, plan: Callable[[], Plan]) -> None:
    seconds, made = _timed(plan)
    print(f"{name}: {seconds:.2f} s, {len(made.moves):,} partitions, {made.copies:,} copies")


# The controller of a very large cluster


def measure_controller() -> None:
    figures = []
    for partitions in LARGE_PARTITIONS:
        # A process of its own: memory that was used before would be used again, and not be seen.
        with get_context("spawn").Pool(1) as pool:
            memory, seconds, changed = pool.apply(_measure_size, (partitions,))
        figures.append((memory / partitions, seconds / changed))
        print(
            f"{LARGE_NODES} nodes, {partitions:,} partitions: {memory / 1e6:,.0f} MB, a failed "
            f"node changes {changed:,} partitions in {seconds:.2f} s"
        )
    per_partition, per_change = figures[-1]
    failed = TARGET_PARTITIONS * REPLICAS // LARGE_NODES
    print(
        f"at {TARGET_PARTITIONS:,} partitions, if it goes on like that: "
        f"{per_partition * TARGET_PARTITIONS / 1e9:.1f} GB, {per_change * failed:.1f} s for a "
        f"failed node with {failed:,} replicas; per partition "
        f"{', '.join(f'{memory:,.0f}' for memory, _ in figures)} bytes, per change "
        f"{', '.join(f'{seconds * 1e6:.0f}' for _, seconds in figures)} us"
    )


def _measure_size(partitions: int) -> tuple[int, float, int]:
    """Return the memory of an image, and in how many seconds how much of it changes."""
    before = _memory_bytes()
    applier = _large(partitions)
    memory = _memory_bytes() - before
    return memory, *_timed(partial(_fail, applier, BrokerId(7)))


def _large(partitions: int) -> Applier:
    applier = Applier(Image())
    for node in range(LARGE_NODES):
        _apply(applier, [RegisterBroker(BrokerId(node), node.to_bytes(16), (), is_fenced=False)])
    chosen = random.Random(1)
    for topic in range(partitions // TOPIC_PARTITIONS):
        assigned = []
        for _ in range(TOPIC_PARTITIONS):
            replicas = tuple(map(BrokerId, chosen.sample(range(LARGE_NODES), REPLICAS)))
            assigned.append(Assignment(replicas, replicas, replicas[0]))
        name, topic_id = TopicName(f"topic-{topic}"), TopicId((topic + 1).to_bytes(16))
        _apply(applier, [CreateTopic(name, topic_id, tuple(assigned), {})])
    return applier


def _fail(applier: Applier, node: BrokerId) -> int:
    """Plan and apply what a controller does when a node fails; return how much changed."""
    broker = applier.image.broker(node)
    assert broker is not None
    changes: list[Ddl] = [ChangeBroker(node, broker.broker_epoch, is_fenced=True)]
    changed = 0
    for change in plan_fencing(applier.image, node):
        if change is not None:
            changes.append(change)
            changed += 1
        if len(changes) >= ENTRY_CHANGES_MAX:
            _apply(applier, changes)
            changes = []
    _apply(applier, changes)
    return changed


def _apply(applier: Applier, changes: list[Ddl]) -> None:
    entries = tuple(CatalogDdl(encode_ddl(change)) for change in changes)
    applier.apply([(applier.image.applied_index + 1, encode_entry(Batch(entries)))])


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.process_time()
    made = work()
    return time.process_time() - began, made


def _memory_bytes() -> int:
    """Return the memory of this process now, or the most so far where that is not known."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    main()
