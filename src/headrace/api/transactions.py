"""What the APIs of transactions share: operations on the coordinator of a transactional id."""

from typing import Final

from headrace.coordinator.machine import OnError, Operation
from headrace.errors import ErrorCode, KafkaError
from headrace.server.broker import Broker
from headrace.txn.machine import TransactionsMachine

FIRST_WITH_FENCED: Final = 2
UNBUMPING: Final = 0


def ask_coordinator(
    broker: Broker,
    transactional_id: str,
    operation: Operation[TransactionsMachine],
    on_error: OnError,
) -> None:
    """Do an operation at the coordinator of a transactional id, or tell `on_error` why not."""
    try:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        shard = broker.transactions.shard(transactional_id)
    except KafkaError as error:
        on_error(error)
        return
    shard.write(operation, on_error)


def fenced_before(error: KafkaError, version: int) -> ErrorCode:
    """Return a code that clients of a version know."""
    if error.code == ErrorCode.PRODUCER_FENCED and version < FIRST_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
