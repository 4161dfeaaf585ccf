"""How the node-to-node protocol names nodes and partitions.

A node is named by text. Our nodes have numbers, and their text is that number in decimal: `0`
to `2147483647`, with no sign, blank or leading zero, so that a node has one name.
"""

from typing import Annotated, Final, TypeAlias

from headrace.cluster.protocol.postcard import Form, Integer
from headrace.config import INT32_MAX
from headrace.ids import BrokerId, PartitionIndex, TopicName

NodeId: TypeAlias = str

_DIGITS_MAX: Final = len(str(INT32_MAX))


class PartitionName(Form, frozen=True):
    """A partition; seed 002 calls it PartitionId. The index may be above any that Kafka has."""

    topic: TopicName
    partition: Annotated[PartitionIndex, Integer(32)]


def node_id_of(broker_id: BrokerId) -> NodeId:
    """Return the text that names a broker."""
    return str(broker_id)


def numbered_broker(node_id: NodeId) -> BrokerId | None:
    """Return the broker whose number the text is, or None: peers of other makers use any text."""
    if not (node_id.isascii() and node_id.isdigit() and len(node_id) <= _DIGITS_MAX):
        return None
    number = int(node_id)
    return BrokerId(number) if number <= INT32_MAX and str(number) == node_id else None
