"""Every codec round, in the framings that clients write, and never beyond its bound."""

import gzip
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path
from struct import pack

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.compression import (
    Compression,
    compress,
    decompress,
    inflated_bytes_bound,
)
from headrace.records.errors import CorruptBatch, InflatedTooLarge

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
MEBIBYTE = 1024 * 1024
BOMB_BYTES = 64 * MEBIBYTE
XERIAL_HEADER = b"\x82SNAPPY\x00" + pack(">ii", 1, 1)


@pytest.mark.parametrize("codec", Compression)
@given(st.binary(max_size=2000), st.integers(0, 60))
def test_data_survives_every_codec(codec: Compression, data: bytes, repeat: int) -> None:
    data *= repeat
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        *((Compression.GZIP, level) for level in (-1, 1, 6, 9)),
        *((Compression.LZ4, level) for level in (1, 3, 9, 10, 17)),
        *((Compression.ZSTD, level) for level in (-131072, -5, 0, 1, 3, 22)),
    ],
)
def test_every_level_that_kafka_has_is_taken(codec: Compression, level: int) -> None:
    data = bytes(range(256)) * 40
    assert decompress(codec, compress(codec, data, level), len(data)) == data


def test_lz4_blocks_are_independent_because_kafka_reads_no_others() -> None:
    flags = compress(Compression.LZ4, bytes(200_000))[4]
    assert flags & 0x20


def test_lz4_at_its_default_level_of_nine_is_fast_as_in_kafka() -> None:
    data = bytes(value * value % 251 // 7 for value in range(50_000))
    sizes = {level: len(compress(Compression.LZ4, data, level)) for level in (1, 9, 10)}
    assert sizes[10] < sizes[9] == sizes[1] == len(compress(Compression.LZ4, data))


def test_snappy_is_written_in_blocks_of_32_kib_behind_the_header_of_snappy_java() -> None:
    data = bytes(100_000)
    framed = bytes(compress(Compression.SNAPPY, data))
    assert framed.startswith(XERIAL_HEADER)
    sizes = []
    position = len(XERIAL_HEADER)
    while position < len(framed):
        length = int.from_bytes(framed[position : position + 4])
        block = framed[position + 4 : position + 4 + length]
        sizes.append(len(bytes(cramjam.snappy.decompress_raw(block))))
        position += 4 + length
    assert sizes == [32768, 32768, 32768, 100_000 - 3 * 32768]


def test_raw_snappy_is_read_too() -> None:
    data = b"as librdkafka writes it " * 99
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(Compression.SNAPPY, raw, len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_frames_one_behind_the_other_are_joined(codec: Compression) -> None:
    joined = bytes(compress(codec, b"first ")) + bytes(compress(codec, b"second"))
    assert bytes(decompress(codec, joined, 100)) == b"first second"


def test_what_the_standard_library_gzips_is_read() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"x" * 5000), 5000) == b"x" * 5000


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_itself_is_allowed_and_one_byte_more_is_not(codec: Compression) -> None:
    packed = bytes(compress(codec, bytes(10_000)))
    assert len(decompress(codec, packed, 10_000)) == 10_000
    with pytest.raises(InflatedTooLarge, match="more than 9999 bytes"):
        decompress(codec, packed, 9_999)


@pytest.mark.parametrize("codec", CODECS)
def test_memory_stays_within_a_small_factor_of_the_real_size(codec: Compression) -> None:
    packed = bytes(compress(codec, bytes(8 * MEBIBYTE)))
    tracemalloc.start()
    try:
        decompress(codec, packed, 1024 * MEBIBYTE)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 6 * 8 * MEBIBYTE


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_does_not_go_off(codec: Compression, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb"
    bomb.write_bytes(compress(codec, bytes(BOMB_BYTES)))
    program = f"""
import resource
from pathlib import Path
from headrace.records.compression import Compression, decompress
from headrace.records.errors import InflatedTooLarge
bomb = Path({str(bomb)!r}).read_bytes()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(Compression({int(codec)}), bomb, {MEBIBYTE})
except InflatedTooLarge:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(result.stdout) < 8 * 1024, "KiB more than before"


def test_a_snappy_length_that_no_data_can_have_is_refused_before_memory_is_taken() -> None:
    for claim in (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x01"):
        raw = claim + b"\x00" * 40
        framed = XERIAL_HEADER + pack(">i", len(raw)) + raw
        for data in (raw, framed):
            with pytest.raises(CorruptBatch, match="cannot inflate"):
                decompress(Compression.SNAPPY, data, 2**40)


def test_a_zstd_frame_that_claims_a_terabyte_gets_what_it_needs() -> None:
    claim = b"\x28\xb5\x2f\xfd\xe0" + (2**40).to_bytes(8, "little") + b"\x01\x00\x00"
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decompress(Compression.ZSTD, claim, 2**40)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MEBIBYTE


@pytest.mark.parametrize("codec", CODECS)
def test_data_that_is_cut_off_or_none_of_the_codec_is_named(codec: Compression) -> None:
    packed = bytes(compress(codec, bytes(range(256)) * 10))
    cuts = [packed[:-1], packed[: len(packed) // 2], packed[:12]]
    for spoiled in (b"", *cuts, b"no such thing" * 9):
        with pytest.raises(CorruptBatch, match=codec.name.lower()):
            decompress(codec, spoiled, 10_000)


@pytest.mark.parametrize("tail", [b"\x00", b"\x00\x00\x00\x00", b"\x00\x00\x00\x09", b"\xff" * 4])
def test_a_snappy_block_that_does_not_fit_is_named(tail: bytes) -> None:
    framed = bytes(compress(Compression.SNAPPY, b"data")) + tail
    with pytest.raises(CorruptBatch, match="snappy"):
        decompress(Compression.SNAPPY, framed, 10_000)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 1000, 1_000_000])
def test_what_data_can_inflate_to_is_bounded_by_its_first_bytes(
    codec: Compression, size: int
) -> None:
    for data in (bytes(size), random.Random(size).randbytes(size)):
        packed = bytes(compress(codec, data))
        assert inflated_bytes_bound(codec, memoryview(packed)) >= size
        others = [other for other in Compression if other not in (codec, Compression.NONE)]
        for other in others:
            if other is not Compression.SNAPPY:
                assert inflated_bytes_bound(other, memoryview(packed)) == 0


def test_the_densest_data_stays_within_its_bound() -> None:
    size = 64 * 1024 * 1024
    for codec, level in ((Compression.ZSTD, 19), (Compression.GZIP, 9), (Compression.LZ4, 12)):
        packed = bytes(compress(codec, bytes(size), level))
        assert inflated_bytes_bound(codec, memoryview(packed)) >= size


def test_a_zstd_frame_to_be_skipped_may_come_first() -> None:
    data = b"\x50\x2a\x4d\x18\x02\x00\x00\x00ab" + bytes(compress(Compression.ZSTD, b"abc"))
    assert inflated_bytes_bound(Compression.ZSTD, memoryview(data)) > 0
    assert bytes(decompress(Compression.ZSTD, data, 100)) == b"abc"


@pytest.mark.parametrize("codec", CODECS)
def test_large_output_is_given_up_to_the_limit(codec: Compression) -> None:
    size = 3 * 1024 * 1024
    packed = bytes(compress(codec, bytes(size)))
    assert decompress(codec, packed, size) == bytes(size)
    with pytest.raises(InflatedTooLarge):
        decompress(codec, packed, size - 1)
