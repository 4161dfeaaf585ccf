"""What a client knows of topics: the newest of what nodes say, which need not know the same."""

from headrace.client.metadata import View
from headrace.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ORDERS = b"orders" + bytes(10)
AGAIN = b"again!" + bytes(10)


def answer(leader: int, epoch: int, topic_id: bytes = ORDERS, isr: int = 2) -> MetadataResponse:
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=leader, leader_epoch=epoch, isr_nodes=list(range(isr))
    )
    topic = MetadataResponseTopic(name="orders", topic_id=topic_id, partitions=[partition])
    brokers = [MetadataResponseBroker(node_id=each, host="h", port=1) for each in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=[topic])


def leader(view: View) -> int:
    found = view.leader_of("orders", 0)
    assert found is not None
    return found.leader_id


def test_a_node_that_lags_does_not_bring_a_former_leader_back() -> None:
    view = View()
    view.learn(answer(1, 5))
    view.learn(answer(2, 6))
    view.learn(answer(1, 5))
    assert leader(view) == 2


def test_the_same_epoch_is_taken_as_it_is_said_last() -> None:
    view = View()
    view.learn(answer(1, 5, isr=2))
    view.learn(answer(1, 5, isr=1))
    assert len(view.topics["orders"].partitions[0].in_sync) == 1


def test_a_topic_that_was_created_again_has_epochs_of_its_own() -> None:
    view = View()
    view.learn(answer(1, 5))
    view.learn(answer(2, 0, AGAIN))
    assert leader(view) == 2
