"""Questions about transactions whose coordinator is on another node: AddPartitionsToTxn (KIP-890).

As in Kafka one request to a node is in flight; what comes meanwhile waits and goes with the next.
Questions of one producer that wait are one: a transactional id occurs once in a request. The answer
is the coordinator's, or NETWORK_EXCEPTION; nothing is retried here.
"""

import asyncio
import logging
from collections.abc import Collection
from functools import partial
from typing import Final, NamedTuple

from headrace.coordinator.machine import Reply, told
from headrace.coordinator.replies import tell
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.ids import BrokerId
from headrace.txn.peers import Peers, refusal, unanswered
from headrace.txn.state import Place, Producer
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
)

FIRST_OF_BROKERS: Final = 4
"""The version of AddPartitionsToTxn from which on it has many transactions."""
TRANSACTIONS_A_REQUEST_MAX: Final = 200
QUESTIONS_MAX: Final = 10_000
"""The most producers that wait for one coordinator; each has a request that waits with it."""

Codes = dict[Place, ErrorCode]
logger = logging.getLogger(__name__)


class _Key(NamedTuple):
    producer: Producer
    adds: bool


class _Question(NamedTuple):
    """What waiting requests of one producer ask."""

    places: dict[Place, None]
    replies: list[Reply[Codes]]

    def answer(self, answer: Codes | KafkaError) -> None:
        for reply in self.replies:
            tell(told(reply, answer))


class VerificationSender:
    """Asks transaction coordinators on other nodes."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._waiting: dict[BrokerId, dict[_Key, _Question]] = {}
        self._tasks: dict[BrokerId, asyncio.Task[None]] = {}
        self._is_closed = False

    def ask(
        self,
        node_id: BrokerId,
        producer: Producer,
        places: Collection[Place],
        reply: Reply[Codes],
        *,
        adds: bool,
    ) -> None:
        """Ask whether partitions are part of a transaction, or with `adds` join them.

        The reply has a code for each partition, and may be about more than were asked for.
        """
        waiting = self._waiting.setdefault(node_id, {})
        key = _Key(producer, adds)
        question = waiting.get(key)
        if self._is_closed or (question is None and len(waiting) >= QUESTIONS_MAX):
            message = f"too many producers wait for node {node_id}, or this node stops"
            reply(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message))
            return
        if question is None:
            question = waiting[key] = _Question({}, [])
        question.places.update(dict.fromkeys(places))
        question.replies.append(reply)
        if node_id not in self._tasks:
            self._start(node_id)

    def close(self) -> None:
        """Ask nothing any more; everybody who waits gets an error."""
        self._is_closed = True
        for task in tuple(self._tasks.values()):
            task.cancel()
        waiting, self._waiting = self._waiting, {}
        for question in [each for some in waiting.values() for each in some.values()]:
            question.answer(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this node stops"))

    def _start(self, node_id: BrokerId) -> None:
        task = asyncio.get_running_loop().create_task(self._run(node_id))
        self._tasks[node_id] = task
        task.add_done_callback(partial(self._on_ended, node_id))

    def _on_ended(self, node_id: BrokerId, task: "asyncio.Task[None]") -> None:
        del self._tasks[node_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("questions for node %d failed", node_id, exc_info=error)
        if self._waiting.get(node_id) and not self._is_closed:
            self._start(node_id)

    async def _run(self, node_id: BrokerId) -> None:
        # Not at once: other questions of this turn go with the first request.
        await asyncio.sleep(0)
        while waiting := self._waiting.get(node_id):
            taken: dict[str, tuple[_Key, _Question]] = {}
            for key in list(waiting):
                if len(taken) == TRANSACTIONS_A_REQUEST_MAX:
                    break
                if key.producer.transactional_id not in taken:
                    taken[key.producer.transactional_id] = key, waiting.pop(key)
            await self._send(node_id, list(taken.values()))
        self._waiting.pop(node_id, None)

    async def _send(self, node_id: BrokerId, asked: list[tuple[_Key, _Question]]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[_transaction(*each) for each in asked])
        try:
            response: AddPartitionsToTxnResponse = await self._peers.send(
                node_id, request, version_min=FIRST_OF_BROKERS
            )
        except asyncio.CancelledError:
            stopping = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this node stops")
            for _, question in asked:
                question.answer(stopping)
            raise
        except Exception as error:
            if not isinstance(error, HeadraceError):
                logger.exception("node %d could not be asked about transactions", node_id)
            failed = unanswered(error)
            for _, question in asked:
                question.answer(failed)
            return
        rows = {row.transactional_id: row for row in response.results_by_transaction}
        for key, question in asked:
            question.answer(_answer(node_id, key, question, response.error_code, rows))


def _transaction(key: _Key, question: _Question) -> AddPartitionsToTxnTransaction:
    producer = key.producer
    topics: dict[str, list[int]] = {}
    for name, index in question.places:
        topics.setdefault(name, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=not key.adds,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in topics.items()
        ],
    )


def _answer(
    node_id: BrokerId,
    key: _Key,
    question: _Question,
    code: int,
    rows: dict[str, AddPartitionsToTxnResult],
) -> Codes | KafkaError:
    about = f"node {node_id} about transactional id {key.producer.transactional_id!r}"
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        code = ErrorCode.INVALID_TXN_STATE  # the producer must not take it as its own lack of right
    if code != ErrorCode.NONE:
        return refusal(code, about)
    row = rows.get(key.producer.transactional_id)
    if row is None:
        return refusal(ErrorCode.UNKNOWN_SERVER_ERROR, about)
    codes = {
        (topic.name, each.partition_index): refusal(each.partition_error_code, about).code
        for topic in row.topic_results
        for each in topic.results_by_partition
    }
    # A partition that the response lacks was not let in.
    return {place: codes.get(place, ErrorCode.UNKNOWN_SERVER_ERROR) for place in question.places}
