"""The product's metadata image as the state that the simulated log is of."""

from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.metadata.applier import Applier, Watchers
from headrace.metadata.ddl import (
    AddPartitions,
    Assignment,
    ChangePartition,
    CreateTopic,
    Ddl,
    DeleteTopic,
    RegisterBroker,
    SetConfigs,
    SetQuota,
    encode_ddl,
)
from headrace.metadata.entries import Batch, CatalogDdl, Entry, encode_entry
from headrace.metadata.quorum import _ImageMachine
from headrace.metadata.state import ResourceType
from tests.sim.raft_checks import Machine

if TYPE_CHECKING:
    from tests.sim.raft_node import Node

TOPICS = 12


class MetadataMachine(Machine):
    """What a node makes of the log, by the applier and the snapshots that it runs with."""

    def __init__(self, node: "Node") -> None:
        super().__init__(node)
        self._image = _ImageMachine(Watchers(), None)

    @property
    def applier(self) -> Applier:
        return self._image.applier

    def apply_data(self, index: int, data: bytes) -> None:
        self._image.apply(index, data)
        self.digest = self._make_digest()

    def restore_data(self, index: int, data: bytes) -> None:
        self._image.restore(index, data)
        # A snapshot does not tell which index had the last proposal: some take none.
        states = self._node.world.checks.states
        self.index = max(at for at in states if at <= index)
        self.digest = self._make_digest()

    def snapshot(self) -> bytes:
        return self._image.snapshot()

    def _make_digest(self) -> int:
        """Tell states apart, whatever indices without a proposal they cover."""
        state = self.applier.image.state
        return crc32(msgspec.msgpack.encode(msgspec.structs.replace(state, applied_index=0)))


def random_entry(random: Random, number: int) -> bytes:
    """Return a change that no other has the bytes of; many of them are refused."""
    topic = random.randrange(TOPICS)
    topic_id = TopicId(topic.to_bytes(16))
    kind = random.randrange(8)
    change: Ddl
    if kind == 0:
        change = RegisterBroker(random.randrange(3), number.to_bytes(16), (), is_fenced=False)
    elif kind <= 2:
        name = TopicName(f"topic-{topic}-{number}")
        change = CreateTopic(name, topic_id, (_assign(random), _assign(random)), {})
    elif kind == 3:
        change = DeleteTopic(topic_id, now_ms=number)
    elif kind == 4:
        change = AddPartitions(topic_id, random.randrange(2, 6), (_assign(random),) * 2)
    elif kind == 5:
        change = ChangePartition(
            topic_id, PartitionIndex(random.randrange(2)), leader=random.randrange(3)
        )
    elif kind == 6:
        values: dict[str, str | None] = {"retention.ms": str(number)}
        change = SetConfigs(ResourceType.TOPIC, f"topic-{topic}", values)
    else:
        change = SetQuota((("user", f"user-{topic}"),), "producer_byte_rate", float(number))
    marked = SetConfigs(ResourceType.BROKER, "", {"max.connections": str(number)})
    entries: list[Entry] = [CatalogDdl(encode_ddl(each)) for each in (change, marked)]
    return encode_entry(Batch(tuple(entries)))


def _assign(random: Random) -> Assignment:
    replicas = tuple(BrokerId(each) for each in random.sample(range(3), 2))
    return Assignment(replicas, replicas, replicas[0])
