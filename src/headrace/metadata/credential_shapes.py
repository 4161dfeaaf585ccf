"""What SCRAM credentials look like from outside: counted, so that made-up ones look alike. Pure.

A challenge shows a salt and a count of iterations. They depend on the tool that set the password,
so a name without a credential gets those that some other name could have.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.metadata.state import ScramCredential

_LETTERS: Final = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyz")
_FRACTION_BITS: Final = 64


class Shape(NamedTuple):
    """What a challenge shows of a credential beside the salt itself."""

    iterations: int
    salt_bytes: int
    is_text: bool = False
    """Whether the salt is a number to the base 36, as Kafka's tools make it."""


class CredentialShapes:
    """How many credentials of each mechanism have which shape."""

    __slots__ = ("_counts",)

    def __init__(self, credentials: Mapping[tuple[str, int], ScramCredential]) -> None:
        self._counts: dict[int, dict[Shape, int]] = {}
        for (_, mechanism), credential in credentials.items():
            self.count(mechanism, credential, 1)

    def count(self, mechanism: int, credential: ScramCredential, change: int) -> None:
        """Count a credential, or one less."""
        counts = self._counts.setdefault(mechanism, {})
        shape = _shape_of(credential)
        counts[shape] = counts.get(shape, 0) + change
        if not counts[shape]:
            del counts[shape]

    def pick(self, mechanism: int, number: int) -> Shape | None:
        """Return the shape that a number of 64 bits stands for, None if there is no credential.

        Shapes are picked as often as there are credentials with them, and the same number stands
        for the same shape unless credentials of other shapes come or go.
        """
        counts = self._counts.get(mechanism)
        if not counts:
            return None
        left = number * sum(counts.values()) >> _FRACTION_BITS
        for shape, count in sorted(counts.items()):
            left -= count
            if left < 0:
                return shape
        raise ValueError(f"{number} has more than {_FRACTION_BITS} bits")


def _shape_of(credential: ScramCredential) -> Shape:
    salt = credential.salt
    return Shape(credential.iterations, len(salt), bool(salt) and _LETTERS.issuperset(salt))
