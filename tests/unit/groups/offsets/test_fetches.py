"""What groups have committed, as those who ask are told."""

import pytest

from headrace.groups.offsets.fetches import FetchedOffset, OffsetQuery
from headrace.groups.offsets.store import CommittedOffset
from tests.unit.groups.machines import NOW_MS, Groups, offset, topic


@pytest.fixture
def groups() -> Groups:
    groups = Groups()
    groups.commit("g", topic("a", offset(0, 5, "m"), offset(1, 6)), topic("b", offset(0, 7)))
    return groups


def known(value: int, metadata: str = "") -> CommittedOffset:
    return CommittedOffset(value, metadata=metadata, commit_timestamp_ms=NOW_MS)


def test_partitions_without_an_offset_have_none(groups: Groups) -> None:
    fetched = groups.fetch(OffsetQuery("g", [("a", [0, 9]), ("nope", [0])]))
    assert fetched == {
        "a": [FetchedOffset(0, known(5, "m")), FetchedOffset(9, None)],
        "nope": [FetchedOffset(0, None)],
    }


def test_a_group_that_is_not_there_has_committed_nothing(groups: Groups) -> None:
    assert groups.fetch(OffsetQuery("h", [("a", [0])])) == {"a": [FetchedOffset(0, None)]}
    assert groups.fetch(OffsetQuery("h", None)) == {}


def test_no_topics_at_all_are_all_that_there_are(groups: Groups) -> None:
    fetched = groups.fetch(OffsetQuery("g", None))
    assert fetched == {
        "a": [FetchedOffset(0, known(5, "m")), FetchedOffset(1, known(6))],
        "b": [FetchedOffset(0, known(7))],
    }
    assert groups.fetch(OffsetQuery("g", [])) == {}


def test_who_requires_stable_offsets_is_told_where_a_transaction_is_under_way(
    groups: Groups,
) -> None:
    groups.commit("g", topic("a", offset(0, 50), offset(2, 60)), producer_id=7)
    query = OffsetQuery("g", [("a", [0, 1, 2])], is_stable_required=True)
    assert groups.fetch(query) == {
        "a": [
            FetchedOffset(0, None, is_unstable=True),
            FetchedOffset(1, known(6)),
            FetchedOffset(2, None, is_unstable=True),
        ]
    }
    assert groups.fetch(query._replace(is_stable_required=False)) == {
        "a": [FetchedOffset(0, known(5, "m")), FetchedOffset(1, known(6)), FetchedOffset(2, None)]
    }
    groups.machine.end_transaction(7, 0, is_commit=True)
    assert groups.fetch(query)["a"][0].committed == known(50)


def test_all_offsets_are_those_that_count_already(groups: Groups) -> None:
    groups.commit("h", topic("a", offset(0, 50)), producer_id=7)
    assert groups.fetch(OffsetQuery("h", None, is_stable_required=True)) == {}


def test_anybody_may_ask_a_group_that_has_no_members(groups: Groups) -> None:
    query = OffsetQuery("g", [("b", [0])], member_id="m", member_epoch=3)
    assert groups.fetch(query) == {"b": [FetchedOffset(0, known(7))]}
