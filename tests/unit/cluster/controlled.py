"""A controller on a quorum of one node, with brokers and topics that tests put into its log."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, cast

from headrace.cluster import words
from headrace.cluster.address_book import AddressBook
from headrace.cluster.controller import Controller
from headrace.cluster.partition_care import CareSettings
from headrace.cluster.registrar import Admission
from headrace.cluster.transport.links import Links
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, PartitionIndex, TopicName
from headrace.metadata.applier import Outcome, Watchers
from headrace.metadata.ddl import (
    Assignment,
    ChangePartition,
    CreateTopic,
    Ddl,
    RaiseLevel,
    RegisterBroker,
    SetConfigs,
)
from headrace.metadata.entries import Entry
from headrace.metadata.features import LEVEL
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import Partition, ResourceType
from headrace.testing.disk import SimulatedDisk
from tests.unit.metadata.clusters import ORDERS, ORDERS_ID

OWN = BrokerId(1)


class Handlers:
    """The calls that a controller serves, in place of the links."""

    def __init__(self) -> None:
        self.of: dict[int, Any] = {}

    def serve(self, kind: int, handler: Any, *, for_unregistered: bool = False) -> None:
        self.of[kind] = handler


class Controlled:
    """The quorum, and its controller once it is started."""

    def __init__(self, care: CareSettings) -> None:
        self.quorum = MetadataQuorum(
            OWN, SimulatedDisk(seed=1), watchers=Watchers(outcomes=self._on_outcome)
        )
        self.controller = Controller(
            self.quorum,
            cast(Links, Handlers()),
            AddressBook(SimulatedDisk(seed=2)),
            session_timeout_ms=9000,
            heartbeat_interval_ms=2000,
            voters_max=lambda: 3,
            admission=Admission(lambda: 0),
            care=care,
        )

    def _on_outcome(self, outcome: Outcome) -> None:
        self.controller.note_image()
        self.controller.note_outcome(outcome)

    async def add_brokers(self, *numbers: int, is_fenced: bool = False) -> None:
        for number in numbers:
            incarnation = bytes([number] * 16)
            await self.quorum.propose(
                RegisterBroker(number, incarnation, (), is_fenced=is_fenced, log_dirs=(b"f" * 16,))
            )

    async def create(
        self, *assignments: Assignment, name: TopicName = ORDERS, **configs: str
    ) -> None:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        await self.quorum.propose(CreateTopic(name, ORDERS_ID, assignments, named))

    async def change(self, **changes: Any) -> None:
        await self.quorum.propose(ChangePartition(ORDERS_ID, PartitionIndex(0), **changes))

    async def configure(self, values: dict[str, str | None], topic: str | None = None) -> None:
        resource_type = ResourceType.BROKER if topic is None else ResourceType.TOPIC
        await self.quorum.propose(SetConfigs(resource_type, topic or "", values))

    def fail(self, times: int = 1, *, first: int = 0) -> None:
        """Have the log refuse entries of the controller, as if its disk was full.

        Those are the next ones, or come behind the `first` ones.
        """
        taking = self.quorum.propose_as_leader
        numbers = count()

        async def refuse(change: Entry | Ddl) -> Outcome:
            if first <= next(numbers) < first + times:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
            return await taking(change)

        vars(self.quorum)["propose_as_leader"] = refuse

    def row(self, index: int = 0, name: TopicName = ORDERS) -> Partition:
        found = self.quorum.image.partition(name, PartitionIndex(index))
        assert found is not None
        return found

    def epoch(self, number: int) -> int:
        broker = self.quorum.image.broker(BrokerId(number))
        assert broker is not None
        return broker.broker_epoch

    def beat(self, number: int, *, is_stopping: bool = False) -> words.Heard:
        """Send the heartbeat of a broker."""
        heartbeat = words.Heartbeat(self.epoch(number), 0, is_stopping=is_stopping)
        heard = self.controller.heard(BrokerId(number), heartbeat)
        assert isinstance(heard, words.Heard)
        return heard

    async def lead(self) -> None:
        """Start the controller."""
        self.controller.serve()
        await until(lambda: self.controller.is_active)


def run(
    scenario: Callable[[Controlled], Coroutine[Any, Any, None]], care: CareSettings | None = None
) -> None:
    """Run a scenario with a quorum whose controller has yet to be started."""

    async def whole() -> None:
        async with _running(care or CareSettings()) as controlled:
            await scenario(controlled)

    asyncio.run(asyncio.wait_for(whole(), 60))


@asynccontextmanager
async def _running(care: CareSettings) -> AsyncIterator[Controlled]:
    controlled = Controlled(care)
    await controlled.quorum.start()
    await controlled.quorum.propose(RaiseLevel(LEVEL))
    try:
        yield controlled
    finally:
        controlled.controller.close()
        await controlled.quorum.stop()


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so; the test has a deadline."""
    while not is_so():
        await asyncio.sleep(0.001)
