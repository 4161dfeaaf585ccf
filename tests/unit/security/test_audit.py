"""What of repeated events is a line of the audit log."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.security import audit
from headrace.security.audit import KINDS_MAX, WINDOW_MS, AuditEvent, Folding


def denied(principal: str = "User:ann", api: str = "Produce", name: str = "orders") -> AuditEvent:
    return AuditEvent(
        kind=audit.DENIED,
        outcome=audit.DENIED,
        principal=principal,
        address="10.0.0.1:5000",
        api=api,
        names=(name,),
    )


def test_the_first_denial_is_written_at_once_and_the_others_as_one_line() -> None:
    folding = Folding()
    assert folding.take(denied(), 0) == denied()
    assert [folding.take(denied(name=f"t{number}"), 10) for number in range(5)] == [None] * 5
    assert folding.due(WINDOW_MS - 1) == []
    (line,) = folding.due(WINDOW_MS)
    assert (line.count, line.names) == (5, ("t4",))
    assert folding.due(10 * WINDOW_MS) == []
    assert folding.take(denied(), WINDOW_MS) is not None, "a new window begins"


def test_clients_and_apis_are_told_apart_and_ports_are_not() -> None:
    folding = Folding()
    assert folding.take(denied("User:bob"), 0)
    assert folding.take(denied(), 0)
    assert folding.take(denied(api="Fetch"), 0)
    assert folding.take(msgspec.structs.replace(denied(), address="10.0.0.2:5000"), 0)
    assert not folding.take(msgspec.structs.replace(denied(), address="10.0.0.1:6000"), 0)


def test_changes_are_never_counted_together() -> None:
    folding = Folding()
    change = AuditEvent(kind=audit.CHANGE, outcome=audit.DONE, principal="User:ann")
    assert [folding.take(change, 0) for _ in range(3)] == [change] * 3
    assert not folding.is_counting


def test_the_lines_of_a_window_are_bounded_whoever_asks() -> None:
    folding = Folding()
    taken = [folding.take(denied(f"User:u{number}"), 0) for number in range(5 * KINDS_MAX)]
    written = [each for each in taken if each is not None]
    assert len(written) == KINDS_MAX + 1
    assert written[-1].principal == audit.OTHERS
    (line,) = folding.due(WINDOW_MS)
    assert line.count == 4 * KINDS_MAX - 1


def test_failures_of_very_many_names_do_not_hide_who_succeeds() -> None:
    folding = Folding()
    failed = AuditEvent(kind=audit.AUTHENTICATION, outcome=audit.FAILED, principal="")
    for now_ms in (0, WINDOW_MS):
        folding.due(now_ms)
        for number in range(2 * KINDS_MAX):
            folding.take(msgspec.structs.replace(failed, principal=f"User:u{number}"), now_ms)
        admin = msgspec.structs.replace(failed, outcome=audit.SUCCEEDED, principal="User:admin")
        assert folding.take(admin, now_ms) == admin
        assert folding.take(denied(), now_ms) == denied()


def test_a_clock_that_was_moved_back_keeps_no_window_open() -> None:
    folding = Folding()
    folding.take(denied(), 10**9)
    folding.take(denied(), 10**9)
    assert [line.count for line in folding.due(0)] == [1]


def test_what_is_left_at_the_end_is_written() -> None:
    folding = Folding()
    for _ in range(3):
        folding.take(denied(), 0)
    assert [line.count for line in folding.finish()] == [2]
    assert folding.finish() == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5000))))
def test_every_denial_is_in_exactly_one_line(steps: list[tuple[str, int]]) -> None:
    folding, now_ms, lines = Folding(), 0, list[AuditEvent]()
    for who, wait_ms in steps:
        now_ms += wait_ms
        lines += folding.due(now_ms)
        if (line := folding.take(denied(who), now_ms)) is not None:
            lines.append(line)
    lines += folding.finish()
    assert sum(line.count for line in lines) == len(steps)
