"""Aborted transactions of the tier: a long index does not hold up the loop."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.log.epochs import LeaderEpochs
from headrace.records.aborted import AbortedTransaction, BlockMinima, encode_entry
from headrace.remote.layout import ObjectKind
from headrace.remote.segments import RemoteSegment
from headrace.tier.aborted import ENTRIES_PER_TURN, find_all_aborted
from headrace.tier.index_cache import Index
from headrace.tier.lineage import Stretch
from tests.unit.tier.tier_nodes import LoopWithThreads, run_tier
from tests.unit.tier.tiers import ListedMetadata, segment_of

COUNT = 2 * ENTRIES_PER_TURN


def test_entries_that_one_long_transaction_let_pile_up_are_gone_through_by_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = [AbortedTransaction(1, 10 + 2 * each, 11 + 2 * each, 5) for each in range(COUNT)]
    txn_index = Index(b"".join(map(encode_entry, entries)), BlockMinima())
    segment = segment_of(0, 3 * COUNT)
    threads: list[str] = []
    real = LoopWithThreads.run_in_executor

    def note(self: LoopWithThreads, executor: object, work: Callable[..., Any], *given: Any) -> Any:
        threads.append(getattr(work, "__name__", ""))
        return real(self, executor, work, *given)

    monkeypatch.setattr(LoopWithThreads, "run_in_executor", note)

    async def get_index(_: RemoteSegment, kind: ObjectKind) -> Index:
        return txn_index if kind is ObjectKind.TXN_INDEX else Index(b"", BlockMinima())

    async def main() -> None:
        for _ in range(2):
            found, asks_local = await find_all_aborted(
                ListedMetadata([segment]),
                LeaderEpochs(),
                get_index,
                Stretch(segment, 0, segment.next_offset),
                records=memoryview(bytes(100)),
                up_to=14,
            )
            assert found == entries[:2]
            assert asks_local is not None

    run_tier(main())
    assert threads == ["find_aborted"], "the second time it is known what is where"


def test_many_indexes_that_nobody_has_read_take_several_turns() -> None:
    count, segment_count = ENTRIES_PER_TURN // 2, 9
    segments = [
        segment_of(start, start + 2 * count - 1)
        for start in range(0, 2 * count * segment_count, 2 * count)
    ]
    indexes = {
        each.id: Index(
            b"".join(
                encode_entry(AbortedTransaction(1, offset, offset + 1, 0))
                for offset in range(each.start_offset, each.next_offset, 2)
            ),
            BlockMinima(),
        )
        for each in segments
    }

    async def get_index(segment: RemoteSegment, kind: ObjectKind) -> Index:
        return indexes[segment.id] if kind is ObjectKind.TXN_INDEX else Index(b"", BlockMinima())

    def search() -> int:
        """Return how many turns of the loop it takes."""
        work = find_all_aborted(
            ListedMetadata(segments),
            LeaderEpochs(),
            get_index,
            Stretch(segments[0], 0, segments[0].next_offset),
            records=memoryview(bytes(100)),
            up_to=4,
        )
        for turns in range(1, 100):
            try:
                work.send(None)
            except StopIteration as end:
                found, _ = end.value
                assert [each.first_offset for each in found] == [0, 2]
                return turns
        raise AssertionError("it does not end")

    assert search() == 5, "two indexes in each turn"
    assert search() == 1, "all of them are known"
