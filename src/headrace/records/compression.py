"""The codecs of record batches, with a bound on the decompressed size.

Sizes that the compressed bytes claim are never trusted: output grows geometrically, and from
1 MiB on page by page, up to the caller's limit, so memory stays within a small factor of the real
size. Concatenated frames decompress to their concatenated contents, as in Kafka's readers for gzip
and zstd. Which codec a topic uses is not decided here.
"""

import mmap
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam

from headrace.config import (
    COMPRESSION_GZIP_LEVEL,
    COMPRESSION_LZ4_LEVEL,
    COMPRESSION_ZSTD_LEVEL,
)
from headrace.records.errors import CorruptBatch, InflatedTooLarge

ReadableBuffer = bytes | bytearray | memoryview


class Compression(IntEnum):
    """The codec in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


DEFAULT_LEVELS: Final = {
    Compression.GZIP: COMPRESSION_GZIP_LEVEL.default,
    Compression.LZ4: COMPRESSION_LZ4_LEVEL.default,
    Compression.ZSTD: COMPRESSION_ZSTD_LEVEL.default,
}
"""What a codec uses if no level is given; snappy has none."""


def compress(codec: Compression, data: ReadableBuffer, level: int | None = None) -> memoryview:
    """Compress in the framing that every Kafka client reads; `level` counts as Kafka's do."""
    if codec is Compression.NONE:
        return memoryview(data)
    if level is None:
        level = DEFAULT_LEVELS.get(codec, 0)
    return memoryview(_COMPRESS[codec](data, level))


def decompress(codec: Compression, data: ReadableBuffer, limit_bytes: int) -> memoryview:
    """Inflate `data`: CorruptBatch if it cannot be, InflatedTooLarge beyond `limit_bytes`.

    Data of codec NONE comes back as it is: it takes no memory that the caller did not give.
    """
    if codec is Compression.NONE:
        return memoryview(data)
    if codec is Compression.SNAPPY:
        return _snappy_decompress(memoryview(data), limit_bytes)
    return _inflate(codec, data, limit_bytes)


def inflated_bytes_bound(codec: Compression, data: memoryview) -> int:
    """Return an upper bound of the decompressed size, by the length and first bytes alone.

    0 if it does not start like data of this codec, so that it cannot be decompressed.
    """
    if codec is Compression.SNAPPY and not _is_xerial(data):
        try:
            return _snappy_size(data)
        except CorruptBatch:
            return 0
    magic = _MAGICS.get(codec, b"")
    if data[: len(magic)] != magic and not (
        # A zstd stream may begin with a frame that is to be skipped.
        codec is Compression.ZSTD and bytes(data[:4]) in _SKIPPABLE
    ):
        return 0
    return _RATIOS_MAX[codec] * len(data)


# What no encoder can beat: a zstd block of 128 KiB in 4 bytes, a deflate match of 258 in 2 bits,
# an lz4 match of 255 more with each byte, a snappy copy of 64 in 3 bytes.
_RATIOS_MAX: Final = {
    Compression.NONE: 1,
    Compression.GZIP: 1032,
    Compression.SNAPPY: 22,
    Compression.LZ4: 255,
    Compression.ZSTD: 32768,
}
_MAGICS: Final = {
    Compression.GZIP: b"\x1f\x8b",
    Compression.LZ4: b"\x04\x22\x4d\x18",
    Compression.ZSTD: b"\x28\xb5\x2f\xfd",
}
_SKIPPABLE: Final = frozenset(bytes((low, 0x2A, 0x4D, 0x18)) for low in range(0x50, 0x60))

_FIRST_GUESS_RATIO: Final = 4
_FIRST_GUESS_FLOOR_BYTES: Final = 1024
_GROWTH: Final = 4
_OUTPUT_FULL: Final = "failed to write whole buffer"
_MAPPED_FROM_BYTES: Final = 1024 * 1024
_GIVEN_BACK_BYTES: Final = 4 * 1024 * 1024
_DONT_NEED: Final[int | None] = getattr(mmap, "MADV_DONTNEED", None)


def _inflate(codec: Compression, data: ReadableBuffer, limit_bytes: int) -> memoryview:
    inflate_into = _INFLATE_INTO[codec]
    size = min(limit_bytes, _FIRST_GUESS_RATIO * len(data) + _FIRST_GUESS_FLOOR_BYTES)
    while True:
        if size > _MAPPED_FROM_BYTES:
            size = limit_bytes
        output = _allocate(size)
        try:
            return memoryview(output)[: inflate_into(data, output)]
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise CorruptBatch(f"{codec.name.lower()} data: {error}") from None
        if size == limit_bytes:
            raise _too_large(codec, limit_bytes)
        size = min(limit_bytes, size * _GROWTH)


def _allocate(size: int) -> bytearray | mmap.mmap:
    """Return room for up to `size` bytes.

    `bytearray` writes zeros while no other thread can run, 0.2 s of them in 256 MiB. Mapped pages
    are made one by one as they are written to, so a size that is never reached costs nothing.
    """
    if size <= _MAPPED_FROM_BYTES:
        return bytearray(size)
    return _Pages(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class _Pages(mmap.mmap):
    """Memory that is given back bit by bit.

    To unmap 256 MiB at once takes 0.02 s and more, in which no other thread gets a page.
    """

    def __del__(self) -> None:
        if _DONT_NEED is not None:
            for start in range(0, len(self), _GIVEN_BACK_BYTES):
                self.madvise(_DONT_NEED, start, min(_GIVEN_BACK_BYTES, len(self) - start))


def _too_large(codec: Compression, limit_bytes: int) -> InflatedTooLarge:
    return InflatedTooLarge(
        f"{codec.name.lower()} data inflates to more than {limit_bytes} bytes "
        "(headrace.inflated.batch.max.bytes)"
    )


_INFLATE_INTO: Final[dict[Compression, Callable[[ReadableBuffer, bytearray | mmap.mmap], int]]] = {
    Compression.GZIP: cramjam.gzip.decompress_into,
    Compression.LZ4: cramjam.lz4.decompress_into,
    Compression.ZSTD: cramjam.zstd.decompress_into,
}


# The framing of snappy-java, which JVM clients write: a header, then blocks with their lengths.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + Struct(">ii").pack(1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_LENGTH: Final = Struct(">i")

# A snappy copy element of three bytes stands for 64: no honest length is beyond that.
_SNAPPY_RATIO_MAX: Final = 22


def _snappy_compress(data: ReadableBuffer, _level: int) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: memoryview, limit_bytes: int) -> memoryview:
    blocks = list(_xerial_blocks(data)) if _is_xerial(data) else [data]
    sizes = [_snappy_size(block) for block in blocks]
    size = sum(sizes)
    if size > limit_bytes:
        raise _too_large(Compression.SNAPPY, limit_bytes)
    output = memoryview(_allocate(size))
    position = 0
    for block, block_size in zip(blocks, sizes, strict=True):
        try:
            cramjam.snappy.decompress_raw_into(block, output[position : position + block_size])
        except cramjam.DecompressionError as error:
            raise CorruptBatch(f"snappy data: {error}") from None
        position += block_size
    return output


def _snappy_size(block: memoryview) -> int:
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy data: {error}") from None
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise CorruptBatch(f"snappy data: {len(block)} bytes cannot inflate to {size}")
    return size


def _is_xerial(data: memoryview) -> bool:
    return bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    """Yield the raw snappy blocks; a further header between blocks starts a joined stream."""
    position = 0
    while position < len(data):
        if _is_xerial(data[position:]):
            position += len(_XERIAL_HEADER)
            if position > len(data):
                raise CorruptBatch("snappy data: cut off in its header")
            continue
        if position + _BLOCK_LENGTH.size > len(data):
            raise CorruptBatch("snappy data: cut off in a block's length")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise CorruptBatch(f"snappy data: a block of {length} bytes in {len(data) - position}")
        yield data[position : position + length]
        position += length


def _gzip_compress(data: ReadableBuffer, level: int) -> cramjam.Buffer:
    # -1 is zlib's word for its default, which is 6.
    return cramjam.gzip.compress(data, level=6 if level == -1 else level)


def _lz4_compress(data: ReadableBuffer, level: int) -> cramjam.Buffer:
    # At its default level of 9 Kafka uses the fast compressor, which is level 0 of the C library.
    # Blocks are independent because Kafka's reader refuses linked ones (KIP-57).
    compressor = cramjam.lz4.Compressor(
        level=0 if level == DEFAULT_LEVELS[Compression.LZ4] else level,
        content_checksum=False,
        block_linked=False,
    )
    compressor.compress(bytes(data))
    return compressor.finish()


def _zstd_compress(data: ReadableBuffer, level: int) -> cramjam.Buffer:
    return cramjam.zstd.compress(data, level=level)


_COMPRESS: Final[dict[Compression, Callable[[ReadableBuffer, int], bytes | cramjam.Buffer]]] = {
    Compression.GZIP: _gzip_compress,
    Compression.SNAPPY: _snappy_compress,
    Compression.LZ4: _lz4_compress,
    Compression.ZSTD: _zstd_compress,
}
