"""The coordinator of transactions, and what it does to partitions: the shell around `txn`.

A transaction that is decided is handed over as a `Completion`. Each of its partitions gets a
marker, again and again until it has it, and then the coordinator writes that it is complete.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from headrace.config import AnySettings
from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.shard import Shard, State
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TRANSACTIONS_TOPIC
from headrace.loop.clock import Clock
from headrace.metadata.features import TRANSACTION_VERSION
from headrace.metadata.image import Image
from headrace.txn.ending import complete, is_to_complete
from headrace.txn.machine import TransactionsMachine
from headrace.txn.markers import Marker, MarkerWriter
from headrace.txn.records import RECORD_TYPES
from headrace.txn.state import Completion, Place, TransactionsState

RETRY_SECONDS: Final = 0.1
"""How long a partition that cannot take its marker is left alone."""

Transactions = Coordinator[TransactionsMachine]
logger = logging.getLogger(__name__)


def transaction_coordinator(
    settings: AnySettings, image_of: Callable[[], Image], clock: Clock, writer: MarkerWriter
) -> Transactions:
    """Return the transaction coordinator."""
    under_way: dict[tuple[int, str], _Completing] = {}

    def begin(index: int, completion: Completion | KafkaError) -> None:
        if isinstance(completion, KafkaError):
            return  # the decision is not in the log, or is loaded from it again
        key = index, completion.transactional_id
        if (former := under_way.pop(key, None)) is not None:
            former.cancel()
        shard = transactions.shard_at(index)
        if shard is not None:
            epoch = writer.leader_epoch(TRANSACTIONS_TOPIC, index)
            begun = _Completing(
                shard, completion, epoch, writer, on_over=partial(under_way.pop, key, None)
            )
            under_way[key] = begun
            begun.attempt()

    def make(index: int) -> TransactionsMachine:
        return TransactionsMachine(
            TransactionsState(
                settings,
                lambda: image_of().feature_level(TRANSACTION_VERSION),
                partial(begin, index),
            )
        )

    def partition_count() -> int | None:
        found = image_of().topic(TRANSACTIONS_TOPIC)
        return None if found is None else len(found.partitions)

    transactions: Transactions = Coordinator(
        TRANSACTIONS_TOPIC, RECORD_TYPES, make, clock, partition_count
    )
    return transactions


class _Completing:
    """A transaction whose partitions get their markers."""

    def __init__(
        self,
        shard: Shard[TransactionsMachine],
        completion: Completion,
        coordinator_epoch: int,
        writer: MarkerWriter,
        *,
        on_over: Callable[[], object],
    ) -> None:
        self._shard = shard
        self._completion = completion
        self._coordinator_epoch = coordinator_epoch
        self._writer = writer
        self._on_over = on_over
        self._todo = list(completion.partitions)
        self._asked = 0
        """How many markers are not known yet to be written or not."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def attempt(self) -> None:
        """Write the markers that are not written yet."""
        self._timer = None
        if not self._is_wanted():
            self.cancel()
            return
        places, self._todo = self._todo, []
        self._asked = len(places) + 1
        marker = self._marker()
        for place in places:
            self._writer.write(place, marker, partial(self._on_written, place))
        self._on_answer()

    def cancel(self) -> None:
        """Stop writing markers: the transaction is over, or this node no longer coordinates it."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._on_over()

    def _is_wanted(self) -> bool:
        """Return whether the transaction still waits; a late marker could end the next one."""
        if self._shard.state is not State.ACTIVE:
            return False
        found = self._shard.machine.state.transactions.get(self._completion.transactional_id)
        return found is not None and is_to_complete(found, self._completion)

    def _marker(self) -> Marker:
        completion = self._completion
        return Marker(
            completion.producer_id,
            completion.producer_epoch,
            completion.is_commit,
            self._coordinator_epoch,
            completion.transaction_version,
        )

    def _on_written(self, place: Place, error: KafkaError | None) -> None:
        if error is not None and not self._is_settled(place, error):
            self._todo.append(place)
        self._on_answer()

    def _is_settled(self, place: Place, error: KafkaError) -> bool:
        """Return whether a partition needs no marker any more."""
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return True  # deleted, and the records with it
        if error.code == ErrorCode.INVALID_PRODUCER_EPOCH:
            logger.warning(
                "%s-%d takes no marker of transactional id %s: %s",
                *(*place, self._completion.transactional_id, error.message),
            )
            return True
        return False

    def _on_answer(self) -> None:
        self._asked -= 1
        if self._asked or self._is_over:
            return
        if self._todo:
            self._timer = asyncio.get_running_loop().call_later(RETRY_SECONDS, self.attempt)
            return
        self._is_over = True
        self._on_over()
        completion = self._completion
        self._shard.write(
            lambda machine, now_ms: complete(machine.state, completion, now_ms), _ignore
        )


def _ignore(_: object) -> None:
    """Drop a reply: a transaction that could not be completed is loaded as prepared."""
