"""Whether a history of operations on one object could have happened one at a time.

    history = [Operation("create", called=0.0, returned=0.4, outcome=True), ...]
    expect(is_linearizable(history, topic_model, initial=False))

Each operation takes effect at one instant between its call and its response. One whose outcome is
not known takes effect at any time after its call, or never. The search is that of Wing and Gong,
and remembers where it has been (Lowe): histories of one object here are short.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple

UNKNOWN: Final = object()
"""The outcome of an operation that was not answered, or answered with "it may have happened"."""
NEVER: Final = float("inf")

State = Hashable
Model = Callable[[State, "Operation"], tuple[State, object]]
"""Returns the state after an operation, and its outcome."""


class Operation(NamedTuple):
    """What a client asked, when, and what it was told."""

    name: str
    called: float
    returned: float
    outcome: object
    value: Hashable = None


def is_linearizable(history: Sequence[Operation], model: Model, initial: State) -> bool:
    """Return whether there is an order that explains every outcome."""
    operations = sorted(history, key=lambda each: each.called)
    ends = [NEVER if each.outcome is UNKNOWN else each.returned for each in operations]
    everything = (1 << len(operations)) - 1
    known = sum(1 << at for at, each in enumerate(operations) if each.outcome is not UNKNOWN)
    seen: set[tuple[int, State]] = set()
    stack: list[tuple[int, State]] = [(0, initial)]
    while stack:
        done, state = stack.pop()
        if done & known == known:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        waiting = [at for at in range(len(operations)) if not done >> at & 1]
        first_end = min(ends[at] for at in waiting)
        for at in waiting:
            operation = operations[at]
            if operation.called > first_end:
                break  # another one has ended before this and all that follow were called
            after, outcome = model(state, operation)
            if operation.outcome is UNKNOWN or outcome == operation.outcome:
                stack.append((done | 1 << at, after))
    assert known & everything == known
    return False


def topic_model(state: State, operation: Operation) -> tuple[State, object]:
    """A topic that is there or not: creating and deleting it succeed or do not, reads tell."""
    match operation.name:
        case "create":
            return True, state is False
        case "delete":
            return False, state is True
        case _:
            return state, state


def register_model(state: State, operation: Operation) -> tuple[State, object]:
    """A value that is written and read."""
    if operation.name == "write":
        return operation.value, True
    return state, state
