"""What the APIs of transactions share: operations on the coordinator of a transactional id."""

from typing import Final

from headrace.coordinator.machine import Operation, Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.server.broker import Broker

FIRST_WITH_FENCED: Final = 2
UNBUMPING: Final = 0


def ask_coordinator(
    broker: Broker, transactional_id: str, operation: Operation, reply: Reply
) -> None:
    """Do an operation at the coordinator of a transactional id, or tell `reply` why not."""
    try:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        shard = broker.transactions.shard(transactional_id)
    except KafkaError as error:
        reply(error)
        return
    shard.write(operation, reply)


def fenced_before(error: KafkaError, version: int) -> ErrorCode:
    """Give a code that clients of a version know."""
    if error.code == ErrorCode.PRODUCER_FENCED and version < FIRST_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
