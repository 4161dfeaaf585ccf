"""What can be limited: entities, the names of their limits, and which values those take. Pure.

As Kafka checks them, with two differences: an address is an address, never the name of a host, and
a limit is a number, never infinite or NaN.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from math import isfinite
from typing import Final

from headrace.config.values import shorten
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.state import QuotaEntity

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

OF_CLIENTS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
"""The limits of users and client ids."""
OF_ADDRESSES: Final = (CONNECTION_CREATION_RATE,)
_WHOLE: Final = {
    PRODUCER_BYTE_RATE: 2**63,
    CONSUMER_BYTE_RATE: 2**63,
    CONNECTION_CREATION_RATE: 2**31 - 1,
}
"""Limits that are whole numbers, and the largest of each."""
_FRACTION_MAX: Final = 1e-6


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return an entity in its one form; of a type that is there twice, the last name holds."""
    return tuple(sorted(dict(parts).items()))


def check_entity(entity: QuotaEntity) -> None:
    """Raise INVALID_REQUEST if nothing can be limited for an entity."""
    if not entity:
        raise _invalid("a quota needs an entity: a user, a client-id, both, or an ip")
    names = dict(entity)
    for kind, name in entity:
        if kind not in TYPES:
            raise _invalid(f"there is no entity type {shorten(kind)}: one of {', '.join(TYPES)}")
        if name == "":
            raise _invalid(f"the name of a {kind} must not be empty; null is the default {kind}")
    if IP in names:
        if len(names) > 1:
            raise _invalid("an ip is limited by itself, not together with a user or a client-id")
        address = names[IP]
        if address is not None and not _is_address(address):
            raise _invalid(f"{shorten(address)} is not an IP address")


def check_limit(entity: QuotaEntity, key: str, value: float) -> None:
    """Raise INVALID_REQUEST if an entity has no such limit, or it cannot have the value."""
    known = OF_ADDRESSES if IP in dict(entity) else OF_CLIENTS
    if key not in known:
        raise _invalid(f"there is no quota {shorten(key)} here: one of {', '.join(known)}")
    if not isfinite(value):
        raise _invalid(f"{key}={value} is not a number")
    if value <= 0:
        raise _invalid(f"{key}={value}: must be greater than 0")
    largest = _WHOLE.get(key)
    if largest is None:
        return
    if value > largest:
        raise _invalid(f"{key}={value}: must be at most {largest}")
    if value % 1.0 > _FRACTION_MAX:
        raise _invalid(f"{key}={value}: must be a whole number")


def describe(entity: Mapping[str, str | None] | QuotaEntity) -> str:
    """Return an entity as text for people."""
    return ", ".join(
        f"default {kind}" if name is None else f"{kind} {shorten(name)}"
        for kind, name in dict(entity).items()
    )


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
