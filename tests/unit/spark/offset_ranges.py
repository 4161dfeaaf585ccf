"""Ranges of offsets, both ends included, for tests that make them up."""

from hypothesis import strategies as st


@st.composite
def disjoint(draw: st.DrawFn) -> list[tuple[int, int]]:
    edges = sorted(draw(st.sets(st.integers(0, 40), max_size=10)))
    return [(first, last - 1) for first, last in zip(edges[::2], edges[1::2], strict=False)]


def numbers(ranges: list[tuple[int, int]]) -> list[int]:
    return [offset for first, last in ranges for offset in range(first, last + 1)]
