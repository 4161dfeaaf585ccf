"""The store of offsets: what transactions write counts once it is decided, in order."""

from headrace.groups.offsets.store import CommittedOffset, Offsets

PLACE = ("a", 0)


def put(offsets: Offsets, value: int, producer_id: int = -1, group_id: str = "g") -> None:
    offsets.put(group_id, PLACE, CommittedOffset(value), producer_id=producer_id)


def value(offsets: Offsets, group_id: str = "g") -> int | None:
    found = offsets.get(group_id, *PLACE)
    return None if found is None else found.offset


def test_what_a_transaction_writes_counts_when_it_is_committed() -> None:
    offsets = Offsets()
    put(offsets, 1)
    put(offsets, 2, producer_id=7)
    assert value(offsets) == 1
    assert offsets.is_undecided("g", *PLACE)
    offsets.end_transaction(7, is_commit=True)
    assert value(offsets) == 2
    assert not offsets.is_undecided("g", *PLACE)


def test_what_a_transaction_writes_is_forgotten_when_it_is_aborted() -> None:
    offsets = Offsets()
    put(offsets, 2, producer_id=7)
    offsets.end_transaction(7, is_commit=False)
    assert value(offsets) is None
    assert "g" not in offsets


def test_a_later_commit_outside_of_the_transaction_stays_when_that_is_committed() -> None:
    offsets = Offsets()
    put(offsets, 77, producer_id=7)
    put(offsets, 5)
    assert offsets.is_undecided("g", *PLACE)
    offsets.end_transaction(7, is_commit=True)
    assert value(offsets) == 5


def test_of_two_transactions_the_one_that_wrote_last_wins_whichever_is_decided_last() -> None:
    offsets = Offsets()
    put(offsets, 1, producer_id=7)
    put(offsets, 2, producer_id=8)
    offsets.end_transaction(8, is_commit=True)
    offsets.end_transaction(7, is_commit=True)
    assert value(offsets) == 2


def test_an_aborted_transaction_does_not_stand_in_the_way_of_an_earlier_one() -> None:
    offsets = Offsets()
    put(offsets, 1, producer_id=7)
    put(offsets, 2, producer_id=8)
    offsets.end_transaction(8, is_commit=False)
    offsets.end_transaction(7, is_commit=True)
    assert value(offsets) == 1


def test_a_transaction_of_many_groups_ends_for_all() -> None:
    offsets = Offsets()
    put(offsets, 1, producer_id=7, group_id="g")
    put(offsets, 2, producer_id=7, group_id="h")
    offsets.end_transaction(7, is_commit=True)
    assert (value(offsets, "g"), value(offsets, "h")) == (1, 2)
    assert sorted(offsets.groups()) == ["g", "h"]


def test_removing_takes_away_what_a_transaction_would_bring_back() -> None:
    offsets = Offsets()
    put(offsets, 1)
    put(offsets, 2, producer_id=7)
    offsets.remove("g", PLACE)
    assert "g" not in offsets
    offsets.end_transaction(7, is_commit=True)
    assert value(offsets) is None


def test_removing_what_is_not_there_changes_nothing() -> None:
    offsets = Offsets()
    put(offsets, 1)
    offsets.remove("g", ("a", 9))
    offsets.remove("h", PLACE)
    assert value(offsets) == 1


def test_a_transaction_that_wrote_nothing_here_can_end() -> None:
    offsets = Offsets()
    offsets.end_transaction(7, is_commit=True)
    assert list(offsets.groups()) == []


def test_groups_are_found_by_the_topics_that_they_have_offsets_of() -> None:
    offsets = Offsets()
    put(offsets, 1)
    put(offsets, 2, producer_id=7)
    put(offsets, 3, producer_id=8, group_id="h")
    put(offsets, 3, producer_id=7, group_id="h")
    offsets.put("g", ("b", 0), CommittedOffset(4))
    assert set(offsets.groups_of("a")) == {"g", "h"}
    assert set(offsets.groups_of("b")) == {"g"}
    offsets.remove("g", PLACE)
    assert set(offsets.groups_of("a")) == {"h"}
    offsets.end_transaction(8, is_commit=False)
    assert set(offsets.groups_of("a")) == {"h"}
    offsets.end_transaction(7, is_commit=True)
    assert set(offsets.groups_of("a")) == {"h"}
    offsets.remove("h", PLACE)
    assert not offsets.groups_of("a")
    assert not offsets.groups_of("nothing")
