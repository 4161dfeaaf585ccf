"""The identity of an idempotent producer: its id, and a sequence number per partition."""

from headrace.client.cluster import Cluster
from headrace.client.errors import raise_for
from headrace.client.topics import TopicPartition
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse

_SEQUENCES = 2**31


class Identity:
    """A producer id and the next sequence number of each partition."""

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self._next: dict[TopicPartition, int] = {}

    def take(self, partition: TopicPartition, count: int) -> int:
        """Return the first of `count` sequence numbers; after the largest comes 0."""
        sequence = self._next.get(partition, 0)
        self._next[partition] = (sequence + count) % _SEQUENCES
        return sequence

    def give_back(self, partition: TopicPartition, sequence: int) -> None:
        """Use the numbers from `sequence` on again: the batch that had them was refused whole."""
        self._next[partition] = sequence


async def request_identity(cluster: Cluster) -> Identity:
    """Ask the cluster for a new producer id."""
    answer = await cluster.ask(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
        InitProducerIdResponse,
        code_of=lambda answer: answer.error_code,
    )
    raise_for(answer.error_code, None, "a producer id")
    return Identity(answer.producer_id, answer.producer_epoch)
