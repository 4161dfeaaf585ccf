"""The epochs and partitions of a share session."""

from headrace.client.share.session import SharedPartition, ShareSession, epoch_after
from headrace.ids import TopicId

A, B, C = (SharedPartition(TopicId(bytes(16)), "orders", index) for index in range(3))


def test_the_epoch_after_the_largest_is_one_because_zero_would_open_a_session() -> None:
    assert epoch_after(2**31 - 1) == 1
    assert epoch_after(2**31 - 2) == 2**31 - 1


def test_fetches_and_acknowledgements_count_together() -> None:
    session = ShareSession()
    assert session.is_new
    session.fetched({A})
    session.acknowledged()
    session.fetched({A})
    assert (session.epoch, session.is_new) == (3, False)


def test_a_fetch_names_only_what_is_new_and_what_is_not_wanted_any_more() -> None:
    session = ShareSession()
    assert session.plan({A, B}) == (0, {A, B}, set())
    session.fetched({A, B})
    assert session.plan({A, B}) == (1, set(), set())
    assert session.plan({B, C}) == (1, {C}, {A})
    session.fetched({B, C})
    assert session.plan({B, C}) == (2, set(), set())


def test_a_plan_that_was_not_answered_changes_nothing() -> None:
    session = ShareSession()
    session.plan({A})
    assert session.plan({A}) == (0, {A}, set())


def test_a_session_that_is_reset_asks_for_everything_again() -> None:
    session = ShareSession()
    session.fetched({A, B})
    session.reset()
    assert session.is_new
    assert session.plan({A, B}) == (0, {A, B}, set())


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    other = A._replace(topic_id=TopicId(bytes(range(16))))
    session = ShareSession()
    session.fetched({A})
    assert session.plan({other}) == (1, {other}, {A})
