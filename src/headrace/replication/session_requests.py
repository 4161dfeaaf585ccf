"""The client's side of a fetch session (KIP-227): which partitions a request has to name.

    session.name(key)                       # its position changed, or it is new
    session.forget(key)
    named, forgotten = session.next(1000)   # the request
    session.on_response(session_id)         # or on_failure()

A leader remembers the partitions of a session and where each is read from. So a request names those
that changed, and a request about nothing new costs nothing, however many partitions there are.
Pure: this keeps names only; `fetchers` fills in the rest.
"""

from collections.abc import Collection, Hashable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

from headrace.config import INT32_MAX

NO_SESSION: Final = 0
FULL_EPOCH: Final = 0
"""A request that begins a session, and ends the one whose id it has."""

K = TypeVar("K", bound=Hashable)


class SessionRequests(Generic[K]):
    """The requests of one session, one after the other."""

    __slots__ = ("_forgotten", "_named", "_unnamed", "epoch", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FULL_EPOCH
        self._named: dict[K, None] = {}
        """What the leader remembers."""
        self._unnamed: dict[K, None] = {}
        """What the next requests are to name; perhaps what the leader knows at another place."""
        self._forgotten: dict[K, None] = {}
        """What the leader remembers and is to forget."""

    @property
    def is_empty(self) -> bool:
        """Whether a request would ask for nothing."""
        return not self._named and not self._unnamed

    @property
    def has_more_to_name(self) -> bool:
        return bool(self._unnamed)

    def name(self, key: K) -> None:
        """Name a partition in a request soon, as it is new or its place changed."""
        self._unnamed[key] = None
        self._forgotten.pop(key, None)

    def forget(self, key: K) -> None:
        """Do not ask for a partition any more."""
        self._unnamed.pop(key, None)
        if key in self._named:
            del self._named[key]
            self._forgotten[key] = None

    def upcoming(self, names_max: int) -> Iterator[K]:
        """Iterate over what the next request names."""
        return islice(self._unnamed, names_max)

    def next(self, names_max: int) -> tuple[Collection[K], Collection[K]]:
        """Return what the next request names and what it forgets; the former at most so many."""
        named = list(self.upcoming(names_max))
        for key in named:
            del self._unnamed[key]
        self._named.update(dict.fromkeys(named))
        forgotten = [] if self.epoch == FULL_EPOCH else list(self._forgotten)
        self._forgotten.clear()
        return named, forgotten

    def on_response(self, session_id: int) -> None:
        """Go on with the session, or without one if the leader has no room for it."""
        if self.epoch != FULL_EPOCH:
            self.epoch = self.epoch + 1 if self.epoch < INT32_MAX else 1
            return
        self.session_id = session_id
        if session_id != NO_SESSION:
            self.epoch = 1
            return
        self._begin_again()

    def on_failure(self) -> None:
        """Begin another session: it is not known what the leader remembers, or it said so."""
        self.epoch = FULL_EPOCH
        self._begin_again()

    def _begin_again(self) -> None:
        # Those that were not named yet come first: without a session all take turns.
        named, self._named = self._named, {}
        self._unnamed.update(named)
        self._forgotten.clear()
