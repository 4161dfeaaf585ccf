"""A cluster's log in a few words: entries in, an applier out."""

from collections.abc import Iterable

import pytest
from msgspec import Raw

from headrace.errors import ErrorCode
from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.metadata.applier import Applier, Outcome, Watchers
from headrace.metadata.ddl import Assignment, CreateTopic, Ddl, encode_ddl
from headrace.metadata.entries import (
    CatalogDdl,
    Entry,
    Join,
    MigrationCheckpoint,
    PromoteToVoter,
    TopologyChange,
    encode_entry,
)
from headrace.metadata.errors import Refused
from headrace.metadata.features import HEADRACE_VERSION, LEVEL
from headrace.metadata.image import Image
from headrace.metadata.phases import Checkpoint, seal_checkpoint
from headrace.metadata.snapshot import load_snapshot, take_snapshot
from headrace.metadata.state import Broker, Partition

ORDERS = TopicName("orders")
ORDERS_ID = TopicId(b"orders-topic--id")
NOW_MS = 1_700_000_000_000
MIGRATION = "11111111-2222-3333-4444-555555555555"


class Cluster:
    """An applier and the log that it has applied, each proposal one index further.

    Where no image is given, ten brokers are registered already.
    """

    def __init__(self, image: Image | None = None, watchers: Watchers | None = None) -> None:
        self.applier = Applier(image if image is not None else new_image(), watchers or Watchers())
        self.log: list[tuple[int, bytes]] = []

    @property
    def image(self) -> Image:
        return self.applier.image

    def propose(self, *entries: Entry | Ddl) -> Outcome:
        """Commit and apply entries one by one; Refused if the last one is."""
        for each in entries:
            index = self.image.applied_index + 1
            self.log.append((index, data_of(each)))
            assert self.applier.apply(self.log[-1:]) == index
        outcome = self.applier.outcome(self.image.applied_index)
        outcome.raise_if_refused()
        return outcome

    def refuses(self, entry: Entry | Ddl) -> Refused:
        """Check that an entry is refused and changes nothing, and say why."""
        before = Image(copy_of(self.image).state)
        with pytest.raises(Refused) as refusal:
            self.propose(entry)
        before.state.applied_index = self.image.applied_index
        before.state.catalog_entries_applied = self.image.state.catalog_entries_applied
        assert self.image == before
        return refusal.value

    def refuses_with(self, code: ErrorCode, entry: Entry | Ddl) -> None:
        assert self.refuses(entry).code is code

    def partition(self, index: int = 0, topic: TopicName = ORDERS) -> Partition:
        found = self.image.partition(topic, PartitionIndex(index))
        assert found is not None
        return found


def new_image() -> Image:
    """Return an image in which the brokers 0 to 9 are registered, so that they may have replicas.

    It is at the level of this release.
    """
    image = Image()
    image.state.features[HEADRACE_VERSION] = LEVEL
    for broker_id in range(10):
        image.put_broker(Broker(BrokerId(broker_id), 0, broker_id.to_bytes(16), ()))
    return image


def copy_of(image: Image) -> Image:
    return load_snapshot(take_snapshot(Applier(image)))


def data_of(entry: Entry | Ddl) -> bytes:
    return encode_entry(as_entry(entry))


def as_entry(entry: Entry | Ddl) -> Entry:
    return CatalogDdl(encode_ddl(entry)) if isinstance(entry, Ddl) else entry


def assign(
    *replicas: int, isr: Iterable[int] | None = None, leader: int | None = None
) -> Assignment:
    brokers = tuple(BrokerId(each) for each in replicas)
    in_sync = brokers if isr is None else tuple(BrokerId(each) for each in isr)
    return Assignment(brokers, in_sync, replicas[0] if leader is None else leader)


def create_orders(*assignments: Assignment) -> CreateTopic:
    return CreateTopic(ORDERS, ORDERS_ID, assignments or (assign(1, 2, 3),))


def with_orders(*assignments: Assignment) -> Cluster:
    cluster = Cluster()
    cluster.propose(create_orders(*assignments))
    return cluster


def with_nodes(*node_ids: int) -> Cluster:
    cluster = Cluster()
    for node_id in node_ids:
        cluster.propose(join(node_id), TopologyChange(PromoteToVoter(node_id)))
    return cluster


def join(node_id: int) -> TopologyChange:
    return TopologyChange(Join(node_id, f"10.0.0.{node_id}:9093"))


def checkpoint(
    step: Checkpoint, attempt: int = 0, migration_id: str = MIGRATION, ts_ms: int = NOW_MS
) -> MigrationCheckpoint:
    phase, payload, checksum = seal_checkpoint(step)
    return MigrationCheckpoint(migration_id, phase, attempt, Raw(bytes(payload)), checksum, ts_ms)
