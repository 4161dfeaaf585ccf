"""What became of each of several things: a value, or the error with which it was refused."""

from collections.abc import Mapping
from typing import TypeAlias, TypeVar

from headrace.errors import KafkaError

K = TypeVar("K")
V = TypeVar("V")

Outcomes: TypeAlias = dict[K, V | KafkaError]
"""One entry for each requested item."""


def values_of(outcomes: Mapping[K, V | KafkaError]) -> dict[K, V]:
    """Return the values, or raise the first error among them."""
    values: dict[K, V] = {}
    for key, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            raise outcome
        values[key] = outcome
    return values
