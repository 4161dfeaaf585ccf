"""The decisions on the batches of a sink, and their consequences for later runs. Pure.

The journal of a sink (a streaming query, or one batch write) has two kinds of records: a `Claim`
says which run may decide from here on, a `Decision` says that a batch is to be committed, with its
transactions. Each kind has its own key, so that compaction keeps one of each. `History` is their
sum in log order; the functions below are the rules.

Why no row is lost or duplicated, whatever fails:

- Only the run of the last claim decides. A claim has a larger producer epoch than all before it,
  and the partition refuses records of older epochs after it. So a run that has written a claim and
  then reads up to it knows for good whether the previous batch was decided.
- A run that lost its claim is over: it is remembered, and what its tasks wrote before another run's
  claim can be in no decision. So the claiming run may abort what earlier runs left, at any later
  time, without checking again.
- Transactions are committed only after the decision that names them, and never aborted after it.
  So any run can finish a decided batch, any number of times.
- A driver that stops a query may not know its name. It writes a `Stop` into every journal and then
  looks for claims of its writers. A task that finds the stop does not write; if it finds none, the
  claim under which it writes is before the stop, and the driver finds that.
- A task first requests its producer id and then reads the journal; a cleanup first writes to the
  journal and then lists producer ids. One of the two sees the other, so no abandoned task leaves a
  transaction open.
"""

from enum import Enum
from typing import Final

import msgspec

from headrace.errors import HeadraceError

PAST_RUNS_MAX: Final = 32
"""How many earlier runs a claim remembers; a task of one of them is refused."""


class Fenced(HeadraceError):
    """Another run writes for this sink now, or has written more than this run knows."""


class Token(msgspec.Struct, frozen=True, array_like=True):
    """The producer id and epoch of a journal record, which the partition's fence uses."""

    producer_id: int
    producer_epoch: int
    sequence: int


class Writer(msgspec.Struct, frozen=True):
    """Which query of a driver made a writer, and when by the clock of the driver's machine."""

    label: str = ""
    """The same for every writer of a query; empty if there is nothing to tell queries apart by."""
    made_ns: int = 0


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """The transaction of one attempt at one Spark partition, as its coordinator knows it."""

    partition: int
    attempt: int
    producer_id: int
    producer_epoch: int
    claim_epoch: int
    """The epoch of the claim under which it was opened."""


class Claim(msgspec.Struct, frozen=True):
    """From here on `run` decides."""

    run: str
    token: Token
    past: tuple[str, ...] = ()
    """Runs that held the sink before, the latest last."""
    writer: str = ""
    """What the driver calls the query, which knows neither its name nor its run; may be empty."""


class Decision(msgspec.Struct, frozen=True):
    """A batch is to be seen; `is_ended` once all of its transactions are."""

    batch: int
    run: str
    token: Token
    slots: tuple[Slot, ...] = ()
    is_ended: bool = False


class Stop(msgspec.Struct):
    """The writers of a query that were made up to then are over."""

    made_ns: int
    written_ms: int = 0
    """When it came into the log, in ms since 1970."""


class History(msgspec.Struct):
    """The journal of one sink, as far as it was read."""

    claim: Claim | None = None
    decision: Decision | None = None
    held_since: int = 0
    """The epoch of the first claim since which no other run has claimed."""
    past: tuple[str, ...] = ()
    """Runs that are over, the latest last."""

    def apply(self, record: Claim | Decision) -> None:
        """Apply the next record of the log."""
        if isinstance(record, Claim):
            held = self.claim
            if held is None or held.run != record.run:
                self.held_since = record.token.producer_epoch
            # A claim does not know of one that came while it was made.
            known = (*self.past, *record.past, *(() if held is None else (held.run,)))
            past = dict.fromkeys(run for run in known if run != record.run)
            self.past = tuple(past)[-PAST_RUNS_MAX:]
            self.claim = record
        else:
            self.decision = record

    @property
    def unended(self) -> Decision | None:
        """The decided batch whose transactions have to be ended, if any."""
        decision = self.decision
        return None if decision is None or decision.is_ended else decision


class TaskStep(Enum):
    """What a task does, as the journal stands."""

    CLAIM = "claim the sink for its run, then ask again"
    SKIP = "write nothing: the batch is decided"
    WRITE = "write"


def task_step(history: History, run: str, batch: int) -> TaskStep:
    """Return what a task of a run does for a batch; raise Fenced if the run is over."""
    if not _holds(history, run):
        if is_over(history, run):
            raise _fenced(history, run)
        return TaskStep.CLAIM
    return TaskStep.SKIP if _is_decided(history, batch) else TaskStep.WRITE


def is_to_be_decided(history: History, run: str, batch: int, slots: tuple[Slot, ...]) -> bool:
    """Return whether the driver of a run must decide a batch; raise Fenced if superseded.

    If not, the batch is decided already, and its `unended` transactions must be ended.
    """
    if not _holds(history, run) or any(slot.claim_epoch < history.held_since for slot in slots):
        raise _fenced(history, run)
    return not _is_decided(history, batch)


def may_abort(history: History, run: str, batch: int) -> bool:
    """Return whether what tasks of a run wrote for a batch is in no decision.

    Valid only after a claim that follows the tasks: until then a decision might be in flight.
    """
    decision = history.decision
    return decision is None or decision.batch != batch or decision.run != run


def is_over(history: History, run: str) -> bool:
    """Return whether a run can neither decide nor claim any more."""
    return run in history.past


def claim_of(
    history: History, run: str, producer_id: int, producer_epoch: int, writer: str = ""
) -> Claim:
    """Make the claim of a run on top of a history."""
    held = () if history.claim is None else (history.claim.run,)
    past = (*history.past, *(other for other in held if other != run))
    return Claim(run, Token(producer_id, producer_epoch, 0), past[-PAST_RUNS_MAX:], writer)


def decision_of(history: History, batch: int, slots: tuple[Slot, ...]) -> Decision:
    """Make the decision for a batch; its run holds the claim."""
    assert history.claim is not None, "a batch is decided under a claim"
    return Decision(batch, history.claim.run, _next_token(history, history.claim), slots)


def ending_of(history: History) -> Decision:
    """Make the note that all transactions of the last decision are ended."""
    assert history.claim is not None, "an ending is noted under a claim"
    assert history.decision is not None, "what is ended was decided"
    token = _next_token(history, history.claim)
    return msgspec.structs.replace(history.decision, token=token, slots=(), is_ended=True)


def _next_token(history: History, claim: Claim) -> Token:
    producer = claim.token.producer_id, claim.token.producer_epoch
    used = claim.token.sequence
    decision = history.decision
    if decision is not None:
        token = decision.token
        if (token.producer_id, token.producer_epoch) == producer:
            used = token.sequence
    return Token(*producer, used + 1)


def _holds(history: History, run: str) -> bool:
    return history.claim is not None and history.claim.run == run


def _is_decided(history: History, batch: int) -> bool:
    decision = history.decision
    if decision is None or decision.batch < batch:
        return False
    if decision.batch > batch:
        raise Fenced(
            f"batch {decision.batch} of this query is written already and its checkpoint asks for "
            f"batch {batch}: the checkpoint is older than what was written. Go back to the newer "
            "one, or start with a new checkpoint at the offsets that you want"
        )
    return True


def _fenced(history: History, run: str) -> Fenced:
    holder = "nobody" if history.claim is None else f"run {history.claim.run}"
    return Fenced(
        f"run {run} may not write any more: {holder} writes for this query now. Nothing of this "
        "run's batch will be seen; is the query running twice on one checkpoint?"
    )
