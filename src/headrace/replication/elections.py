"""Elections: which partitions change when a broker goes or comes, planned from the image.

    changes = plan_fencing(image, broker)         # fenced, or it shuts down
    changes = plan_unfencing(image, broker)       # may lead from now on
    changes = plan_registration(image, broker, was_clean=...)

A plan goes into the log with the entry that caused it (`ChangeBroker`, `RegisterBroker`), and is
made before that entry is applied: the broker in question counts as gone, or as back, already. Every
change names the partition epoch that it was made from. So only one plan at a time may be on its
way: of two plans from one image the later would be refused where they meet. Brokers that go
together are planned together. After a plan is applied the same call plans nothing, so whatever a
crashed controller left undone is found by planning the fencing of all fenced brokers again.

Two rules make every plan. A partition is led by the first of its preferred replicas that is in the
ISR and may lead. With a leader, the ISR has only brokers that may lead; without one it stays as it
is: each of its members has all that is committed, and any of them may lead when it comes back.

The cost is that of the broker's partitions. A plan is lazy: it may be taken in slices while other
entries are applied. A partition that stays as it is yields None, so that whoever takes the plan can
pause where there is much to look at and nothing to change.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from headrace.ids import BrokerId
from headrace.metadata.ddl import ChangePartition
from headrace.metadata.image import Image, Slot
from headrace.metadata.state import NO_LEADER, Partition

MayLead: TypeAlias = Callable[[BrokerId], bool]
Changes: TypeAlias = Iterator[ChangePartition | None]
"""A plan: the changes of partitions, None for each that does not change."""


def plan_fencing(image: Image, *brokers: BrokerId) -> Changes:
    """Plan the loss of brokers that are fenced together, or of one that shuts down.

    Others lead what they led, or nobody, and they leave every ISR in which somebody may lead.
    """
    gone = frozenset(brokers)

    def may_lead(broker: BrokerId) -> bool:
        return broker not in gone and is_active(image, broker)

    for slot in _partitions_of(image, brokers):
        yield None if slot is None else _change(slot, *_settle(_row(slot), may_lead))


def plan_unfencing(image: Image, broker: BrokerId) -> Changes:
    """Plan the return of a broker: what has no leader and has it in its ISR gets one."""

    def may_lead(other: BrokerId) -> bool:
        return other == broker or is_active(image, other)

    if image.broker(broker) is None:
        return
    for slot in image.partitions_of(broker):
        yield _change(slot, *_settle(_row(slot), may_lead))


def plan_registration(image: Image, broker: BrokerId, *, was_clean: bool) -> Changes:
    """Plan a broker's new life, which begins fenced; plan its unfencing when this is applied.

    `was_clean` only if its last life ended in a clean shutdown *and* was the one of the image:
    its clean-shutdown file names the broker epoch. Then all of its records are there, and it goes
    on leading what only it can lead.

    Otherwise it may have lost records that were committed. It leaves every ISR that has another
    member, even a fenced one, as only that one is sure to have them. What only it has it does not
    lead until it is unfenced, which begins a leader epoch: from that, clients that read what was
    lost learn of the loss.
    """

    def may_lead(other: BrokerId) -> bool:
        return other != broker and is_active(image, other)

    for slot in image.partitions_of(broker):
        row = _row(slot)
        leader, isr = _settle(row, may_lead)
        if leader == NO_LEADER:
            if was_clean and row.leader == broker:
                yield None
                continue
            if not was_clean:
                isr = tuple(each for each in isr if each != broker) or isr
        yield _change(slot, leader, isr)


def choose_leader(partition: Partition, may_lead: MayLead) -> BrokerId:
    """Return who leads a partition: the present leader if it may, then the ISR by preference.

    NO_LEADER if none of them may. There is no other choice that is sure to lose nothing.
    """
    if partition.leader in partition.isr and may_lead(partition.leader):
        return partition.leader
    for broker in partition.replicas:
        if broker in partition.isr and may_lead(broker):
            return broker
    return NO_LEADER


def is_active(image: Image, broker: BrokerId) -> bool:
    """Return whether a broker is registered, not fenced and not shutting down."""
    row = image.broker(broker)
    return row is not None and not row.is_fenced and not row.is_shutting_down


def _settle(partition: Partition, may_lead: MayLead) -> tuple[BrokerId, tuple[BrokerId, ...]]:
    leader = choose_leader(partition, may_lead)
    if leader == NO_LEADER:
        return leader, partition.isr
    return leader, tuple(broker for broker in partition.isr if may_lead(broker))


def _change(slot: Slot, leader: BrokerId, isr: tuple[BrokerId, ...]) -> ChangePartition | None:
    """Return the change to a partition, if it is one. The same leader keeps its leader epoch."""
    row = _row(slot)
    if (leader, isr) == (row.leader, row.isr):
        return None
    return ChangePartition(
        slot.topic.topic_id,
        slot.partition,
        expected_partition_epoch=row.partition_epoch,
        leader=None if leader == row.leader else leader,
        isr=None if isr == row.isr else isr,
    )


def _partitions_of(image: Image, brokers: tuple[BrokerId, ...]) -> Iterator[Slot | None]:
    """Yield the partitions of brokers, each once; None for one that came before."""
    before: set[BrokerId] = set()
    for broker in brokers:
        for slot in image.partitions_of(broker):
            yield slot if before.isdisjoint(_row(slot).replicas) else None
        before.add(broker)


def _row(slot: Slot) -> Partition:
    return slot.topic.partitions[slot.partition]
