"""The coordinator of transactions, and what it does to partitions: the shell around `txn`.

A transaction that is decided is handed over as a `Completion`. Each of its partitions gets a
marker, again and again until it has it, and then the coordinator writes that it is complete. The
leaders of the partitions may be on other nodes: `marker_sending` has the way to them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from headrace import config
from headrace.config import AnySettings
from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.shard import Shard
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TRANSACTIONS_TOPIC
from headrace.loop.clock import Clock
from headrace.metadata.features import TRANSACTION_VERSION
from headrace.metadata.image import Image
from headrace.txn.ending import complete, is_to_complete
from headrace.txn.machine import TransactionsMachine
from headrace.txn.marker_sending import MarkerSender
from headrace.txn.markers import Marker
from headrace.txn.records import RECORD_TYPES
from headrace.txn.state import Completion, Place, TransactionsState

FIRST_RETRY_SECONDS: Final = 0.1
RETRY_SECONDS_MAX: Final = 1.0
"""How long partitions that cannot take their markers are left alone; doubled with each attempt."""
MARKERS_AT_ONCE: Final = 100
"""How many partitions of a transaction get their marker in one turn of the loop."""

Transactions = Coordinator[TransactionsMachine]
logger = logging.getLogger(__name__)


def transaction_coordinator(
    settings: AnySettings, image_of: Callable[[], Image], clock: Clock, sender: MarkerSender
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
            under_way[key] = begun = _Completing(shard, completion, sender, partial(end, key))
            begun.attempt()

    def end(key: tuple[int, str], over: _Completing) -> None:
        if under_way.get(key) is over:  # not a newer one
            del under_way[key]

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
        TRANSACTIONS_TOPIC,
        RECORD_TYPES,
        make,
        clock,
        partition_count,
        # Before clients take a node that waits for its replicas for one that is gone.
        write_timeout_ms=settings[config.REQUEST_TIMEOUT_MS] // 2,
    )
    return transactions


class _Completing:
    """A transaction whose partitions get their markers."""

    def __init__(
        self,
        shard: Shard[TransactionsMachine],
        completion: Completion,
        sender: MarkerSender,
        on_over: "Callable[[_Completing], None]",
    ) -> None:
        self._shard = shard
        self._completion = completion
        self._sender = sender
        self._on_over = on_over
        self._todo = deque(completion.partitions)
        """Partitions to be asked in this attempt."""
        self._failed: list[Place] = []
        """Those of the next one."""
        self._asked = 0
        """How many markers are not known yet to be written or not."""
        self._attempts = 0
        self._timer: asyncio.Handle | None = None
        self._is_over = False

    def attempt(self) -> None:
        """Send the markers that are not written yet."""
        self._timer = None
        if not self._is_wanted():
            self.cancel()
            return
        places = [self._todo.popleft() for _ in range(min(len(self._todo), MARKERS_AT_ONCE))]
        self._asked += len(places) + 1
        self._sender.send(self._marker(), places, self._is_wanted, self._on_written)
        self._on_answer()

    def cancel(self) -> None:
        """Stop sending markers: the transaction is over, or this node no longer coordinates it."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._on_over(self)

    def _is_wanted(self) -> bool:
        """Return whether the transaction still waits; a late marker could end the next one."""
        if self._is_over or not self._shard.is_serving:
            return False
        found = self._shard.machine.state.transactions.get(self._completion.transactional_id)
        return found is not None and is_to_complete(found, self._completion)

    def _marker(self) -> Marker:
        completion = self._completion
        return Marker(
            completion.producer_id,
            completion.producer_epoch,
            completion.is_commit,
            self._shard.leader_epoch,
            completion.transaction_version,
        )

    def _on_written(self, place: Place, error: KafkaError | None) -> None:
        if self._is_over:
            return
        if error is not None and error.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            # The next coordinator of this id ends its transactions.
            logger.warning(
                "%s-%d takes no marker of transactional id %s: %s",
                *(*place, self._completion.transactional_id, error.message),
            )
            self.cancel()
            return
        if error is not None and not self._is_settled(place, error):
            self._failed.append(place)
        self._on_answer()

    def _is_settled(self, place: Place, error: KafkaError) -> bool:
        """Return whether a partition needs no marker any more."""
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return True  # deleted, and the records with it
        if error.code in _UNTAKEN:
            logger.warning(
                "%s-%d takes no marker of transactional id %s: %s",
                *(*place, self._completion.transactional_id, error.message),
            )
            return True
        return False

    def _on_answer(self) -> None:
        self._asked -= 1
        if self._is_over:
            return
        if self._todo:
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_soon(self.attempt)
        elif self._asked:
            return
        elif self._failed:
            self._attempt_later()
        else:
            self._complete()

    def _attempt_later(self) -> None:
        self._todo.extend(self._failed)
        self._failed.clear()
        self._wait(self.attempt)

    def _wait(self, then: Callable[[], None]) -> None:
        self._attempts += 1
        pause = min(FIRST_RETRY_SECONDS * 2 ** min(self._attempts - 1, 10), RETRY_SECONDS_MAX)
        self._timer = asyncio.get_running_loop().call_later(pause, then)

    def _complete(self) -> None:
        """Write that every partition has its marker.

        A refusal is retried as long as this node coordinates. If the log lost it later, the
        transaction is loaded as prepared.
        """
        self._timer = None
        if not self._is_wanted():
            self.cancel()
            return
        completion, is_refused = self._completion, False

        def on_refused(_: KafkaError) -> None:
            nonlocal is_refused
            is_refused = True
            self._wait(self._complete)

        self._shard.write(
            lambda machine, now_ms: complete(machine.state, completion, now_ms), on_refused
        )
        if not is_refused:
            self._is_over = True
            self._on_over(self)


_UNTAKEN: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors of a partition that has no open transaction of this producer, and never will."""
