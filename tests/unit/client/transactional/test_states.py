"""What a transactional producer may do in which state."""

import pytest

from headrace.client.transactional.states import (
    MAY_ABORT,
    NEXT,
    InvalidTransactionStep,
    State,
    Step,
    TransactionStates,
)


def in_state(*steps: Step) -> TransactionStates:
    states = TransactionStates()
    for step in steps:
        if step is Step.BEGIN:
            states.begin(uses_implicit_adds=True)
        else:
            states.step(step)
    return states


def state_of(states: TransactionStates) -> State:
    return states.state


OPENED = (Step.START, Step.BEGIN)


def test_a_transaction_that_goes_well_ends_where_the_next_one_begins() -> None:
    states = in_state(*OPENED, Step.CLOSE, Step.COMMIT, Step.END)
    assert state_of(states) is State.READY
    states.begin(uses_implicit_adds=True)
    assert state_of(states) is State.OPEN
    assert states.number == 2


def test_a_failure_leaves_nothing_but_an_abort() -> None:
    for steps in (OPENED, (*OPENED, Step.CLOSE), (*OPENED, Step.CLOSE, Step.COMMIT)):
        states = in_state(*steps)
        states.fail(ValueError("first"))
        assert state_of(states) is State.DOOMED
        allowed = {step for state, step in NEXT if state is State.DOOMED}
        assert allowed == {Step.ABORT, Step.FAIL, Step.BREAK}


def test_the_first_failure_is_the_one_that_is_told() -> None:
    states = in_state(*OPENED)
    first = ValueError("first")
    states.fail(first)
    states.fail(ValueError("second"))
    assert states.error is first


def test_the_next_transaction_knows_nothing_of_the_failure_before() -> None:
    states = in_state(*OPENED)
    states.fail(ValueError("of the first transaction"))
    states.step(Step.ABORT)
    states.step(Step.END)
    states.fail(ValueError("late"))
    assert state_of(states) is State.READY
    states.begin(uses_implicit_adds=False)
    assert states.error is None
    assert state_of(states) is State.OPEN
    assert not states.is_known


def test_a_second_transaction_at_the_same_time_is_refused() -> None:
    states = in_state(*OPENED)
    with pytest.raises(InvalidTransactionStep, match="has an open transaction"):
        states.begin(uses_implicit_adds=True)
    assert states.number == 1


def test_a_commit_that_is_on_its_way_is_not_aborted() -> None:
    states = in_state(*OPENED, Step.CLOSE, Step.COMMIT)
    assert state_of(states) not in MAY_ABORT
    with pytest.raises(InvalidTransactionStep, match="is committing"):
        states.step(Step.ABORT)


def test_what_is_broken_stays_so_and_keeps_its_first_reason() -> None:
    reason = ValueError("fenced")
    for state in State:
        states = TransactionStates()
        states.state = state
        states.error = reason if state is State.BROKEN else None
        states.break_down(reason)
        assert state_of(states) is State.BROKEN
        assert states.error is reason
    states.break_down(ValueError("later"))
    states.fail(ValueError("later"))
    assert states.error is reason
    for step in set(Step) - {Step.BREAK}:
        with pytest.raises(InvalidTransactionStep, match="cannot go on"):
            states.step(step)


def test_every_state_can_be_reached_and_left() -> None:
    reached = {state for _, state in NEXT.items()} | {State.NEW}
    assert reached == set(State)
    assert {state for state, _ in NEXT} == set(State)
