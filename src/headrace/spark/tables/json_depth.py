"""How deep JSON values are nested, found without a parser: parsers call themselves for each level.

Most chunks are judged by how many brackets they have. Only values with many of them are looked at
one by one, and of these only brackets, quotes and backslashes count.
"""

import re
from typing import Any, Final

import pyarrow.compute as pc

from headrace.spark.tables.decoding import BinaryArray

_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)|[{}\[\]]', re.DOTALL)


def rows_deeper_than(values: BinaryArray, depth_max: int) -> list[int]:
    """Return the rows whose values are nested deeper, whether they are JSON or not."""
    text = bytes_of(values)
    begun: Any = pc.starts_with(values, "{")
    objects = begun.true_count
    # All values that are objects have a bracket of their own.
    if text.count(b"{") + text.count(b"[") - max(objects - 1, 0) <= depth_max:
        return []
    strings: Any = values  # the stubs know no substrings of bytes
    openers = pc.add(pc.count_substring(strings, "{"), pc.count_substring(strings, "["))
    limit: Any = depth_max
    many: list[Any] = pc.indices_nonzero(pc.greater(openers, limit)).to_pylist()
    return [row for row in many if depth_of(values[row].as_py()) > depth_max]


def bytes_of(values: BinaryArray) -> bytes:
    """Return what values consist of; of a slice only its part of the buffer.

    Bad values are found by slicing, so looking at the whole for each slice would take the square
    of the time.
    """
    _, offsets, data = values.buffers()
    if data is None or offsets is None or not len(values):
        return b""
    places = memoryview(offsets).cast("i")
    start, stop = places[values.offset], places[values.offset + len(values)]
    return bytes(data.slice(start, stop - start))


def depth_of(text: bytes) -> int:
    """Return how many brackets are open at once, at most, outside of strings."""
    depth = deepest = 0
    for token in _TOKENS.finditer(text):
        first = text[token.start()]
        if first in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif first in b"}]":
            depth -= 1
    return deepest
