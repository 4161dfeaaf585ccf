"""Which limit holds for a client: Kafka's order of precedence. Pure.

The most specific quota that has the limit holds alone. Where it is on a user, all of the user's
clients share it; where it is on a client id, all users of that id do; a default is one for each
user or client id that has none of its own.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.metadata.state import QuotaEntity
from headrace.security.quotas.entities import CLIENT_ID, OF_CLIENTS, USER

_DEFAULT: Final = None
_ABSENT: Final = ""
"""In place of a name: the entity is not about that type. No name is empty."""

_Place = tuple[str | None, str | None]
"""A user and a client id; each a name, the default or absent."""


class Found(NamedTuple):
    """A limit, and who shares it: a user, a client id or both. The other is empty."""

    limit: float
    user: str
    client_id: str


class ClientLimits:
    """The limits of all users and client ids."""

    def __init__(self) -> None:
        self._of_places: dict[_Place, Mapping[str, float]] = {}
        """All limits of an entity together: one table grows, not one for each kind of limit."""

    @property
    def is_empty(self) -> bool:
        return not self._of_places

    def change(self, entity: QuotaEntity, limits: Mapping[str, float]) -> None:
        """Put what an entity has now in place of what it had; addresses are left out.

        The limits are kept as they are, and must not change.
        """
        place = _place_of(entity)
        if place is None:
            return
        if limits.keys().isdisjoint(OF_CLIENTS):
            self._of_places.pop(place, None)
        else:
            self._of_places[place] = limits

    def find(self, key: str, user: str, client_id: str) -> Found | None:
        """Return the limit of a client, None if it has none."""
        of_places = self._of_places
        if not of_places:
            return None
        for place in _places(user, client_id):
            limits = of_places.get(place)
            limit = None if limits is None else limits.get(key)
            if limit is not None:
                return Found(
                    limit,
                    _ABSENT if place[0] == _ABSENT else user,
                    _ABSENT if place[1] == _ABSENT else client_id,
                )
        return None


def _place_of(entity: QuotaEntity) -> _Place | None:
    """Return the user and client id of an entity, None for one of addresses."""
    kind, name = entity[0]
    if len(entity) == 2:  # a client id and a user, in their order
        return entity[1][1], name
    if kind == USER:
        return name, _ABSENT
    return (_ABSENT, name) if kind == CLIENT_ID else None


def _places(user: str, client_id: str) -> list[_Place]:
    """Return where a client's limit may be, the most specific first.

    A client without an id is limited by its user's quotas only.
    """
    if not client_id:
        return [(user, _ABSENT), (_DEFAULT, _ABSENT)]
    return [
        (user, client_id),
        (user, _DEFAULT),
        (user, _ABSENT),
        (_DEFAULT, client_id),
        (_DEFAULT, _DEFAULT),
        (_DEFAULT, _ABSENT),
        (_ABSENT, client_id),
        (_ABSENT, _DEFAULT),
    ]
