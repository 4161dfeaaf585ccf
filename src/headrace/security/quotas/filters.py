"""Which entities of quotas a client asks for (KIP-546). Pure."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Self

from headrace.config.values import shorten
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.state import QuotaEntity
from headrace.security.quotas.entities import CLIENT_ID, IP, TYPES, USER, quota_entity

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
_OF_CLIENTS: Final = (USER, CLIENT_ID)


class Component(NamedTuple):
    """What is asked of one type of entity."""

    entity_type: str
    match_type: int
    match: str | None


class QuotaFilter(NamedTuple):
    """A filter of entities: these names, None being the default, and these types of any name."""

    names: Mapping[str, str | None]
    types: frozenset[str]
    is_strict: bool
    """Whether entities that have other types, too, do not match."""

    @classmethod
    def of(cls, components: Iterable[Component], *, is_strict: bool) -> Self:
        """Return the filter, or raise KafkaError with Kafka's code."""
        names: dict[str, str | None] = {}
        types: set[str] = set()
        for each in components:
            kind = each.entity_type
            if not kind:
                raise _invalid("a filter needs a type of entity")
            if kind in names or kind in types:
                raise _invalid(f"entity type {shorten(kind)} is in the filter twice")
            if kind not in TYPES:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"there is no entity type {shorten(kind)}: one of {', '.join(TYPES)}",
                )
            _check_match(each)
            if each.match_type == ANY:
                types.add(kind)
            else:
                names[kind] = each.match
        asked = types | names.keys()
        if IP in asked and (USER in asked or CLIENT_ID in asked):
            raise _invalid("a filter is about addresses, or about users and client ids, not both")
        return cls(names, frozenset(types), is_strict)

    @property
    def only(self) -> QuotaEntity | None:
        """The one entity that can match, if the names leave no other: it can be looked up.

        No entity has another type beside an address, or beside a user and a client id.
        """
        is_whole = self.is_strict or IP in self.names or len(self.names) == len(_OF_CLIENTS)
        return (
            quota_entity(self.names.items()) if self.names and is_whole and not self.types else None
        )

    def matches(self, entity: QuotaEntity) -> bool:
        """Return whether an entity is asked for. A strict filter without components has none."""
        if self.is_strict and len(entity) != len(self.names) + len(self.types):
            return False
        for pair in self.names.items():  # one of very many is looked for: no more than needed
            if pair not in entity:
                return False
        return not self.types or self.types <= {kind for kind, _ in entity}


def _check_match(component: Component) -> None:
    kind, match_type, match = component
    if match_type == EXACT:
        if match is None:
            raise _invalid(f"an exact match of {kind} needs a name")
    elif match_type in (DEFAULT, ANY):
        if match is not None:
            raise _invalid(f"only an exact match of {kind} has a name")
    else:
        raise _invalid(f"there is no match type {match_type}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
