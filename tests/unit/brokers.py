"""Brokers that are in the metadata only: enough for what is decided from the image."""

from collections.abc import Callable

import pytest

from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.metadata.ddl import (
    Assignment,
    ChangeBroker,
    ChangePartition,
    CreateTopic,
    RegisterBroker,
)
from headrace.metadata.state import Endpoint
from tests.unit.harness import Harness


@pytest.fixture
def register(harness: Harness) -> Callable[..., None]:
    """Register a broker beside the running node: `register(7, rack="b", is_fenced=True)`."""

    def register_broker(
        broker_id: int,
        *,
        listener: str = "PLAINTEXT",
        rack: str | None = None,
        is_fenced: bool = False,
    ) -> None:
        endpoint = Endpoint(listener, f"host{broker_id}", 9000 + broker_id, 0)
        harness.run(
            harness.broker.quorum.propose(
                RegisterBroker(
                    broker_id,
                    bytes([broker_id]) * 16,
                    (endpoint,),
                    rack=rack,
                    is_fenced=is_fenced,
                )
            )
        )

    return register_broker


@pytest.fixture
def fence(harness: Harness) -> Callable[[int], None]:
    """Fence a broker and leave its partitions to it: the controller looks at new ones alone."""

    def fence_broker(broker_id: int) -> None:
        broker = harness.broker.image.broker(BrokerId(broker_id))
        assert broker is not None
        change = ChangeBroker(broker_id, broker.broker_epoch, is_fenced=True)
        harness.run(harness.broker.quorum.propose(change))

    return fence_broker


@pytest.fixture
def place(harness: Harness) -> Callable[..., TopicId]:
    """Create a topic of one partition: `place("orders", [1, 7], isr=[7], leader=7)`."""

    def place_topic(name: str, replicas: list[int], *, isr: list[int], leader: int) -> TopicId:
        topic_id = TopicId(name.encode().ljust(16, b".")[:16])
        assignment = Assignment(
            tuple(map(BrokerId, replicas)), tuple(map(BrokerId, isr)), BrokerId(isr[0])
        )

        async def create() -> None:
            propose = harness.broker.quorum.propose
            await propose(CreateTopic(TopicName(name), topic_id, (assignment,)))
            await propose(ChangePartition(topic_id, PartitionIndex(0), leader=leader))
            await harness.broker.replicas.settle()

        harness.run(create())
        return topic_id

    return place_topic
