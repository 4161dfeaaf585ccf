"""Verification of transactional records by the coordinator, before the first (KIP-890).

A partition that is not part of the transaction would never get its marker, and read_committed
consumers would wait at its first offset forever. A verification is valid until the marker: a
partition that has the transaction open needs no other.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

from headrace.coordinator.machine import Outcome, Reply
from headrace.coordinator.placement import partition_for
from headrace.errors import COORDINATOR_UNAVAILABLE, ErrorCode, KafkaError
from headrace.ids import GROUPS_TOPIC
from headrace.metadata.image import Image
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.txn.coordinator import Transactions
from headrace.txn.machine import TransactionsMachine
from headrace.txn.partitions import add_partitions, verify_partitions
from headrace.txn.state import BUMPING, Place, Producer
from headrace.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest

FIRST_ADDING_OFFSETS: Final = 5
"""The version of TxnOffsetCommit from which a group's partition joins by the request itself."""
FIRST_ABORTABLE_OFFSETS: Final = 4
"""The one from which clients know TRANSACTION_ABORTABLE."""
_RETRIED: Final = COORDINATOR_UNAVAILABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}

OnVerified = Callable[[Mapping[Place, KafkaError]], None]
"""Takes why partitions are not part of a transaction; nothing for those that are."""


class Unverified(KafkaError):
    """Records that the coordinator did not let into a transaction; the log has not seen them."""


class Verification:
    """Asks coordinators of transactions for the partitions of this node."""

    def __init__(
        self, transactions: Transactions, replicas: Replicas, image_of: Callable[[], Image]
    ) -> None:
        self._transactions = transactions
        self._replicas = replicas
        self._image_of = image_of
        self._waiting: Counter[tuple[Place, int]] = Counter()
        """Verifications in progress for a partition and a producer."""

    def is_needed(self, partition: Partition, producer_id: int, producer_epoch: int) -> bool:
        """Return whether records of a producer need verification before they are appended.

        Also while an earlier batch waits for it, which this one must not overtake.
        """
        known = partition.log.producers.get(producer_id)
        return (
            known is None
            or known.transaction_first_offset is None
            or known.epoch != producer_epoch
            or ((partition.topic, partition.index), producer_id) in self._waiting
        )

    def ask(
        self, producer: Producer, places: Collection[Place], reply: OnVerified, *, adds: bool
    ) -> None:
        """Ask whether partitions are part of the producer's transaction, or with `adds` join them.

        Answers come in the order of the questions, and say no in the words of the coordinator.
        """
        keys = [(place, producer.producer_id) for place in places]
        self._waiting.update(keys)

        def answered(answer: dict[Place, ErrorCode] | KafkaError | None) -> None:
            self._waiting.subtract(keys)
            for key in keys:
                if not self._waiting[key]:
                    del self._waiting[key]
            reply(_refusals(places, answer))

        def operate(machine: TransactionsMachine, now_ms: int) -> Outcome:
            return _operation(machine, producer, places, now_ms if adds else None, answered)

        try:
            if not producer.transactional_id:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
            shard = self._transactions.shard(producer.transactional_id)
        except KafkaError as error:
            answered(error)
            return
        shard.write(operate, answered)

    def verify_offsets(
        self, body: TxnOffsetCommitRequest, version: int, reply: Reply[None], /
    ) -> None:
        """Ask for the partition of `__consumer_offsets` that a group is in (`OffsetVerifier`)."""
        topic = self._image_of().topic(GROUPS_TOPIC)
        if topic is None:
            message = f"the topic {GROUPS_TOPIC} is not there yet"
            reply(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message))
            return
        index = partition_for(body.group_id, len(topic.partitions))
        partition = self._replicas.find(GROUPS_TOPIC, index)
        if partition is not None and not self.is_needed(
            partition, body.producer_id, body.producer_epoch
        ):
            reply(None)
            return
        producer = Producer(body.transactional_id, body.producer_id, body.producer_epoch)

        place = GROUPS_TOPIC, index

        def answered(refused: Mapping[Place, KafkaError]) -> None:
            if (error := refused.get(place)) is None:
                reply(None)
                return
            is_known = version >= FIRST_ABORTABLE_OFFSETS
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            reply(as_answered(error, is_abortable_known=is_known, try_again=code))

        self.ask(producer, [place], answered, adds=version >= FIRST_ADDING_OFFSETS)


def as_answered(error: KafkaError, *, is_abortable_known: bool, try_again: ErrorCode) -> Unverified:
    """Translate the coordinator's error for a request with records.

    Kafka's clients know coordinator problems here as `try_again`, and a fenced producer by its
    epoch.
    """
    code = error.code
    if code in _RETRIED:
        code = try_again
    elif code == ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code == ErrorCode.TRANSACTION_ABORTABLE and not is_abortable_known:
        code = ErrorCode.INVALID_TXN_STATE
    return Unverified(code, error.message)


def _operation(
    machine: TransactionsMachine,
    producer: Producer,
    places: Collection[Place],
    added_ms: int | None,
    reply: Reply[dict[Place, ErrorCode] | None],
) -> Outcome:
    if added_ms is None:
        return verify_partitions(machine.state, producer, places, reply)
    return add_partitions(machine.state, producer, places, BUMPING, added_ms, reply)


def _refusals(
    places: Collection[Place], answer: dict[Place, ErrorCode] | KafkaError | None
) -> dict[Place, KafkaError]:
    if isinstance(answer, KafkaError):
        return dict.fromkeys(places, answer)
    return {
        place: KafkaError(code, f"{place[0]}-{place[1]} is not part of the transaction")
        for place, code in (answer or {}).items()
        if code != ErrorCode.NONE
    }
