"""Elections: which partitions change when a broker goes or comes, planned from the image.

    changes = plan_fencing(image, broker)         # fenced, or it shuts down
    changes = plan_unfencing(image, broker)       # may lead from now on
    changes = plan_registration(image, broker, was_clean=...)
    changes = plan_unclean(image, allows_unclean)
    changes = plan_preferred(image)
    changes = plan_handover(image, slots)          # of a node that is to leave the cluster
    changes = plan_new(image, slots)               # created while brokers were fenced

A plan goes into the log with the entry that caused it (`ChangeBroker`, `RegisterBroker`), and is
made before that entry is applied: the broker in question counts as gone, or as back, already. Every
change names the partition epoch that it was made from. So only one plan at a time may be on its
way: of two plans from one image the later would be refused where they meet. Brokers that go
together are planned together. After a plan is applied the same call plans nothing, so whatever a
crashed controller left undone is found by planning the fencing of all fenced brokers again.

Two rules make every plan. A partition is led by the first of its preferred replicas that is in the
ISR and may lead; if there is none, by the first of the ELR that may (KIP-966), which is the ISR
then. Only if nobody of both may lead, and the topic allows it, is it led by any replica: records
are lost. A node that is to leave the cluster leads only what nobody else of the ISR may lead.

With a leader, the ISR has only brokers that may lead; without one it stays as it is: each of its
members has all that is committed, and any of them may lead when it comes back.

The cost is that of the broker's partitions. A plan is lazy: it may be taken in slices while other
entries are applied. A partition that stays as it is yields None, so that whoever takes the plan can
pause where there is much to look at and nothing to change.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from headrace.ids import BrokerId, TopicName
from headrace.metadata.ddl import ChangePartition
from headrace.metadata.image import Image, Slot
from headrace.metadata.state import NO_LEADER, Partition

MayLead: TypeAlias = Callable[[BrokerId], bool]
AllowsUnclean: TypeAlias = Callable[[TopicName], bool]
Changes: TypeAlias = Iterator[ChangePartition | None]
"""A plan: the changes of partitions, None for each that does not change."""


class Roles(NamedTuple):
    """The leader of a partition and its ISR."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]


def never(topic: TopicName) -> bool:
    """Allow no unclean leader."""
    return False


def plan_fencing(
    image: Image, *brokers: BrokerId, allows_unclean: AllowsUnclean = never
) -> Changes:
    """Plan the loss of brokers that are fenced together, or of one that shuts down.

    Others lead what they led, or nobody, and they leave every ISR in which somebody may lead.
    """
    gone = frozenset(brokers)

    def may_lead(broker: BrokerId) -> bool:
        return broker not in gone and is_active(image, broker)

    for slot in _partitions_of(image, brokers):
        yield None if slot is None else _settled(image, slot, may_lead, allows_unclean)


def plan_unfencing(
    image: Image, broker: BrokerId, allows_unclean: AllowsUnclean = never
) -> Changes:
    """Plan the return of a broker: what has no leader and may be led by it gets one."""

    def may_lead(other: BrokerId) -> bool:
        return other == broker or is_active(image, other)

    if image.broker(broker) is None:
        return
    for slot in image.partitions_of(broker):
        yield _settled(image, slot, may_lead, allows_unclean)


def plan_registration(
    image: Image, broker: BrokerId, *, was_clean: bool, allows_unclean: AllowsUnclean = never
) -> Changes:
    """Plan a broker's new life, which begins fenced; plan its unfencing when this is applied.

    `was_clean` only if its last life ended in a clean shutdown *and* was the one of the image:
    its clean-shutdown file names the broker epoch. Then all of its records are there, and it goes
    on leading what only it can lead.

    Otherwise it may have lost records that were committed. It leaves every ELR, and every ISR that
    has another member, even a fenced one, as only that one is sure to have them. If it was the
    whole ISR, the ELR is the ISR. What only it has it does not lead until it is unfenced, which
    begins a leader epoch: from that, clients that read what was lost learn of the loss.
    """

    def may_lead(other: BrokerId) -> bool:
        return other != broker and is_active(image, other)

    for slot in image.partitions_of(broker):
        row = _row(slot)
        if not was_clean:
            remaining = _without(row, broker)
            roles = _settle(image, slot.topic.name, remaining, may_lead, allows_unclean)
            is_candidate = broker in row.isr + row.elr
            yield _change(slot, roles, remaining.isr + remaining.elr if is_candidate else None)
            continue
        roles = _settle(image, slot.topic.name, row, may_lead, allows_unclean)
        goes_on = roles.leader == NO_LEADER and row.leader == broker
        yield None if goes_on else _change(slot, roles)


def plan_unclean(image: Image, allows_unclean: AllowsUnclean) -> Changes:
    """Plan leaders for partitions without one whose topics allow any replica to lead."""
    for slot in image.leaderless():
        yield _settled(image, slot, lambda broker: is_active(image, broker), allows_unclean)


def plan_preferred(image: Image, slots: Iterable[Slot] | None = None) -> Changes:
    """Plan that first replicas lead again which are in the ISR and up: of all, or of some."""
    for slot in image.not_preferred() if slots is None else slots:
        row = _row(slot)
        first = row.replicas[0]
        may_lead = is_active(image, first) and not image.is_leaving(first)
        if row.leader != first and first in row.isr and may_lead:
            isr = row.isr
            if row.leader == NO_LEADER:
                isr = tuple(each for each in isr if is_active(image, each))
            yield _change(slot, Roles(first, isr))
        else:
            yield None


def plan_handover(image: Image, slots: Iterable[Slot]) -> Changes:
    """Plan that others lead partitions whose leaders are to leave the cluster, where they may."""
    for slot in slots:
        if image.is_leaving(_row(slot).leader):
            yield _settled(image, slot, lambda broker: is_active(image, broker), never)
        else:
            yield None


def plan_new(image: Image, slots: Iterable[Slot], allows_unclean: AllowsUnclean = never) -> Changes:
    """Plan leaders for new partitions whose leader went while they were created."""
    for slot in slots:
        yield _settled(image, slot, lambda broker: is_active(image, broker), allows_unclean)


def elect(
    image: Image, topic: TopicName, partition: Partition, allows_unclean: AllowsUnclean = never
) -> Roles:
    """Return who is to lead a partition and its ISR then, by the rules of every plan."""
    return _settle(image, topic, partition, lambda each: is_active(image, each), allows_unclean)


def choose_leader(image: Image, partition: Partition, may_lead: MayLead) -> BrokerId:
    """Return who leads a partition: the present leader if it may, then the ISR, then the ELR.

    Those of the ISR that are to leave the cluster come behind its others. NO_LEADER if none of them
    may. There is no other choice that is sure to lose nothing.
    """
    able = [each for each in partition.replicas if each in partition.isr and may_lead(each)]
    staying = [each for each in able if not image.is_leaving(each)]
    for complete in (staying, able):
        if complete:
            return partition.leader if partition.leader in complete else complete[0]
    for broker in partition.replicas:
        if broker in partition.elr and may_lead(broker):
            return broker
    return NO_LEADER


def is_active(image: Image, broker: BrokerId) -> bool:
    """Return whether a broker is registered, not fenced and not shutting down."""
    row = image.broker(broker)
    return row is not None and not row.is_fenced and not row.is_shutting_down


def _settle(
    image: Image,
    topic: TopicName,
    partition: Partition,
    may_lead: MayLead,
    allows_unclean: AllowsUnclean,
) -> Roles:
    leader = choose_leader(image, partition, may_lead)
    if leader in partition.isr:
        return Roles(leader, tuple(broker for broker in partition.isr if may_lead(broker)))
    if leader == NO_LEADER and allows_unclean(topic):
        # Replicas that are just being added have the least.
        ordered = sorted(partition.replicas, key=partition.adding.__contains__)
        leader = next(filter(may_lead, ordered), NO_LEADER)
    return Roles(leader, partition.isr if leader == NO_LEADER else (leader,))


def _settled(
    image: Image, slot: Slot, may_lead: MayLead, allows_unclean: AllowsUnclean
) -> ChangePartition | None:
    return _change(slot, _settle(image, slot.topic.name, _row(slot), may_lead, allows_unclean))


def _without(row: Partition, broker: BrokerId) -> Partition:
    """Return a partition as if a broker that lost records had left its ISR and its ELR."""
    isr = tuple(each for each in row.isr if each != broker)
    elr = tuple(each for each in row.elr if each != broker)
    if not isr:
        isr, elr = elr, ()
    return replace(row, isr=isr or row.isr, elr=elr)


def _change(
    slot: Slot, roles: Roles, complete: tuple[BrokerId, ...] | None = None
) -> ChangePartition | None:
    """Return the change to a partition, if it is one. The same leader keeps its leader epoch.

    `complete` are those that have all records, if that is not the former ISR and ELR.
    """
    row, (leader, isr) = _row(slot), roles
    elr = None if complete is None else tuple(each for each in complete if each not in isr)
    if (leader, isr) == (row.leader, row.isr) and (elr is None or set(elr) == set(row.elr)):
        return None
    return ChangePartition(
        slot.topic.topic_id,
        slot.partition,
        expected_partition_epoch=row.partition_epoch,
        leader=None if leader == row.leader else leader,
        isr=None if isr == row.isr else isr,
        elr=elr,
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
