import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.errors import CorruptLog
from headrace.log.producer_snapshots import decode_snapshot, encode_snapshot, snapshot_name
from headrace.log.producers import ProducerState, RecordedBatch

INT64 = st.integers(0, 2**63 - 1)
INT32 = st.integers(0, 2**31 - 1)


@st.composite
def states(draw: st.DrawFn) -> ProducerState:
    timestamp = draw(st.integers(-1, 2**63 - 1))
    batches = st.builds(RecordedBatch, st.integers(-1, 2**31 - 1), INT64, INT32, st.just(timestamp))
    return ProducerState(
        producer_id=draw(INT64),
        epoch=draw(st.integers(-1, 2**15 - 1)),
        coordinator_epoch=draw(st.integers(-1, 2**31 - 1)),
        last_timestamp=timestamp,
        transaction_first_offset=draw(st.none() | INT64),
        batches=draw(st.lists(batches, max_size=1)),
    )


@given(st.lists(states(), max_size=5))
def test_what_was_written_is_read(written: list[ProducerState]) -> None:
    assert decode_snapshot(encode_snapshot(written), "a.snapshot") == written


def test_only_the_last_batch_is_kept() -> None:
    batches = [RecordedBatch(n, n, 0, 7) for n in range(3)]
    written = ProducerState(1, 0, last_timestamp=7, batches=batches)
    (read,) = decode_snapshot(encode_snapshot([written]), "a.snapshot")
    assert read.batches == batches[-1:]


def test_name_has_twenty_digits() -> None:
    assert snapshot_name(42) == "00000000000000000042.snapshot"


def test_every_cut_and_every_flipped_bit_is_named() -> None:
    data = encode_snapshot([ProducerState(1, 0), ProducerState(2, 5)])
    for size in range(len(data)):
        with pytest.raises(CorruptLog, match=r"t/a\.snapshot"):
            decode_snapshot(data[:size], "t/a.snapshot")
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptLog):
            decode_snapshot(flipped, "t/a.snapshot")
