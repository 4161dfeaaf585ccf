"""What is part of a transaction: partitions join it, and brokers ask whether they did.

Clients of version 1 say AddPartitionsToTxn before they produce; from version 2 on the broker that
gets the first records says it for them (KIP-890). Either way a partition that is not part of the
transaction would never get its marker, and must not take records.
"""

from collections.abc import Collection

from msgspec.structs import replace

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.errors import ErrorCode
from headrace.ids import NO_PRODUCER_ID
from headrace.txn.records import to_record
from headrace.txn.state import Place, Producer, Status, TransactionsState, completing


def add_partitions(  # noqa: PLR0917  the request, and what every operation gets
    state: TransactionsState,
    producer: Producer,
    places: Collection[Place],
    client_version: int,
    now_ms: int,
    reply: Reply[None],
) -> Outcome:
    """Add partitions to the producer's transaction, which begins with the first; reply None."""
    found = state.find_own(producer)
    if found.status.is_prepared:
        raise completing(found)
    is_ongoing = found.status is Status.ONGOING
    present = found.partitions if is_ongoing else ()
    added = tuple(dict.fromkeys((*present, *places)))
    if is_ongoing and len(added) == len(present):
        return Outcome(replies=(told(reply, None),))
    changed = replace(
        found,
        status=Status.ONGOING,
        partitions=added,
        updated_ms=now_ms,
        started_ms=found.started_ms if is_ongoing else now_ms,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=NO_PRODUCER_ID,
        client_version=client_version,
    )
    return Outcome((to_record(changed, state.version_of()),), (told(reply, None),))


def verify_partitions(
    state: TransactionsState,
    producer: Producer,
    places: Collection[Place],
    reply: Reply[dict[Place, ErrorCode]],
) -> Outcome:
    """Reply for each partition whether it is part of the producer's transaction.

    The reply has NONE or TRANSACTION_ABORTABLE for each.
    """
    found = state.find_own(producer)
    if found.status.is_prepared:
        raise completing(found)
    present = found.partitions if found.status is Status.ONGOING else ()
    answer = {
        place: ErrorCode.NONE if place in present else ErrorCode.TRANSACTION_ABORTABLE
        for place in places
    }
    return Outcome(replies=(told(reply, answer),))
