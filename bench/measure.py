"""Ratios of times, measured side by side.

The machine is noisy and other machines differ, so no figure here is a time alone: what is
measured and its peer run in turns, round after round, and the medians are compared.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

ROUNDS: Final = 15
ROUND_SECONDS: Final = 0.05


class Figure(NamedTuple):
    """A ratio that an issue names, and what it has to be."""

    name: str
    ratio: float
    bound: float
    is_upper_bound: bool
    detail: str

    @property
    def is_met(self) -> bool:
        return self.ratio <= self.bound if self.is_upper_bound else self.ratio >= self.bound

    def __str__(self) -> str:
        bound = f"{'at most' if self.is_upper_bound else 'at least'} {self.bound:g}x"
        verdict = "ok" if self.is_met else "MISSED"
        return f"{self.name:38} {self.ratio:7.2f}x  {bound:13} {verdict:6}  {self.detail}"


def seconds_side_by_side(*functions: Callable[[], object]) -> list[float]:
    """Return the median time of a call of each function, in the order given."""
    counts = [_calls_per_round(function) for function in functions]
    samples: list[list[float]] = [[] for _ in functions]
    for _ in range(ROUNDS):
        for function, count, sample in zip(functions, counts, samples, strict=True):
            sample.append(_seconds(function, count))
    return [statistics.median(sample) for sample in samples]


def report(figures: list[Figure]) -> None:
    """Print the figures; exit with 1 if one is missed."""
    for figure in figures:
        print(figure, flush=True)
    if not all(figure.is_met for figure in figures):
        sys.exit(1)


def parts_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return how the parts of a benchmark are read from an argument, with commas between."""

    def parse(words: str) -> list[str]:
        parts = words.split(",")
        if unknown := set(parts) - set(known):
            names = f"{', '.join(unknown)}; {', '.join(known)} are"
            raise argparse.ArgumentTypeError(f"no part {names}")
        return parts

    return parse


def _calls_per_round(function: Callable[[], object]) -> int:
    function()
    once = _seconds(function, 3)
    return max(1, int(ROUND_SECONDS / once))


def _seconds(function: Callable[[], object], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - begin) / count
