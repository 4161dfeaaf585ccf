"""What leases are held on: descriptors, their versions, and the hybrid clock of seed 004."""

from enum import Enum
from typing import Annotated, Final

from msgspec import Meta, Struct

from headrace.ids import TopicName

UInt16 = Annotated[int, Meta(ge=0, le=2**16 - 1)]
UInt32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
UInt64 = Annotated[int, Meta(ge=0)]
"""MessagePack has no larger integer than 2**64 - 1."""

KAFKA_TENANT: Final = 0


class DescriptorKind(Enum):
    """What a descriptor describes; the values are the names in the log."""

    COLLECTION = "Collection"
    INDEX = "Index"
    TRIGGER = "Trigger"
    SEQUENCE = "Sequence"
    USER = "User"
    ROLE = "Role"
    GRANT = "Grant"
    RLS = "Rls"
    CHANGE_STREAM = "ChangeStream"
    MATERIALIZED_VIEW = "MaterializedView"
    SCHEDULE = "Schedule"
    FUNCTION = "Function"
    PROCEDURE = "Procedure"
    TENANT = "Tenant"
    API_KEY = "ApiKey"
    AUDIT_RETENTION = "AuditRetention"


class Hlc(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, order=True):
    """A time of a hybrid logical clock: nanoseconds, and a counter among equal ones."""

    wall_ns: UInt64
    logical: UInt64 = 0

    @classmethod
    def of_ms(cls, time_ms: int) -> "Hlc":
        return cls(time_ms * NANOSECONDS_PER_MS)


class DescriptorId(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The name of something that nodes cache and must agree on."""

    tenant_id: UInt64
    kind: DescriptorKind
    name: str


class DescriptorLease(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node's right to serve a version of a descriptor until a time."""

    descriptor_id: DescriptorId
    version: UInt64
    node_id: UInt64
    expires_at: Hlc


def topic_descriptor(name: TopicName) -> DescriptorId:
    """Return the descriptor of a topic: a collection of Kafka's single tenant."""
    return DescriptorId(KAFKA_TENANT, DescriptorKind.COLLECTION, name)


NANOSECONDS_PER_MS: Final = 1_000_000
