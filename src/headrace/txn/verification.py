"""Verification of transactional records by the coordinator, before the first (KIP-890).

A partition that is not part of the transaction would never get its marker, and read_committed
consumers would wait at its first offset forever. A verification is valid until the marker: a
partition that has the transaction open needs no other, and one that got a marker while the
coordinator was asked may not take the records any more. The coordinator is on this node or, by way
of `verification_sending`, on another.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from headrace import config
from headrace.config import AnySettings
from headrace.coordinator.machine import Outcome, Reply
from headrace.coordinator.placement import partition_for
from headrace.errors import COORDINATOR_UNAVAILABLE, ErrorCode, KafkaError
from headrace.ids import GROUPS_TOPIC, TRANSACTIONS_TOPIC, BrokerId, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER
from headrace.records.builder import NO_LEADER_EPOCH
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.txn.coordinator import Transactions
from headrace.txn.machine import TransactionsMachine
from headrace.txn.markers import MarkerWriter
from headrace.txn.partitions import add_partitions, verify_partitions
from headrace.txn.state import BUMPING, Place, Producer
from headrace.txn.verification_sending import VerificationSender
from headrace.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest

FIRST_ADDING_OFFSETS: Final = 5
"""The version of TxnOffsetCommit from which a group's partition joins by the request itself."""
FIRST_ABORTABLE_OFFSETS: Final = 4
"""The one from which clients know TRANSACTION_ABORTABLE."""
_RETRIED: Final = COORDINATOR_UNAVAILABLE | {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    # Something else of the same question failed.
    ErrorCode.OPERATION_NOT_ATTEMPTED,
}

OnVerified = Callable[[Mapping[Place, KafkaError]], None]
"""Takes why partitions are not part of a transaction; nothing for those that are."""
_Codes = dict[Place, ErrorCode]
_Key = tuple[Place, int]
"""A partition and a producer id."""


class Unverified(KafkaError):
    """Records that the coordinator did not let into a transaction; the log has not seen them."""


class Verification:
    """Asks coordinators of transactions for the partitions of this node."""

    def __init__(
        self,
        node_id: BrokerId,
        settings: AnySettings,
        transactions: Transactions,
        replicas: Replicas,
        image_of: Callable[[], Image],
        *,
        markers: MarkerWriter,
        sender: VerificationSender,
    ) -> None:
        self._node_id = node_id
        self._retry_seconds: float = settings[config.ADD_PARTITIONS_RETRY_BACKOFF_MS] / 1000
        self._retries_seconds_max: float = settings[config.ADD_PARTITIONS_RETRY_MAX_MS] / 1000
        self._transactions = transactions
        self._replicas = replicas
        self._image_of = image_of
        self._sender = sender
        self._waiting: Counter[_Key] = Counter()
        """Verifications in progress for a partition and a producer."""
        self._markers: dict[_Key, int] = {}
        """How many markers came since the oldest of them began."""
        markers.listeners.append(self._on_marker)

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

        Refusals are in the words of the coordinator, INVALID_TXN_STATE for a partition that got
        the transaction's marker meanwhile, and NOT_LEADER_OR_FOLLOWER for one with a new leader.
        Joining waits a moment for a former transaction to complete, as in Kafka.
        """
        guards = [
            _Guard((place, producer.producer_id), *self._now(place, producer)) for place in places
        ]
        self._waiting.update(guard.key for guard in guards)
        loop = asyncio.get_running_loop()
        until = loop.time() + (self._retries_seconds_max if adds else 0)

        def answered(answer: _Codes | KafkaError | None) -> None:
            if loop.time() < until and _is_completing(answer):
                loop.call_later(self._retry_seconds, attempt)
                return
            refused = _refusals(places, answer)
            for guard in guards:
                error = self._invalid(guard, adds=adds)
                if error is not None and guard.key[0] not in refused:
                    refused[guard.key[0]] = error
            self._release(guards)
            reply(refused)

        def attempt() -> None:
            self._ask_coordinator(producer, places, answered, adds=adds)

        attempt()

    def _ask_coordinator(
        self,
        producer: Producer,
        places: Collection[Place],
        answered: "Reply[_Codes | None]",
        *,
        adds: bool,
    ) -> None:
        def operate(machine: TransactionsMachine, now_ms: int) -> Outcome:
            return _operation(machine, producer, places, now_ms if adds else None, answered)

        try:
            if not producer.transactional_id:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
            coordinator = self._coordinator(producer.transactional_id)
            if coordinator != self._node_id:
                self._sender.ask(coordinator, producer, places, answered, adds=adds)
                return
            shard = self._transactions.shard(producer.transactional_id)
        except KafkaError as error:
            answered(error)
            return
        shard.write(operate, answered)

    def _coordinator(self, transactional_id: str) -> BrokerId:
        """Return the node that coordinates a transactional id; raise KafkaError if none does."""
        topic = self._image_of().topic(TRANSACTIONS_TOPIC)
        if topic is None:
            message = f"the topic {TRANSACTIONS_TOPIC} is not there yet"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        leader = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
        if leader == NO_LEADER:
            message = f"transactional id {transactional_id!r} has no coordinator now"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        return leader

    # Markers that come while the coordinator is asked

    def _on_marker(self, place: Place, producer_id: int) -> None:
        key = place, producer_id
        if key in self._waiting:
            self._markers[key] = self._markers.get(key, 0) + 1

    def _now(self, place: Place, producer: Producer) -> tuple[int, int]:
        partition = self._replicas.find(TopicName(place[0]), place[1])
        epoch = NO_LEADER_EPOCH if partition is None else partition.leader_epoch
        return epoch, self._markers.get((place, producer.producer_id), 0)

    def _invalid(self, guard: "_Guard", *, adds: bool) -> KafkaError | None:
        """Return why a partition may no longer take records that were verified.

        A client whose records join by themselves has an epoch for each transaction: a marker that
        came meanwhile ended a former one, or has a higher epoch, by which the log refuses them.
        """
        (name, index), _ = guard.key
        partition = self._replicas.find(TopicName(name), index)
        if partition is None or partition.leader_epoch != guard.leader_epoch:
            return KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}-{index} has another leader now"
            )
        if not adds and self._markers.get(guard.key, 0) != guard.markers:
            return KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"{name}-{index}: the transaction ended while it was verified",
            )
        return None

    def _release(self, guards: "list[_Guard]") -> None:
        for guard in guards:
            self._waiting[guard.key] -= 1
            if not self._waiting[guard.key]:
                del self._waiting[guard.key]
                self._markers.pop(guard.key, None)

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
        if partition is None or not partition.is_leader:
            # First of all: nothing joins a transaction because of a client that is lost.
            message = f"this node does not coordinate group {body.group_id!r}"
            reply(KafkaError(ErrorCode.NOT_COORDINATOR, message))
            return
        if not self.is_needed(partition, body.producer_id, body.producer_epoch):
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
            if error.code == ErrorCode.NETWORK_EXCEPTION:
                # The group's coordinator is the right one, it has only not got its answer.
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            elif error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                error = KafkaError(ErrorCode.NOT_COORDINATOR, error.message)
            elif error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # The other node does not know the topic of groups yet.
                error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
            reply(as_answered(error, is_abortable_known=is_known, try_again=code))

        self.ask(producer, [place], answered, adds=version >= FIRST_ADDING_OFFSETS)


def as_answered(
    error: KafkaError,
    *,
    is_abortable_known: bool,
    try_again: ErrorCode,
    is_completing_known: bool = False,
) -> Unverified:
    """Translate the coordinator's error for a request with records.

    Kafka's clients know coordinator problems here as `try_again`, and a fenced producer by its
    epoch. A former transaction that is being completed is CONCURRENT_TRANSACTIONS for those who
    expect it.
    """
    code = error.code
    if code == ErrorCode.CONCURRENT_TRANSACTIONS and is_completing_known:
        pass
    elif code in _RETRIED:
        code = try_again
    elif code == ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code == ErrorCode.TRANSACTION_ABORTABLE and not is_abortable_known:
        code = ErrorCode.INVALID_TXN_STATE
    return Unverified(code, error.message)


class _Guard(NamedTuple):
    """What was known of a partition when its coordinator was asked."""

    key: _Key
    leader_epoch: int
    markers: int


def _is_completing(answer: _Codes | KafkaError | None) -> bool:
    """Return whether a former transaction of the producer is not complete yet."""
    if isinstance(answer, KafkaError):
        return answer.code == ErrorCode.CONCURRENT_TRANSACTIONS
    return answer is not None and ErrorCode.CONCURRENT_TRANSACTIONS in answer.values()


def _operation(
    machine: TransactionsMachine,
    producer: Producer,
    places: Collection[Place],
    added_ms: int | None,
    reply: Reply[_Codes | None],
) -> Outcome:
    if added_ms is None:
        return verify_partitions(machine.state, producer, places, reply)
    return add_partitions(machine.state, producer, places, BUMPING, added_ms, reply)


def _refusals(
    places: Collection[Place], answer: _Codes | KafkaError | None
) -> dict[Place, KafkaError]:
    if isinstance(answer, KafkaError):
        return dict.fromkeys(places, answer)
    return {
        place: KafkaError(code, f"{place[0]}-{place[1]} is not part of the transaction")
        for place in places
        if (code := (answer or {}).get(place, ErrorCode.NONE)) != ErrorCode.NONE
    }
