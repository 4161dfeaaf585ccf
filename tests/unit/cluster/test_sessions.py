import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.sessions import SessionRow, Sessions
from headrace.ids import BrokerId

TIMEOUT_MS = 8000
GRACE_MS = 4000
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def sessions_of(*brokers: BrokerId, now_ms: int = 0) -> Sessions:
    sessions = Sessions(timeout_ms=TIMEOUT_MS)
    sessions.begin([(broker, 10 + broker) for broker in brokers], now_ms)
    return sessions


def wait(sessions: Sessions, from_ms: int, to_ms: int) -> list[tuple[BrokerId, int]]:
    """Do what a shell does: call when asked to, until a time."""
    now_ms, ended = from_ms, sessions.expired(from_ms)
    while (due_ms := sessions.deadline_ms()) is not None and due_ms <= to_ms:
        assert due_ms >= now_ms
        now_ms, ended = due_ms, sessions.expired(due_ms)
    return sessions.expired(to_ms) if to_ms > now_ms else ended


def row(sessions: Sessions, broker: BrokerId, now_ms: int) -> SessionRow:
    return next(each for each in sessions.describe(now_ms) if each.broker == broker)


def test_a_silent_broker_is_reported_once_its_timeout_has_passed() -> None:
    sessions = sessions_of(ONE)
    assert wait(sessions, 0, TIMEOUT_MS - 1) == []
    assert wait(sessions, TIMEOUT_MS - 1, TIMEOUT_MS) == [(ONE, 11)]


def test_a_heartbeat_renews_a_session() -> None:
    sessions = sessions_of(ONE)
    assert wait(sessions, 0, 5000) == []
    assert sessions.heard(ONE, 11, 5000)
    assert wait(sessions, 5000, 5000 + TIMEOUT_MS - 1) == []
    assert wait(sessions, 5000 + TIMEOUT_MS - 1, 5000 + TIMEOUT_MS) == [(ONE, 11)]


def test_a_heartbeat_of_an_unknown_broker_or_of_another_life_is_refused_and_renews_nothing() -> (
    None
):
    sessions = sessions_of(ONE)
    for epoch in (10, 12):
        assert not sessions.heard(ONE, epoch, 3000)
    assert not sessions.heard(TWO, 12, 3000)
    assert wait(sessions, 3000, TIMEOUT_MS) == [(ONE, 11)]


def test_what_ended_is_reported_in_the_order_of_deadlines_until_it_is_fenced_or_heard() -> None:
    sessions = sessions_of(ONE, TWO, THREE)
    sessions.heard(THREE, 13, 100)
    sessions.heard(ONE, 11, 200)
    expected = [(TWO, 12), (THREE, 13), (ONE, 11)]
    assert wait(sessions, 200, TIMEOUT_MS + 200) == expected
    assert wait(sessions, TIMEOUT_MS + 200, TIMEOUT_MS + 9000) == expected
    now_ms = TIMEOUT_MS + 9000
    sessions.fenced(THREE, 13)
    assert sessions.heard(TWO, 12, now_ms)
    assert sessions.expired(now_ms) == [(ONE, 11)]
    sessions.forget(ONE)
    assert sessions.expired(now_ms) == []


def test_a_session_that_is_being_fenced_does_not_make_the_shell_spin() -> None:
    sessions = sessions_of(ONE)
    assert wait(sessions, 0, TIMEOUT_MS) == [(ONE, 11)]
    assert sessions.deadline_ms() == TIMEOUT_MS + TIMEOUT_MS // 4


def test_a_fenced_broker_has_no_deadline_until_it_is_heard_of() -> None:
    sessions = sessions_of(ONE)
    wait(sessions, 0, TIMEOUT_MS)
    sessions.fenced(ONE, 11)
    assert sessions.deadline_ms() is None
    sessions.suspect(ONE, 50_000)
    assert sessions.expired(50_000) == []
    assert sessions.heard(ONE, 11, 60_000)
    assert wait(sessions, 60_000, 60_000 + TIMEOUT_MS) == [(ONE, 11)]


def test_the_fencing_of_a_former_life_leaves_the_session_alone() -> None:
    sessions = sessions_of(ONE)
    sessions.registered(ONE, 20, 100)
    sessions.fenced(ONE, 11)
    assert wait(sessions, 100, TIMEOUT_MS + 100) == [(ONE, 20)]


def test_a_registration_starts_a_session_and_an_old_one_changes_nothing() -> None:
    sessions = sessions_of(ONE)
    assert wait(sessions, 0, TIMEOUT_MS) == [(ONE, 11)]
    sessions.registered(ONE, 20, TIMEOUT_MS)
    assert sessions.expired(TIMEOUT_MS) == []
    sessions.registered(ONE, 11, TIMEOUT_MS + 1)
    assert not sessions.heard(ONE, 11, TIMEOUT_MS + 1)
    assert sessions.heard(ONE, 20, TIMEOUT_MS + 1)


def test_a_suspect_is_reported_after_the_grace_period_and_never_before() -> None:
    sessions = sessions_of(ONE)
    sessions.suspect(ONE, 1000)
    assert wait(sessions, 1000, 1000 + GRACE_MS - 1) == []
    assert wait(sessions, 1000 + GRACE_MS - 1, 1000 + GRACE_MS) == [(ONE, 11)]


def test_a_suspicion_never_extends_a_session_not_even_a_repeated_one() -> None:
    sessions = sessions_of(ONE, TWO)
    for now_ms in range(1000, 5000, 1000):
        sessions.suspect(ONE, now_ms)
    assert wait(sessions, 4000, 1000 + GRACE_MS) == [(ONE, 11)]
    sessions.suspect(TWO, TIMEOUT_MS - 1)
    assert wait(sessions, TIMEOUT_MS - 1, TIMEOUT_MS) == [(ONE, 11), (TWO, 12)]


def test_one_whose_process_is_gone_is_reported_at_once() -> None:
    sessions = sessions_of(ONE, TWO)
    sessions.gone(ONE, 1000)
    assert sessions.expired(1000) == [(ONE, 11)]
    sessions.fenced(ONE, 11)
    sessions.gone(ONE, 1001)
    assert sessions.expired(1001) == []


def test_one_that_is_gone_is_heard_of_again() -> None:
    sessions = sessions_of(ONE)
    sessions.gone(ONE, 1000)
    assert sessions.heard(ONE, 11, 1000)
    assert sessions.expired(1000) == []


def test_a_heartbeat_clears_a_suspicion() -> None:
    sessions = sessions_of(ONE)
    sessions.suspect(ONE, 1000)
    assert row(sessions, ONE, 1000).is_suspect
    assert sessions.heard(ONE, 11, 2000)
    assert not row(sessions, ONE, 2000).is_suspect
    assert wait(sessions, 2000, 2000 + TIMEOUT_MS - 1) == []


def test_slander_fences_nobody_whose_heartbeats_arrive() -> None:
    sessions = sessions_of(ONE)
    for now_ms in range(0, 60_000, 100):
        sessions.suspect(ONE, now_ms)
        if now_ms % 2000 == 0:
            assert sessions.heard(ONE, 11, now_ms)
        assert sessions.expired(now_ms) == []


@pytest.mark.parametrize("pause_ms", [TIMEOUT_MS // 2 + 1, TIMEOUT_MS, 50 * TIMEOUT_MS])
def test_a_controller_that_was_paused_gives_everybody_a_fresh_timeout(pause_ms: int) -> None:
    sessions = sessions_of(ONE, TWO)
    sessions.suspect(TWO, 1000)
    now_ms = 1000 + pause_ms
    assert sessions.expired(now_ms) == []
    assert sessions.pauses == 1
    assert wait(sessions, now_ms, now_ms + TIMEOUT_MS - 1) == []
    ended = wait(sessions, now_ms + TIMEOUT_MS - 1, now_ms + TIMEOUT_MS)
    assert sorted(ended) == [(ONE, 11), (TWO, 12)]
    assert sessions.pauses == 1


def test_what_ended_before_a_pause_stays_ended() -> None:
    sessions = sessions_of(ONE, TWO)
    wait(sessions, 0, 2000)
    sessions.heard(TWO, 12, 2000)
    assert wait(sessions, 2000, TIMEOUT_MS) == [(ONE, 11)]
    assert sessions.expired(10 * TIMEOUT_MS) == [(ONE, 11)]


def test_a_clock_that_goes_back_fences_nobody_and_delays_nobody_for_long() -> None:
    sessions = sessions_of(ONE, now_ms=1_000_000)
    assert wait(sessions, 1_000_000, 1_003_000) == []
    assert sessions.expired(500_000) == []
    assert wait(sessions, 500_000, 504_999) == []
    assert wait(sessions, 504_999, 505_000) == [(ONE, 11)]


def test_a_late_timer_is_no_pause_even_if_nobody_else_is_heard() -> None:
    sessions, now_ms = sessions_of(ONE), 0
    while not (ended := sessions.expired(now_ms)):
        due_ms = sessions.deadline_ms()
        assert due_ms is not None
        assert now_ms < 2 * TIMEOUT_MS
        now_ms = due_ms + 15
    assert ended == [(ONE, 11)]
    assert sessions.pauses == 0


def test_a_new_controller_restarts_every_session() -> None:
    sessions = sessions_of(ONE, TWO)
    assert len(wait(sessions, 0, TIMEOUT_MS)) == 2
    sessions.begin([(ONE, 11), (THREE, 13)], 20_000)
    assert sessions.expired(20_000) == []
    assert not sessions.heard(TWO, 12, 20_001)
    assert wait(sessions, 20_001, 20_000 + TIMEOUT_MS) == [(ONE, 11), (THREE, 13)]
    assert sessions.pauses == 0


def test_the_description_says_when_each_was_heard_and_when_it_ends() -> None:
    sessions = sessions_of(THREE, TWO, ONE)
    sessions.heard(ONE, 11, 100)
    wait(sessions, 100, TIMEOUT_MS)
    sessions.fenced(TWO, 12)
    assert list(sessions.describe(TIMEOUT_MS + 30)) == [
        SessionRow(ONE, 11, TIMEOUT_MS - 70, 70, is_suspect=False),
        SessionRow(TWO, 12, None, None, is_suspect=False),
        SessionRow(THREE, 13, None, -30, is_suspect=False),
    ]


def test_there_is_nothing_to_wait_for_without_brokers() -> None:
    sessions = Sessions(timeout_ms=TIMEOUT_MS)
    assert sessions.deadline_ms() is None
    assert sessions.expired(5) == []
    sessions.suspect(ONE, 5)
    sessions.forget(ONE)
    sessions.fenced(ONE, 1)
    assert list(sessions.describe(5)) == []


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["heard", "suspect", "fenced", "registered", "forget", "nothing"]),
        st.integers(1, 3),
        st.integers(0, 3),
        st.integers(0, TIMEOUT_MS // 2),
    ),
    max_size=60,
)


@given(STEPS)
def test_every_session_ends_when_a_list_of_deadlines_says(
    moves: list[tuple[str, int, int, int]],
) -> None:
    """A model that looks through all deadlines, while the clock never stands still for long."""
    sessions = sessions_of(ONE, TWO)
    epochs = {ONE: 11, TWO: 12}
    due: dict[BrokerId, int] = {ONE: TIMEOUT_MS, TWO: TIMEOUT_MS}
    now_ms = 0
    for move, number, epoch_step, gap_ms in moves:
        now_ms += gap_ms
        broker = BrokerId(number)
        epoch = epochs.get(broker, 10) + epoch_step - 1
        match move:
            case "heard":
                is_known = epochs.get(broker) == epoch
                assert sessions.heard(broker, epoch, now_ms) is is_known
                if is_known:
                    due[broker] = now_ms + TIMEOUT_MS
            case "suspect":
                sessions.suspect(broker, now_ms)
                # What ended before is over, but the machine learns of it only in `expired`.
                if broker in due:
                    due[broker] = min(due[broker], now_ms + GRACE_MS)
            case "fenced":
                sessions.fenced(broker, epoch)
                if epochs.get(broker) == epoch:
                    due.pop(broker, None)
            case "registered":
                sessions.registered(broker, epoch, now_ms)
                if broker not in epochs or epoch > epochs[broker]:
                    epochs[broker] = epoch
                    due[broker] = now_ms + TIMEOUT_MS
            case "forget":
                sessions.forget(broker)
                epochs.pop(broker, None)
                due.pop(broker, None)
        over = sorted(at_ms for at_ms in due.values() if at_ms <= now_ms)
        ended = sessions.expired(now_ms)
        assert [due[each] for each, _ in ended] == over
        assert all(epochs[each] == epoch for each, epoch in ended)
        left = [at_ms for at_ms in due.values() if at_ms > now_ms]
        expected = min([*left, now_ms + TIMEOUT_MS // 4]) if due else None
        assert sessions.deadline_ms() == expected
        assert {each.broker for each in sessions.describe(now_ms)} == set(epochs)
