"""The requests of a transaction, sent until a coordinator gives a definite response.

Each function raises what `explained` makes of an error code: `ProducerFenced` if another producer
has taken over, else a `KafkaError`. Nothing is remembered here but which node coordinates.

KIP-890: with transaction.version 2 brokers add partitions and groups to a transaction themselves
(Produce from version 12, TxnOffsetCommit from 5), and EndTxn (from 5) returns the next epoch.
Before it, clients add them (AddPartitionsToTxn, AddOffsetsToTxn) and must keep to older versions.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from headrace.client.cluster import ANY_NODE, Cluster
from headrace.client.coordinators import CoordinatorType, find_coordinator
from headrace.client.errors import NotReachable, ProducerFenced, refusal
from headrace.client.groups import CommittedOffset, GroupMetadata
from headrace.client.leaders import by_topic
from headrace.client.retrying import Retries
from headrace.client.topics import TopicPartition
from headrace.errors import COORDINATOR_MOVED, ErrorCode, KafkaError
from headrace.wire import ApiKey
from headrace.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.end_txn_response import EndTxnResponse
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from headrace.wire.schema import Message

M = TypeVar("M", bound=Message)

PRODUCE_EXPLICIT_MAX: Final = 11
"""The last version of Produce whose partitions the client has added before."""
_TXN_OFFSET_COMMIT_EXPLICIT_MAX: Final = 4
_END_TXN_EXPLICIT_MAX: Final = 4
_ADD_PARTITIONS_CLIENT_MAX: Final = 3
"""Later versions are for brokers."""
_IMPLICIT_FEATURE: Final = "transaction.version"
_IMPLICIT_FROM_LEVEL: Final = 2

CONCURRENT_PAUSE_MS: Final = 20
"""The retry backoff while the markers of the last transaction are being written."""

FENCING: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Codes of a producer that is not the newest of its transactional id."""
ABORTABLE: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Codes of EndTxn after which the producer may start a new transaction."""


class ProducerIdentity(msgspec.Struct, frozen=True):
    """What brokers know a transactional producer by; -1 before the first response."""

    transactional_id: str
    producer_id: int = -1
    producer_epoch: int = -1


class Coordinator:
    """The coordinator of a transactional id or a group; it is looked up once."""

    def __init__(self, cluster: Cluster, kind: CoordinatorType, key: str) -> None:
        self._cluster = cluster
        self._kind = kind
        self._key = key
        self._node_id: int | None = None
        self._former: int | None = None
        """A coordinator that has failed."""

    async def ask(
        self,
        body: Message,
        answer_type: type[M],
        *,
        code_of: Callable[[M], int],
        version_max: int | None = None,
        patience_ms: int | None = None,
    ) -> M:
        """Send a request until the response is definite, for `patience_ms` (the API timeout).

        Raise NotReachable without a response for that long: then the outcome is unknown. Only for
        idempotent requests.
        """
        retries = Retries(self._cluster.settings, patience_ms)
        while True:
            try:
                if self._node_id is None:
                    self._node_id = await find_coordinator(
                        self._cluster, self._kind, self._key, former=self._former
                    )
                connection = await self._cluster.connection(self._node_id)
                version = connection.version_of(ApiKey(body.API_KEY))
                if version_max is not None:
                    version = min(version, version_max)
                answer = await connection.request(body, answer_type, version=version)
            except NotReachable:
                self._leave()
                if self._cluster.is_closed or not await retries.pause():
                    raise
                await self._look_around()
                continue
            code = code_of(answer)
            if code == ErrorCode.NONE or not refusal(code, None, "").is_retriable:
                return answer
            if code in COORDINATOR_MOVED:
                self._leave()
            if code == ErrorCode.CONCURRENT_TRANSACTIONS and not retries.is_over():
                await asyncio.sleep(CONCURRENT_PAUSE_MS / 1000)
            elif not await retries.pause():
                return answer

    def _leave(self) -> None:
        """Look for the coordinator again before the next attempt."""
        if self._node_id is not None:
            self._former = self._node_id
        self._node_id = None

    async def _look_around(self) -> None:
        """Learn of nodes that moved; whether any can be reached is the next attempt's to say."""
        try:
            await self._cluster.connection(ANY_NODE)
            await self._cluster.refresh()
        except NotReachable:
            pass


async def has_implicit_adds(cluster: Cluster) -> bool:
    """Whether the cluster has finalized transaction.version 2, by the connection that is used."""
    connection = await cluster.connection(ANY_NODE)
    return connection.features.get(_IMPLICIT_FEATURE, 0) >= _IMPLICIT_FROM_LEVEL


async def init_producer_id(
    coordinator: Coordinator, identity: ProducerIdentity, timeout_ms: int
) -> ProducerIdentity:
    """Abort the id's open transaction, fence older producers, and return our new identity.

    An identity that already has an epoch requests the next one, and learns if it was fenced.
    """
    answer = await coordinator.ask(
        InitProducerIdRequest(
            transactional_id=identity.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
        ),
        InitProducerIdResponse,
        code_of=lambda answer: answer.error_code,
    )
    if answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        raise KafkaError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"transaction_timeout_ms={timeout_ms}: must be positive and not more than the "
            "cluster's transaction.max.timeout.ms",
        )
    _check(answer.error_code, identity)
    return ProducerIdentity(identity.transactional_id, answer.producer_id, answer.producer_epoch)


async def add_partitions(
    coordinator: Coordinator, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> None:
    """Add partitions to the open transaction, before anything is written to them."""
    answer = await coordinator.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=identity.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in by_topic(partitions).items()
            ],
        ),
        AddPartitionsToTxnResponse,
        code_of=_code_of_adding,
        version_max=_ADD_PARTITIONS_CLIENT_MAX,
    )
    _check(_code_of_adding(answer), identity)


async def add_group(coordinator: Coordinator, identity: ProducerIdentity, group_id: str) -> None:
    """Add the offsets of a group to the open transaction, before any is committed."""
    answer = await coordinator.ask(
        AddOffsetsToTxnRequest(
            transactional_id=identity.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group_id=group_id,
        ),
        AddOffsetsToTxnResponse,
        code_of=lambda answer: answer.error_code,
    )
    _check(answer.error_code, identity)


async def commit_group_offsets(
    coordinator: Coordinator,
    identity: ProducerIdentity,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    uses_implicit_adds: bool,
) -> None:
    """Commit offsets as part of the transaction; `coordinator` is that of the group."""
    answer = await coordinator.ask(
        TxnOffsetCommitRequest(
            transactional_id=identity.transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        _offset_row(index, offsets[TopicPartition(name, index)])
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(offsets).items()
            ],
        ),
        TxnOffsetCommitResponse,
        code_of=_code_of_offsets,
        version_max=None if uses_implicit_adds else _TXN_OFFSET_COMMIT_EXPLICIT_MAX,
    )
    code = _code_of_offsets(answer)
    if code in FENCING:
        raise fenced(identity.transactional_id)
    if code:
        raise refusal(code, None, f"the offsets of group {group.group_id!r} in a transaction")


async def end_transaction(
    coordinator: Coordinator,
    identity: ProducerIdentity,
    *,
    is_commit: bool,
    uses_implicit_adds: bool,
    patience_ms: int,
) -> ProducerIdentity:
    """Commit or abort; return our identity for the next transaction.

    Retried after a lost response: the coordinator recognizes a retry, also with the old epoch.
    """
    answer = await coordinator.ask(
        EndTxnRequest(
            transactional_id=identity.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=is_commit,
        ),
        EndTxnResponse,
        code_of=lambda answer: answer.error_code,
        version_max=None if uses_implicit_adds else _END_TXN_EXPLICIT_MAX,
        patience_ms=patience_ms,
    )
    if is_commit and answer.error_code == ErrorCode.INVALID_TXN_STATE:
        # Aborted when its time was up: with KIP-890 the coordinator then takes our epoch for that
        # of a repeated abort, not for one that was fenced.
        raise fenced(identity.transactional_id)
    _check(answer.error_code, identity)
    if answer.producer_id < 0:
        return identity
    return ProducerIdentity(identity.transactional_id, answer.producer_id, answer.producer_epoch)


def fenced(transactional_id: str) -> ProducerFenced:
    """Return the error of a producer that is not the newest of its id."""
    return ProducerFenced(
        f"the producer with transactional_id {transactional_id!r} was fenced: another producer "
        "with the same id has started, or a transaction was open for longer than "
        "transaction_timeout_ms. Its transaction is aborted; create a new Producer if this one "
        "should continue"
    )


def _check(code: int, identity: ProducerIdentity) -> None:
    if code in FENCING:
        raise fenced(identity.transactional_id)
    if code:
        raise refusal(code, None, f"transactional id {identity.transactional_id!r}")


def _offset_row(index: int, committed: CommittedOffset) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        committed_metadata=committed.metadata,
    )


def _code_of_adding(answer: AddPartitionsToTxnResponse) -> int:
    return _worst(
        row.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    )


def _code_of_offsets(answer: TxnOffsetCommitResponse) -> int:
    return _worst(row.error_code for topic in answer.topics for row in topic.partitions)


def _worst(codes: Iterable[int]) -> int:
    """Return the code that decides: one that is final before one that is not, before success."""
    errors = [code for code in codes if code and code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    final = (code for code in errors if not refusal(code, None, "").is_retriable)
    return next(final, errors[0] if errors else ErrorCode.NONE)
