"""Offsets and groups that end with time, and with their topics."""

import pytest

from headrace.config import INT64_MAX
from headrace.groups.administration import delete_group
from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.groups.offsets.expiry import LOOKS_AT_ONCE, TOMBSTONES_AT_ONCE, forget_topic
from headrace.groups.state import GroupId
from tests.unit.groups.machines import NOW_MS, Groups, Subscribed, offset, topic

MINUTE_MS = 60_000
RETENTION_MS = 10 * MINUTE_MS
CHECK_MS = MINUTE_MS


@pytest.fixture
def groups() -> Groups:
    groups = Groups(
        offsets_retention_minutes="10", offsets_retention_check_interval_ms=str(CHECK_MS)
    )
    groups.do(groups.machine.on_loaded(NOW_MS))
    return groups


def pass_time(groups: Groups, ms: int) -> None:
    """Move the clock, and do what is due on the way."""
    end_ms = groups.now_ms + ms
    while (due_ms := groups.machine.next_deadline_ms()) is not None and due_ms <= end_ms:
        groups.now_ms = max(due_ms, groups.now_ms)
        groups.do(groups.machine.on_deadline(groups.now_ms))
    groups.now_ms = end_ms


def test_an_offset_is_kept_for_the_retention_and_not_longer(groups: Groups) -> None:
    groups.commit("g", topic("a", offset(0, 5)))
    pass_time(groups, RETENTION_MS - 1)
    assert groups.offset("g", "a", 0) == 5
    pass_time(groups, CHECK_MS)
    assert groups.offset("g", "a", 0) is None
    assert "g" not in groups.state.offsets


def test_committing_again_begins_the_retention_anew(groups: Groups) -> None:
    groups.commit("g", topic("a", offset(0, 5), offset(1, 5)))
    pass_time(groups, RETENTION_MS // 2)
    groups.commit("g", topic("a", offset(0, 6)))
    pass_time(groups, RETENTION_MS // 2 + CHECK_MS)
    assert groups.offset("g", "a", 0) == 6
    assert groups.offset("g", "a", 1) is None


def test_a_retention_that_the_client_asked_for_comes_before_the_brokers(groups: Groups) -> None:
    groups.commit("g", topic("a", offset(0, 5)), retention_ms=2 * MINUTE_MS)
    groups.commit("h", topic("a", offset(0, 5)), retention_ms=2 * RETENTION_MS)
    pass_time(groups, 2 * MINUTE_MS)
    assert groups.offset("g", "a", 0) is None
    pass_time(groups, RETENTION_MS)
    assert groups.offset("h", "a", 0) == 5


def test_a_retention_for_ever_is_one(groups: Groups) -> None:
    assert not groups.commit("g", topic("a", offset(0, 5)), retention_ms=INT64_MAX)
    pass_time(groups, 2 * RETENTION_MS)
    assert groups.offset("g", "a", 0) == 5


def test_what_a_transaction_under_way_is_about_is_kept(groups: Groups) -> None:
    groups.commit("g", topic("a", offset(0, 5)))
    groups.commit("g", topic("a", offset(0, 6)), producer_id=7)
    pass_time(groups, 2 * RETENTION_MS)
    assert groups.offset("g", "a", 0) == 5
    groups.machine.end_transaction(7, 0, is_commit=False)
    pass_time(groups, CHECK_MS)
    assert groups.offset("g", "a", 0) is None


def test_a_group_without_members_keeps_its_offsets_from_when_the_last_one_left(
    groups: Groups,
) -> None:
    groups.commit("g", topic("a", offset(0, 5)))
    left_ms = NOW_MS + 5 * MINUTE_MS
    groups.state.groups[GroupId("g")] = ClassicGroup(
        GroupId("g"), protocol_type="consumer", state_since_ms=left_ms
    )
    pass_time(groups, RETENTION_MS + MINUTE_MS)
    assert groups.offset("g", "a", 0) == 5
    pass_time(groups, 5 * MINUTE_MS)
    assert groups.offset("g", "a", 0) is None


@pytest.mark.parametrize(
    ("protocol_type", "state", "kept"),
    [
        ("consumer", ClassicState.STABLE, {"wanted"}),
        ("consumer", ClassicState.PREPARING_REBALANCE, {"wanted", "other"}),
        ("connect", ClassicState.STABLE, {"wanted", "other"}),
    ],
)
def test_a_group_with_members_keeps_what_they_may_want(
    groups: Groups, protocol_type: str, state: ClassicState, kept: set[str]
) -> None:
    groups.commit("g", topic("wanted", offset(0, 5)), topic("other", offset(0, 5)))
    groups.state.groups[GroupId("g")] = Subscribed(
        GroupId("g"), protocol_type=protocol_type, state=state, state_since_ms=NOW_MS
    )
    pass_time(groups, 2 * RETENTION_MS)
    assert set(groups.state.offsets.committed("g")) == kept


def test_an_empty_group_goes_when_it_has_no_offsets(groups: Groups) -> None:
    empty, busy = GroupId("empty"), GroupId("busy")
    groups.state.groups[empty] = ClassicGroup(empty, protocol_type="consumer")
    groups.state.groups[busy] = ClassicGroup(busy, state=ClassicState.STABLE)
    groups.now_ms += CHECK_MS
    outcome = groups.machine.on_deadline(groups.now_ms)
    assert [record.key.group for record in outcome.records] == ["empty"]  # type: ignore[attr-defined]
    assert outcome.records[0].value is None


def test_more_than_a_batch_takes_is_deleted_in_parts(groups: Groups) -> None:
    count = TOMBSTONES_AT_ONCE + 1
    groups.commit("g", topic("a", *(offset(index, 5) for index in range(count))))
    groups.now_ms += RETENTION_MS
    first = groups.machine.on_deadline(groups.now_ms)
    assert len(first.records) == TOMBSTONES_AT_ONCE
    groups.do(first)
    assert groups.machine.next_deadline_ms() == groups.now_ms
    groups.do(groups.machine.on_deadline(groups.now_ms))
    assert "g" not in groups.state.offsets
    assert groups.machine.next_deadline_ms() == groups.now_ms + CHECK_MS


def test_a_deleted_topic_takes_its_offsets_along_those_of_transactions_too(
    groups: Groups,
) -> None:
    groups.commit("g", topic("a", offset(0, 5)), topic("b", offset(0, 6)))
    groups.commit("h", topic("a", offset(1, 5)), producer_id=7)
    groups.do(forget_topic(groups.state, "a", groups.now_ms))
    groups.machine.end_transaction(7, 0, is_commit=True)
    assert groups.offset("g", "a", 0) is None
    assert groups.offset("h", "a", 1) is None
    assert groups.offset("g", "b", 0) == 6


def test_many_offsets_of_a_deleted_topic_go_in_parts_and_new_ones_stay(groups: Groups) -> None:
    for group_id in ("g", "h"):
        offsets = (offset(index, 5) for index in range(TOMBSTONES_AT_ONCE))
        groups.commit(group_id, topic("a", *offsets))
    groups.do(forget_topic(groups.state, "a", groups.now_ms))
    groups.now_ms += 1
    groups.commit("h", topic("a", offset(0, 9)))
    pass_time(groups, 0)
    assert groups.state.offsets.committed("g") == {}
    assert list(groups.state.offsets.of_topic("h", "a")) == [0]


def test_all_groups_are_looked_at_though_not_at_once(groups: Groups) -> None:
    count = 3 * LOOKS_AT_ONCE
    for number in range(count):
        groups.commit(f"g{number}", topic("a", offset(0, 5)))
    groups.now_ms += RETENTION_MS
    turns = 0
    while groups.machine.next_deadline_ms() <= groups.now_ms:  # type: ignore[operator]
        outcome = groups.machine.on_deadline(groups.now_ms)
        assert len(outcome.records) <= TOMBSTONES_AT_ONCE
        groups.do(outcome)
        turns += 1
    assert turns >= count // TOMBSTONES_AT_ONCE
    assert not list(groups.state.offsets.groups())
    assert groups.machine.next_deadline_ms() == groups.now_ms + CHECK_MS


def test_a_group_with_very_many_offsets_is_looked_at_in_parts(groups: Groups) -> None:
    count = LOOKS_AT_ONCE
    for name in ("a", "b", "c"):
        groups.commit("g", topic(name, *(offset(index, 5) for index in range(count))))
    groups.now_ms += RETENTION_MS // 2
    groups.commit("g", topic("b", *(offset(index, 6) for index in range(count))))
    groups.now_ms += RETENTION_MS // 2
    groups.do(groups.machine.on_deadline(groups.now_ms))
    groups.commit("g", topic("c", offset(count - 1, 7)))  # where nobody has looked yet
    groups.commit("g", topic("a", offset(0, 8)))  # where somebody has
    pass_time(groups, 0)
    assert groups.machine.next_deadline_ms() == groups.now_ms + CHECK_MS
    assert {name: len(rows) for name, rows in groups.state.offsets.committed("g").items()} == {
        "a": 1,
        "b": count,
        "c": 1,
    }
    pass_time(groups, 2 * RETENTION_MS)
    assert "g" not in groups.state.offsets


@pytest.mark.slow
def test_what_goes_while_groups_are_looked_at_is_passed_over(groups: Groups) -> None:
    for number in range(2 * LOOKS_AT_ONCE):
        groups.commit(f"g{number}", topic("a", offset(0, 5)))
    groups.now_ms += RETENTION_MS
    groups.do(groups.machine.on_deadline(groups.now_ms))
    left = list(groups.state.offsets.groups())
    for group_id in left:
        groups.do(delete_group(groups.state, group_id, print))
    pass_time(groups, 0)
    assert groups.machine.next_deadline_ms() == groups.now_ms + CHECK_MS
