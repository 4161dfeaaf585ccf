"""What a program gets from its machine beside loop, network and disk: luck and clocks.

    self._random = new_random()          # for pauses with a little chance in them
    self._time_ns = clocks().time_ns     # bound at start, so that a call costs what it always did

Everything is the real thing unless a simulation has bound its own to the context: then each host
has a seed and clocks of its own, and one seed plays the same again.
"""

import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from random import Random
from typing import Final, NamedTuple


class Clocks(NamedTuple):
    """The clocks of a machine, in nanoseconds."""

    time_ns: Callable[[], int] = time.time_ns
    """Since 1970; it may be set, forwards and backwards."""
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    """Since some time; it never goes back."""


class Surroundings(NamedTuple):
    """What a simulation puts in place of a machine."""

    random: Random
    clocks: Clocks


REAL_CLOCKS: Final = Clocks()
SURROUNDINGS: Final[ContextVar[Surroundings | None]] = ContextVar("SURROUNDINGS", default=None)


def new_random() -> Random:
    """Return a source of random numbers of the caller's own; not for secrets."""
    simulated = SURROUNDINGS.get()
    return Random() if simulated is None else Random(simulated.random.getrandbits(64))


def new_uuid() -> uuid.UUID:
    """Return an id that nothing has."""
    simulated = SURROUNDINGS.get()
    if simulated is None:
        return uuid.uuid4()
    return uuid.UUID(int=simulated.random.getrandbits(128), version=4)


def clocks() -> Clocks:
    """Return the clocks of the machine."""
    simulated = SURROUNDINGS.get()
    return REAL_CLOCKS if simulated is None else simulated.clocks
