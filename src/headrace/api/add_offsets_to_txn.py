"""AddOffsetsToTxn: API key 25, versions 0 to 4.

KIP-98, KIP-588 (a fenced producer is PRODUCER_FENCED from 2 on, INVALID_PRODUCER_EPOCH before).

The work is in `txn.partitions`.
"""

from headrace import config
from headrace.api.transactions import UNBUMPING, ask_coordinator, fenced_before
from headrace.coordinator.machine import Outcome
from headrace.coordinator.placement import partition_for
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import GROUPS_TOPIC
from headrace.server.broker import Broker
from headrace.server.request import LATER, Answer, Request
from headrace.txn.machine import TransactionsMachine
from headrace.txn.partitions import add_partitions
from headrace.txn.state import Producer
from headrace.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse


def handle(broker: Broker, request: Request) -> Answer:
    """Add a group's partition of `__consumer_offsets` to a transaction."""
    body: AddOffsetsToTxnRequest = request.body
    producer = Producer(body.transactional_id, body.producer_id, body.producer_epoch)

    def reply(answer: KafkaError | None) -> None:
        code = ErrorCode.NONE if answer is None else fenced_before(answer, request.version)
        request.answer(AddOffsetsToTxnResponse(error_code=code))

    topic = broker.image.topic(GROUPS_TOPIC)
    # What is not there yet will be made with as many partitions as the setting says.
    count = (
        broker.settings[config.OFFSETS_TOPIC_NUM_PARTITIONS]
        if topic is None
        else len(topic.partitions)
    )
    place = GROUPS_TOPIC, partition_for(body.group_id, count)

    def add(machine: TransactionsMachine, now_ms: int) -> Outcome:
        return add_partitions(machine.state, producer, (place,), UNBUMPING, now_ms, reply)

    ask_coordinator(broker, producer.transactional_id, add, reply)
    return LATER
