"""The payloads of catalog DDL: what changes topics, brokers, configs and rights.

    data = encode_ddl(CreateTopic(...))

Each is a command that the image may still refuse when it is applied, as another may have come
first; a proposer checks before, the applier decides. A field may only ever be added at the end and
with a default: then old logs stay readable, and old software stops at new entries instead of
overlooking what they say.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from headrace.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.metadata.errors import InvalidEntry
from headrace.metadata.features import LEVEL
from headrace.metadata.state import (
    Acl,
    Bytes16,
    DelegationToken,
    Endpoint,
    Int32,
    QuotaEntity,
    ResourceType,
    ScramCredential,
)

UInt31 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Replicas = tuple[Annotated[BrokerId, Meta(ge=0, le=2**31 - 1)], ...]
Id = Annotated[TopicId, Meta(min_length=16, max_length=16)]
FeatureLevel = Annotated[int, Meta(ge=0, le=2**15 - 1)]


class _Ddl(Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The form they share: an array that begins with the name of the class."""


class Assignment(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The replicas of a new partition, its ISR and its first leader."""

    replicas: Replicas
    isr: Replicas
    leader: Int32


class CreateTopic(_Ddl, frozen=True):
    name: TopicName
    topic_id: Id
    partitions: tuple[Assignment, ...]
    configs: dict[str, str] = {}
    is_internal: bool = False


class DeleteTopic(_Ddl, frozen=True):
    """Refused while a lease on the topic is valid at `now_ms`: drain it first."""

    topic_id: Id
    now_ms: int


class AddPartitions(_Ddl, frozen=True):
    """Refused unless the topic has `expected_count` partitions: asked twice, it grows once."""

    topic_id: Id
    expected_count: UInt31
    partitions: tuple[Assignment, ...]


class ChangePartition(_Ddl, frozen=True):
    """Change what is not None; refused if an expected epoch has passed.

    A leader that is given, even the same, begins a new leader epoch. So does a replica that leaves.

    `isr_epochs` has the broker epoch of each member of `isr`: refused if one has registered again
    since, or if one that is new to the ISR is fenced or shutting down (KIP-841, KIP-903). -1 is an
    epoch that the leader does not know; only a member that stays may have it.

    The ELR follows from the ISR; `elr` is given only to name those who still may be in it, and
    `last_known_elr` has no effect.
    """

    topic_id: Id
    partition: PartitionIndex
    expected_partition_epoch: int | None = None
    expected_leader_epoch: LeaderEpoch | None = None
    leader: Int32 | None = None
    isr: Replicas | None = None
    replicas: Replicas | None = None
    adding: Replicas | None = None
    removing: Replicas | None = None
    elr: Replicas | None = None
    last_known_elr: Replicas | None = None
    is_recovering: bool | None = None
    isr_epochs: tuple[int, ...] | None = None


class SetClusterId(_Ddl, frozen=True):
    """Set the cluster's id, once and for all."""

    cluster_id: str


class RegisterBroker(_Ddl, frozen=True):
    """Refused while another incarnation of the broker is not fenced."""

    broker_id: UInt31
    incarnation_id: Bytes16
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: dict[str, tuple[int, int]] = {}
    is_fenced: bool = True
    log_dirs: tuple[Bytes16, ...] = ()
    node_name: str = ""


class ChangeBroker(_Ddl, frozen=True):
    """Change what is not None; refused if the broker has registered again since."""

    broker_id: UInt31
    broker_epoch: int
    is_fenced: bool | None = None
    is_shutting_down: bool | None = None
    log_dirs: tuple[Bytes16, ...] | None = None


class UnregisterBroker(_Ddl, frozen=True):
    """Refused while the broker keeps a replica."""

    broker_id: UInt31


class SetConfigs(_Ddl, frozen=True):
    """Set configs of a resource; None takes one away."""

    resource_type: ResourceType
    resource_name: str
    values: dict[str, str | None]


class SetConfigsIf(_Ddl, frozen=True):
    """Set configs of a resource; refused unless some of them are what `expected` says.

    For lists that grow and shrink: two clients that add to one at the same time both have to be
    heard; and for what must go together. None is a config that is not set.
    """

    resource_type: ResourceType
    resource_name: str
    values: dict[str, str | None]
    expected: dict[str, str | None]


class SetFeature(_Ddl, frozen=True):
    """Finalize a feature at a level; zero takes it away."""

    name: str
    level: FeatureLevel


class SetFeaturesIf(_Ddl, frozen=True):
    """Finalize features, all or none; refused unless some of them are at the levels expected.

    The version of the cluster rises with that of its metadata.
    """

    levels: dict[str, FeatureLevel]
    expected: dict[str, FeatureLevel]


class RaiseLevel(_Ddl, frozen=True):
    """Raise headrace.version, see `levels`. Refused while a broker is registered that is older.

    Software that does not know the level cannot read the entry, and stops at it.
    """

    level: Annotated[int, Meta(ge=1, le=LEVEL)]


class AddAcls(_Ddl, frozen=True):
    acls: tuple[Acl, ...]


class RemoveAcls(_Ddl, frozen=True):
    acls: tuple[Acl, ...]


class SetScramCredential(_Ddl, frozen=True):
    user: str
    mechanism: int
    credential: ScramCredential


class RemoveScramCredential(_Ddl, frozen=True):
    user: str
    mechanism: int


class SetQuota(_Ddl, frozen=True):
    """Set one limit of an entity; None takes it away."""

    entity: QuotaEntity
    key: str
    value: float | None


class SetDelegationToken(_Ddl, frozen=True):
    """Create a token, or replace the one of that id."""

    token: DelegationToken


class ChangeTokenExpiry(_Ddl, frozen=True):
    """Change when a token expires. Refused if it is gone: a revoked token stays revoked."""

    token_id: str
    expiry_ms: Annotated[int, Meta(ge=0)]


class RemoveDelegationToken(_Ddl, frozen=True):
    token_id: str


class CancelDecommission(_Ddl, frozen=True):
    """Cancel a decommission; seed 004 has no way back from StartDecommission."""

    node_id: Annotated[int, Meta(ge=0)]


class Expire(_Ddl, frozen=True):
    """Drop what has ended by `now_ms`: leases, drains, delegation tokens, join tokens."""

    now_ms: Annotated[int, Meta(ge=0)]


Ddl = (
    CreateTopic
    | DeleteTopic
    | AddPartitions
    | ChangePartition
    | SetClusterId
    | RegisterBroker
    | ChangeBroker
    | UnregisterBroker
    | SetConfigs
    | SetConfigsIf
    | SetFeature
    | SetFeaturesIf
    | RaiseLevel
    | AddAcls
    | RemoveAcls
    | SetScramCredential
    | RemoveScramCredential
    | SetQuota
    | SetDelegationToken
    | ChangeTokenExpiry
    | RemoveDelegationToken
    | CancelDecommission
    | Expire
)


def encode_ddl(ddl: Ddl) -> bytes:
    """Write the payload of a `CatalogDdl`; InvalidEntry if nodes could not read it."""
    try:
        data = _ENCODER.encode(ddl)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidEntry(f"{type(ddl).__name__} cannot be written: {error}") from error
    decode_ddl(data)
    return data


def decode_ddl(payload: bytes) -> Ddl:
    """Read what `encode_ddl` wrote; InvalidEntry for anything else, whatever the bytes."""
    try:
        return _DECODER.decode(payload)
    except (ValueError, RecursionError) as error:
        raise InvalidEntry(f"not a DDL that this software knows: {error}") from error


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Ddl]] = msgspec.msgpack.Decoder(Ddl)
