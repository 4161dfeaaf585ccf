"""What administrators see of transactions: DescribeTransactions and ListTransactions (KIP-664)."""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.errors import ErrorCode, KafkaError
from headrace.txn.state import Status, Transaction, TransactionsState

STATUS_BY_LABEL: Final = {status.label: status for status in Status}
ANY_DURATION_MS: Final = -1


class Filter(NamedTuple):
    """Which transactional ids are wanted: those that meet all of it."""

    statuses: AbstractSet[Status]
    """Empty if any will do; so for producer ids."""
    producer_ids: AbstractSet[int]
    longer_than_ms: int = ANY_DURATION_MS
    """How long ago it began; one that never did is taken to be as old as can be, as in Kafka."""


def describe(state: TransactionsState, transactional_id: str, reply: Reply[Transaction]) -> Outcome:
    """Answer the `Transaction` of an id; KafkaError TRANSACTIONAL_ID_NOT_FOUND."""
    found = state.transactions.get(transactional_id)
    if found is None:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            f"nobody has transactional id {transactional_id!r}",
        )
    return Outcome(replies=(told(reply, found),))


def select(
    state: TransactionsState, wanted: Filter, now_ms: int, ids: Iterable[str] | None = None
) -> Iterator[Transaction]:
    """Yield the transactions that a filter lets through: of all, or of those named that exist."""
    for transactional_id in state.transactions if ids is None else ids:
        found = state.transactions.get(transactional_id)
        if (
            found is not None
            and (not wanted.statuses or found.status in wanted.statuses)
            and (not wanted.producer_ids or found.producer_id in wanted.producer_ids)
            and (wanted.longer_than_ms < 0 or now_ms - found.started_ms > wanted.longer_than_ms)
        ):
            yield found
