"""Records that were given up and wait for their dead letters (KIP-1191)."""

from headrace.share.partition.changes import Outcome, Outcomes
from headrace.share.partition.types import Cause, DeadLetter
from headrace.share.partition.window import ARCHIVED, ARCHIVING, Window


def hand_out(window: Window) -> tuple[DeadLetter, ...]:
    """Return the records to copy that are not being copied yet.

    Only those whose archiving state was persisted, or failed to be: a copied record is not
    delivered again.
    """
    letters: list[DeadLetter] = []
    for run in window.runs:
        if run.state == ARCHIVING and run.change is None and not run.is_handed_out:
            run.is_handed_out = True
            cause = run.cause or Cause.REJECTED
            letters.append(DeadLetter(run.first, run.last, run.count, cause))
    return tuple(letters)


def archive(window: Window, letter: DeadLetter) -> list[Outcome]:
    """Archive copied records; return their outcomes."""
    outcomes = Outcomes()
    # Letters that were handed out separately may be in one run by now.
    for run in window.between(letter.first_offset, letter.last_offset):
        if run.state == ARCHIVING and run.is_handed_out:
            window.set_state(run, ARCHIVED, run.cause)
            outcomes.add(run.first, run.last, ARCHIVED, run.count, run.cause)
    if letter.last_offset >= window.start_offset:
        window.join(letter.first_offset, letter.last_offset)
    return outcomes.end()


def take_back(window: Window, letter: DeadLetter) -> None:
    """Hand out records again that could not be copied."""
    for run in window.between(letter.first_offset, letter.last_offset):
        if run.state == ARCHIVING:
            run.is_handed_out = False
