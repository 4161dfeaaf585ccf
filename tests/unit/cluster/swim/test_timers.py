"""What is due when."""

from headrace.cluster.swim.timers import Due, Timers


def test_timers_are_due_in_their_order() -> None:
    timers = Timers()
    timers.set(Due.PROBE, 1, 30)
    timers.set(Due.PROBE, 2, 10)
    timers.set(Due.SYNC, 0, 20)
    timers.set(Due.SYNC, 1, 31)
    assert timers.first_due_ms() == 10
    assert list(timers.take_due(30)) == [(Due.PROBE, 2), (Due.SYNC, 0), (Due.PROBE, 1)]
    assert len(timers) == 1


def test_a_verdict_comes_before_the_period_that_begins_at_the_same_time() -> None:
    timers = Timers()
    timers.set(Due.PERIOD, 0, 5)
    timers.set(Due.VERDICT, 9, 5)
    assert list(timers.take_due(5)) == [(Due.VERDICT, 9), (Due.PERIOD, 0)]


def test_a_timer_that_is_set_again_is_due_once() -> None:
    timers = Timers()
    timers.set(Due.SUSPICION, 1, 50)
    timers.set(Due.SUSPICION, 1, 20)
    assert list(timers.take_due(100)) == [(Due.SUSPICION, 1)]
    assert timers.first_due_ms() is None


def test_a_cancelled_timer_is_never_due() -> None:
    timers = Timers()
    timers.set(Due.FORGET, 1, 50)
    timers.cancel(Due.FORGET, 1)
    timers.cancel(Due.FORGET, 2)
    assert timers.due_ms(Due.FORGET, 1) is None
    assert list(timers.take_due(100)) == []


def test_put_off_moves_one_kind() -> None:
    timers = Timers()
    timers.set(Due.SUSPICION, 1, 50)
    timers.set(Due.PERIOD, 0, 60)
    timers.put_off(Due.SUSPICION, 100)
    assert timers.due_ms(Due.SUSPICION, 1) == 150
    assert list(timers.take_due(149)) == [(Due.PERIOD, 0)]


def test_timers_that_are_set_and_cancelled_for_ever_take_no_room() -> None:
    timers = Timers()
    for number in range(10_000):
        timers.set(Due.PROBE, number, 10**9 - number)
        timers.cancel(Due.PROBE, number)
    assert timers.heap_size < 100


def test_timers_that_were_due_leave_no_room_taken() -> None:
    timers = Timers()
    for number in range(200):
        timers.set(Due.PROBE, number, 1)
    for number in range(200):
        timers.set(Due.PROBE, number, 10**9 if number < 60 else 2)
    assert len(list(timers.take_due(2))) == 140
    assert timers.heap_size <= 2 * len(timers) + 64
