"""Loading a window from its durable state."""

from headrace.errors import ErrorCode, KafkaError
from headrace.share.durable import DurableState
from headrace.share.partition.types import Cause, Limits
from headrace.share.partition.window import ACQUIRED, ARCHIVED, ARCHIVING, AVAILABLE, Run, Window


def load(durable: DurableState, start_offset: int, limits: Limits) -> Window:
    """Return the stored window, or raise if the state is inconsistent.

    Offsets without a stored state are available, as if never delivered: locks are not stored.
    Neither is why a record was given up, except for what its delivery count shows.
    """
    window = Window(start_offset)
    for batch in durable.batches:
        first, last, state, count = batch
        if first <= window.end_offset or last < first:
            raise _impossible(f"offsets {first} to {last} do not follow offset {window.end_offset}")
        if state == ACQUIRED or not AVAILABLE <= state <= ARCHIVED:
            raise _impossible(f"state {state} of offsets {first} to {last}")
        if first > window.end_offset + 1:
            window.append(Run(window.end_offset + 1, first - 1, AVAILABLE))
        run = Run(first, last, state, count)
        if state >= ARCHIVING:
            is_exhausted = count >= limits.delivery_count_limit
            run.cause = Cause.EXHAUSTED if is_exhausted else Cause.REJECTED
        window.append(run)
    window.advance()
    return window


def _impossible(what: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"The state of the share partition is inconsistent: {what}. Reset the group's offsets.",
    )
