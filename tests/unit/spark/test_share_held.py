from hypothesis import given
from hypothesis import strategies as st

from headrace.client.share.acknowledgements import AcknowledgeType
from headrace.client.share.session import SharedPartition
from headrace.ids import TopicId
from headrace.spark.share.held import HeldRanges, Word
from tests.unit.spark.offset_ranges import disjoint, numbers

A = SharedPartition(TopicId(bytes(16)), "orders", 0)
ACCEPT, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.REJECT
LOCK_SECONDS = 30.0


@given(disjoint(), disjoint(), disjoint(), st.sets(st.integers(0, 40)))
def test_words_reach_the_lease_under_which_each_offset_is_held(
    older: list[tuple[int, int]],
    newer: list[tuple[int, int]],
    said: list[tuple[int, int]],
    bad: set[int],
) -> None:
    held: HeldRanges[str] = HeldRanges()
    held.hold(A, older, "older", 1.0)
    held.hold(A, newer, "newer", 2.0)
    leases = {**dict.fromkeys(numbers(older), "older"), **dict.fromkeys(numbers(newer), "newer")}
    words = [Word(*each, REJECT if each[0] in bad else ACCEPT) for each in said]
    taken = held.take(A, words)
    kinds = {offset: word.kind for word in words for offset in range(word.first, word.last + 1)}
    found = {
        offset: (lease, kind)
        for lease, types in taken.types.items()
        for offset, kind in types.items()
    }
    assert found == {
        offset: (leases[offset], kind) for offset, kind in kinds.items() if offset in leases
    }
    assert numbers(taken.missing) == [offset for offset in kinds if offset not in leases]
    assert numbers(taken.ranges) == sorted(found)
    left = {offset for each in held.of(A) for offset in range(each.first, each.last + 1)}
    assert left == leases.keys() - kinds.keys()


def test_leases_are_renewed_when_they_are_old_enough() -> None:
    held: HeldRanges[str] = HeldRanges()
    assert held.due(LOCK_SECONDS) is None
    held.hold(A, [(0, 1)], "older", 1.0)
    held.hold(A, [(5, 5)], "newer", 11.0)
    assert held.due(LOCK_SECONDS) == 1.0 + LOCK_SECONDS
    assert list(held.renew(30.9, LOCK_SECONDS)) == []
    renewed = dict(held.renew(31.0, LOCK_SECONDS))
    assert renewed == {"older": dict.fromkeys([0, 1], int(AcknowledgeType.RENEW))}
    assert held.due(LOCK_SECONDS) == 11.0 + LOCK_SECONDS
    held.drop(A, [(5, 5)])
    assert list(held.renew(41.0, LOCK_SECONDS)) == []
    assert held.due(LOCK_SECONDS) == 31.0 + LOCK_SECONDS


def test_nothing_is_due_when_nothing_is_held_any_more() -> None:
    held: HeldRanges[str] = HeldRanges()
    held.hold(A, [(0, 9)], "lease", 1.0)
    held.drop(A, [(0, 9)])
    assert list(held.renew(100.0, LOCK_SECONDS)) == []
    assert held.due(LOCK_SECONDS) is None
