"""Records that were given up, on their way to the dead letters (KIP-1191)."""

from headrace.share.partition.changes import Outcome, Outcomes
from headrace.share.partition.types import Cause, DeadLetter
from headrace.share.partition.window import ARCHIVED, ARCHIVING, Window


def hand_out(window: Window) -> tuple[DeadLetter, ...]:
    """Give what is to be copied and that nobody copies yet.

    Only what is written down as given up, or could not be: what is copied is not delivered again.
    """
    letters: list[DeadLetter] = []
    for run in window.runs:
        if run.state == ARCHIVING and run.change is None and not run.is_handed_out:
            run.is_handed_out = True
            cause = run.cause or Cause.REJECTED
            letters.append(DeadLetter(run.first, run.last, run.count, cause))
    return tuple(letters)


def archive(window: Window, letter: DeadLetter) -> list[Outcome]:
    """Have what was copied be over; give what became of it."""
    outcomes = Outcomes()
    # Letters that were handed out one after the other may be in one run by now.
    for run in window.between(letter.first_offset, letter.last_offset):
        if run.state == ARCHIVING and run.is_handed_out:
            window.set_state(run, ARCHIVED, run.cause)
            outcomes.add(run.first, run.last, ARCHIVED, run.count, run.cause)
    if letter.last_offset >= window.start_offset:
        window.join(letter.first_offset, letter.last_offset)
    return outcomes.end()


def take_back(window: Window, letter: DeadLetter) -> None:
    """Have what could not be copied be handed out again."""
    for run in window.between(letter.first_offset, letter.last_offset):
        if run.state == ARCHIVING:
            run.is_handed_out = False
