"""The fifteen entries of the metadata log and their bytes (seed 004).

    data = encode_entry(CatalogDdl(encode_ddl(CreateTopic(...))))
    entry = decode_entry(data)

The envelope is the byte 0xC1, which MessagePack never uses, a version and the length of what
follows; `variants` says how that is written. What the payload of a DDL holds is in `ddl`.
"""

import struct
from typing import Final, get_args
from uuid import UUID

from msgspec import Raw, Struct

from headrace.metadata.descriptors import DescriptorId, DescriptorLease, Hlc, UInt16, UInt32, UInt64
from headrace.metadata.errors import InvalidEntry
from headrace.metadata.phases import Compensation, Phase, open_checkpoint
from headrace.metadata.variants import ENUMS, Octets, Variants

MARKER: Final = 0xC1
VERSION: Final = 2
ENTRY_MAX_BYTES: Final = 16 * 1024 * 1024
"""No setting: nodes that disagreed would stop at different entries."""
HASH_BYTES: Final = 32


class CatalogDdl(Struct, frozen=True):
    """A change of the catalog: topics, brokers, configs and so on."""

    payload: bytes


class CatalogDdlAudited(Struct, frozen=True):
    """A change of the catalog, with its requester and the text of the request."""

    payload: bytes
    auth_user_id: str
    auth_user_name: str
    sql_text: str


class Batch(Struct, frozen=True):
    """Entries that take one place in the log; each is applied or refused on its own, in order."""

    entries: "tuple[Entry, ...]"


class Join(Struct, frozen=True):
    node_id: UInt64
    addr: str


class Leave(Struct, frozen=True):
    node_id: UInt64


class PromoteToVoter(Struct, frozen=True):
    node_id: UInt64


class StartDecommission(Struct, frozen=True):
    node_id: UInt64


class FinishDecommission(Struct, frozen=True):
    node_id: UInt64


NodeChange = Join | Leave | PromoteToVoter | StartDecommission | FinishDecommission
NODE_CHANGES: Final[Variants[NodeChange]] = Variants(
    {cls.__name__: cls for cls in get_args(NodeChange)}
)


class TopologyChange(Struct, frozen=True):
    """A node comes, goes or changes its state."""

    change: NodeChange


class ReassignVShard(Struct, frozen=True):
    vshard_id: UInt32
    new_group_id: UInt64
    new_leaseholder_node_id: UInt64


class LeadershipTransfer(Struct, frozen=True):
    group_id: UInt64
    new_leader_node_id: UInt64


class RemoveMember(Struct, frozen=True):
    group_id: UInt64
    node_id: UInt64


RouteChange = ReassignVShard | LeadershipTransfer | RemoveMember
ROUTE_CHANGES: Final[Variants[RouteChange]] = Variants(
    {cls.__name__: cls for cls in get_args(RouteChange)}
)


class RoutingChange(Struct, frozen=True):
    """A replication group changes its leader or members, or a partition its group."""

    change: RouteChange


class ClusterVersionBump(Struct, frozen=True):
    from_version: UInt16
    to_version: UInt16


class DescriptorLeaseGrant(Struct, frozen=True):
    lease: DescriptorLease


class DescriptorLeaseRelease(Struct, frozen=True):
    node_id: UInt64
    descriptor_ids: tuple[DescriptorId, ...]


class DescriptorDrainStart(Struct, frozen=True):
    """No lease on a version up to this one is granted until the drain ends."""

    descriptor_id: DescriptorId
    up_to_version: UInt64
    expires_at: Hlc


class DescriptorDrainEnd(Struct, frozen=True):
    descriptor_id: DescriptorId


class CaTrustChange(Struct, frozen=True):
    """Trust a certificate, then stop trusting another: rotation in one step."""

    add_ca_cert: Octets | None = None
    remove_ca_fingerprint: Octets | None = None

    def __post_init__(self) -> None:
        if self.remove_ca_fingerprint is not None:
            _check_hash("remove_ca_fingerprint", self.remove_ca_fingerprint)


class SurrogateAlloc(Struct, frozen=True):
    """Allocate the blocks of producer ids between the current high-water mark and this one."""

    hwm: UInt32


class Register(Struct, frozen=True):
    expires_at_ms: UInt64


class BeginInFlight(Struct, frozen=True):
    """`node_addr` is the address that the joiner advertises: its connection's port would differ
    each time, and it would be in conflict with itself.
    """

    node_addr: str


class MarkConsumed(Struct, frozen=True):
    node_addr: str


class RevertInFlight(Struct, frozen=True):
    pass


class MarkExpired(Struct, frozen=True):
    pass


class MarkAborted(Struct, frozen=True):
    pass


TokenTransition = (
    Register | BeginInFlight | MarkConsumed | RevertInFlight | MarkExpired | MarkAborted
)
TOKEN_TRANSITIONS: Final[Variants[TokenTransition]] = Variants(
    {cls.__name__: cls for cls in get_args(TokenTransition)}
)


class JoinTokenTransition(Struct, frozen=True):
    token_hash: Octets
    transition: TokenTransition
    ts_ms: UInt64

    def __post_init__(self) -> None:
        _check_hash("token_hash", self.token_hash)


class MigrationCheckpoint(Struct, frozen=True):
    """A step of a migration; `phases.seal_checkpoint` gives phase, payload and checksum."""

    migration_id: str
    phase: Phase
    attempt: UInt32
    payload: Raw
    crc32c: UInt32
    ts_ms: UInt64

    def __post_init__(self) -> None:
        _check_migration_id(self.migration_id)
        open_checkpoint(self.phase, self.payload, self.crc32c)


class MigrationAbort(Struct, frozen=True):
    migration_id: str
    reason: str
    compensations: tuple[Compensation, ...]

    def __post_init__(self) -> None:
        _check_migration_id(self.migration_id)


Entry = (
    CatalogDdl
    | CatalogDdlAudited
    | Batch
    | TopologyChange
    | RoutingChange
    | ClusterVersionBump
    | DescriptorLeaseGrant
    | DescriptorLeaseRelease
    | DescriptorDrainStart
    | DescriptorDrainEnd
    | CaTrustChange
    | SurrogateAlloc
    | JoinTokenTransition
    | MigrationCheckpoint
    | MigrationAbort
)


def encode_entry(entry: Entry) -> bytes:
    """Write an entry as it is proposed; InvalidEntry if nodes could not read it."""
    inner = ENTRIES.encode(entry)
    if len(inner) > ENTRY_MAX_BYTES:
        raise InvalidEntry(
            f"{type(entry).__name__} has {len(inner)} bytes, more than {ENTRY_MAX_BYTES}: split it"
        )
    return _ENVELOPE.pack(MARKER, VERSION, len(inner)) + inner


def decode_entry(data: bytes) -> Entry:
    """Read what `encode_entry` wrote; InvalidEntry for anything else, whatever the bytes."""
    if len(data) < _ENVELOPE.size:
        raise InvalidEntry(f"{len(data)} bytes, an envelope has {_ENVELOPE.size}")
    marker, version, length = _ENVELOPE.unpack_from(data)
    if marker != MARKER:
        raise InvalidEntry(f"begins with 0x{marker:02x}, not with 0x{MARKER:02x}")
    if not 1 <= version <= VERSION:
        raise InvalidEntry(f"version {version}; this software reads versions 1 to {VERSION}")
    if length != len(data) - _ENVELOPE.size or length > ENTRY_MAX_BYTES:
        raise InvalidEntry(
            f"length {length}, but {len(data) - _ENVELOPE.size} bytes follow, of which "
            f"{ENTRY_MAX_BYTES} are allowed"
        )
    return ENTRIES.decode(memoryview(data)[_ENVELOPE.size :])


def _check_hash(name: str, value: bytes) -> None:
    if len(value) != HASH_BYTES:
        raise ValueError(f"{name} has {len(value)} bytes, not {HASH_BYTES}")


def _check_migration_id(text: str) -> None:
    """A wrong id must not become another one: two migrations would share a row."""
    try:
        is_canonical = str(UUID(text)) == text
    except ValueError:
        is_canonical = False
    if not is_canonical:
        raise ValueError(f"migration id {text[:64]!r} is no UUID in its 36 lower-case characters")


_ENVELOPE: Final = struct.Struct(">BHI")
ENUMS[NodeChange] = NODE_CHANGES
ENUMS[RouteChange] = ROUTE_CHANGES
ENUMS[TokenTransition] = TOKEN_TRANSITIONS
ENTRIES: Final[Variants[Entry]] = Variants({cls.__name__: cls for cls in get_args(Entry)})
ENUMS[Entry] = ENTRIES
