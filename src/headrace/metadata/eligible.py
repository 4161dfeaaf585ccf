"""Eligible leader replicas (KIP-966): who else has everything that is committed.

The high watermark does not move while the ISR is smaller than min.insync.replicas. So a replica
that leaves such an ISR misses nothing as long as the ISR stays too small: it is in the ELR, and may
lead when nobody of the ISR can. As soon as the ISR is large enough the ELR is empty.

Kafka's ISR may become empty, and its last known leader is all that is left then. Here an ISR never
is: without a leader the last members stay in it. `last_known_elr` names the last leader meanwhile.

Every node must come to the same ELR. So min.insync.replicas is the one of the image: the topic's,
else the cluster-wide dynamic one, else 1. What a broker has in its file does not count here.
"""

from typing import Final

from msgspec.structs import replace

from headrace.ids import BrokerId, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER, Partition, ResourceType

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
ALL_BROKERS: Final = ""
"""The name of the broker whose configs are every broker's default."""


def with_eligible(
    former: Partition,
    changed: Partition,
    min_insync_replicas: int,
    candidates: tuple[BrokerId, ...] | None = None,
) -> Partition:
    """Return a changed partition with the ELR and the last known leader that follow.

    `candidates` are all that may be in the ELR: fewer than the former ISR and ELR if some of those
    lost records. An unclean leader leaves nobody eligible.
    """
    last_known = _last_known(former, changed)
    isr, former_complete = changed.isr, former.isr + former.elr
    is_unclean = changed.leader not in (former.leader, NO_LEADER, *former_complete)
    if is_unclean or len(isr) >= min(min_insync_replicas, len(changed.replicas)):
        return replace(changed, elr=(), last_known_elr=last_known)
    complete = former_complete if candidates is None else candidates
    elr = tuple(each for each in changed.replicas if each in complete and each not in isr)
    return replace(changed, elr=elr, last_known_elr=last_known)


def min_insync_replicas_of(image: Image, topic: TopicName) -> int:
    """Return the min.insync.replicas that all nodes agree on."""
    text = image.configs(ResourceType.TOPIC, topic).get(MIN_INSYNC_REPLICAS)
    if text is None:
        text = image.configs(ResourceType.BROKER, ALL_BROKERS).get(MIN_INSYNC_REPLICAS, "1")
    try:
        return int(text)
    except ValueError:
        # Proposers check values. Whatever got past them is the same text on every node.
        return 1


def _last_known(former: Partition, changed: Partition) -> tuple[BrokerId, ...]:
    if changed.leader != NO_LEADER:
        return ()
    if former.leader != NO_LEADER:
        return (former.leader,) if former.leader in changed.replicas else ()
    return tuple(each for each in former.last_known_elr if each in changed.replicas)
