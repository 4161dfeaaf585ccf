"""Which partitions the requests of a fetch session name (KIP-227)."""

from headrace.config import INT32_MAX
from headrace.replication.session_requests import SessionRequests


def begun(*names: str) -> SessionRequests[str]:
    """A session in which the leader knows some partitions."""
    session = SessionRequests[str]()
    for name in names:
        session.name(name)
    assert session.next(100) == (list(names), [])
    session.on_response(7)
    return session


def test_the_first_request_names_everything_and_later_ones_what_changed() -> None:
    session = begun("a", "b", "c")
    assert (session.session_id, session.epoch) == (7, 1)
    assert session.next(100) == ([], [])
    session.on_response(7)
    assert session.epoch == 2
    session.name("b")
    assert session.next(100) == (["b"], [])


def test_a_partition_that_is_not_wanted_any_more_is_forgotten_once() -> None:
    session = begun("a", "b")
    session.forget("a")
    session.forget("unknown")
    assert session.next(100) == ([], ["a"])
    assert session.next(100) == ([], [])
    assert not session.is_empty
    session.forget("b")
    assert session.is_empty


def test_one_that_comes_back_before_it_was_forgotten_is_named_again() -> None:
    session = begun("a")
    session.forget("a")
    session.name("a")
    assert session.next(100) == (["a"], [])


def test_many_names_go_out_in_several_requests() -> None:
    session = SessionRequests[str]()
    for name in "abcde":
        session.name(name)
    assert session.next(2) == (["a", "b"], [])
    assert session.has_more_to_name
    session.on_response(7)
    assert session.next(2) == (["c", "d"], [])
    assert session.next(2) == (["e"], [])
    assert not session.has_more_to_name


def test_after_a_failure_everything_is_named_and_the_old_session_is_ended() -> None:
    session = begun("a", "b")
    session.name("c")
    session.forget("b")
    session.on_failure()
    assert (session.session_id, session.epoch) == (7, 0)
    assert session.next(100) == (["c", "a"], [])
    session.on_response(9)
    assert (session.session_id, session.epoch) == (9, 1)


def test_without_a_session_all_partitions_take_turns() -> None:
    session = SessionRequests[str]()
    for name in "abc":
        session.name(name)
    asked = []
    for _ in range(3):
        named, _ = session.next(2)
        asked += list(named)
        session.on_response(0)
    assert asked == ["a", "b", "c", "a", "b", "c"]
    assert session.epoch == 0


def test_the_epoch_of_a_session_starts_over_after_the_largest_number() -> None:
    session = begun("a")
    session.epoch = INT32_MAX
    session.on_response(7)
    assert session.epoch == 1
