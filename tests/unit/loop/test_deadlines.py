"""Deadlines by key, against a dictionary that is searched."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.loop.deadlines import RETRY_MS, STALE_FACTOR_MAX, Deadlines

KEYS = st.sampled_from("abcde")


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "drop", "take"]), KEYS, st.integers(0, 30)), max_size=60
    )
)
def test_they_do_what_a_dictionary_would(steps: list[tuple[str, str, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    for step, key, time in steps:
        if step == "set":
            deadlines.set(key, time)
            model[key] = time
        elif step == "drop":
            deadlines.drop(key)
            model.pop(key, None)
        else:
            due = {each for each, at in model.items() if at <= time}
            assert {deadlines.take_due(time) for _ in due} == due
            assert deadlines.take_due(time) is None
            model = {each: at for each, at in model.items() if each not in due}
        assert deadlines.next_ms() == min(model.values(), default=None)
        assert len(deadlines) == len(model)


def test_the_earliest_comes_first() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, time in (("late", 3), ("early", 1), ("between", 2)):
        deadlines.set(key, time)
    assert [deadlines.take_due(3) for _ in range(3)] == ["early", "between", "late"]


def test_moving_one_for_ever_takes_no_more_memory() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for time in range(10_000):
        deadlines.set("member", 10_000 - time)
        deadlines.drop("member")
    assert len(deadlines._heap) < 100


def test_setting_and_dropping_beside_others_takes_no_more_memory() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for number in range(100):
        deadlines.set(f"other {number}", 20_000)
    for time in range(10_000):
        deadlines.set("member", 10_000 + time)
        deadlines.drop("member")
        deadlines.set("member", 10_000 + time)
    assert len(deadlines._heap) <= STALE_FACTOR_MAX * 102


def test_moving_one_to_and_fro_takes_no_more_memory() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for time in range(10_000, 0, -1):
        deadlines.set("member", time + 5_000)
        deadlines.set("member", time)
    assert len(deadlines._heap) < 100


def test_a_key_that_was_due_often_before_is_looked_at_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for number in range(100):
        deadlines.set(f"other {number}", 10_000)
    for time in range(100):
        deadlines.set("member", time)
        deadlines.drop("member")
    deadlines.set("member", 5_000)
    assert deadlines.next_ms() == 5_000
    assert [each for _, _, each in deadlines._heap].count("member") == 1


def test_what_could_not_be_done_is_due_again_unless_it_has_another_time_by_then() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.put_back(0)
    assert deadlines.next_ms() is None
    deadlines.set("a", 5)
    assert deadlines.take_due(7) == "a"
    deadlines.put_back(7)
    assert deadlines.next_ms() == 7 + RETRY_MS
    assert deadlines.take_due(7 + RETRY_MS) == "a"
    deadlines.set("a", 70_000)
    deadlines.put_back(7 + RETRY_MS)
    assert deadlines.next_ms() == 70_000
