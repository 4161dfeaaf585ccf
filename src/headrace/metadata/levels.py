"""What a cluster may write before all of its nodes run this release (`headrace.version`).

Nodes of two releases share one log during an upgrade. An entry that one of them cannot read would
stop it, and one that the two apply differently would give them different images. So such an entry
is refused before it is proposed, until the cluster is at the level that it needs:
`headrace cluster upgrade` raises it when every node can, and nothing lowers it. At a level, older
software stops at `RaiseLevel`, whose number it does not know, and at snapshots of that level.

Level 1 has journaled moves, decommissions, plans under a lease, ACLs, quotas, delegation tokens,
tiered topics, mirrors, a number of voters for the whole cluster, guarded changes of configs
and features, and names of topics that metrics can tell apart whoever creates them.
For a next one, say in `_need` what needs it, raise `features.LEVEL`, and say in `snapshot` which
version its reader must know.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.ddl import (
    AddAcls,
    CancelDecommission,
    ChangeTokenExpiry,
    CreateTopic,
    Ddl,
    SetConfigs,
    SetConfigsIf,
    SetDelegationToken,
    SetFeaturesIf,
    SetQuota,
    decode_ddl,
)
from headrace.metadata.descriptors import DescriptorKind
from headrace.metadata.entries import (
    Batch,
    CatalogDdl,
    CatalogDdlAudited,
    DescriptorLeaseGrant,
    Entry,
    MigrationAbort,
    MigrationCheckpoint,
    StartDecommission,
    TopologyChange,
)
from headrace.metadata.features import HEADRACE_VERSION, LEVEL
from headrace.metadata.image import Image
from headrace.metadata.state import ResourceType

MOVES_LEVEL: Final = 1
"""From here on moves are journaled."""
LISTS_LEVEL: Final = 1
"""From here on changes of configs and features say what they were planned from."""
NAMES_LEVEL: Final = 1
"""From here on the applier refuses a topic whose name collides with another's."""
TIERED: Final = "remote.storage.enable"
MIRROR: Final = "headrace.mirror.source"
VOTERS: Final = "headrace.voters.max"


class Need(NamedTuple):
    """A level, and what needs it."""

    level: int
    what: str


def may_journal(image: Image) -> bool:
    """Return whether every node applies the journal of moves alike."""
    return image.feature_level(HEADRACE_VERSION) >= MOVES_LEVEL


def may_expect(image: Image) -> bool:
    """Return whether every node knows changes that say what they were planned from."""
    return image.feature_level(HEADRACE_VERSION) >= LISTS_LEVEL


def must_differ(image: Image) -> bool:
    """Return whether every node refuses names of topics that collide when they are applied."""
    return image.feature_level(HEADRACE_VERSION) >= NAMES_LEVEL


def is_level_highest(image: Image) -> bool:
    """Return whether the cluster may have everything that this software can write."""
    return image.feature_level(HEADRACE_VERSION) >= LEVEL


def refusal_of(image: Image, change: Entry | Ddl) -> KafkaError | None:
    """Return why a change must not be proposed yet; None if it may be.

    Costs nothing once the cluster is at the level of this software, which it is most of the time.
    """
    if is_level_highest(image):
        return None
    current = image.feature_level(HEADRACE_VERSION)
    for each in _steps(change):
        need = _need(each)
        if need is not None and need.level > current:
            return KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{need.what} need {HEADRACE_VERSION} {need.level}, and the cluster is at "
                f"{current}, as nodes of an older release may be part of it: upgrade every node, "
                "then run `headrace cluster upgrade`",
            )
    return None


def _steps(change: Entry | Ddl) -> Iterator[Entry | Ddl]:
    match change:
        case Batch(entries):
            for each in entries:
                yield from _steps(each)
        case CatalogDdl(payload) | CatalogDdlAudited(payload):
            yield decode_ddl(payload)
        case _:
            yield change


def _need(change: Entry | Ddl) -> Need | None:  # noqa: PLR0911  a table
    match change:
        case MigrationCheckpoint() | MigrationAbort():
            return Need(MOVES_LEVEL, "journaled moves")
        case TopologyChange(StartDecommission()) | CancelDecommission():
            return Need(1, "decommissions")
        case DescriptorLeaseGrant(lease) if lease.descriptor_id.kind is DescriptorKind.SCHEDULE:
            return Need(1, "plans of `headrace cluster` that move partitions")
        case AddAcls():
            return Need(1, "ACLs")
        case SetQuota():
            return Need(1, "quotas")
        case SetConfigsIf():
            return Need(LISTS_LEVEL, "lists that two clients may change at the same time")
        case SetFeaturesIf():
            return Need(LISTS_LEVEL, "features that two clients may change at the same time")
        case SetDelegationToken() | ChangeTokenExpiry():
            return Need(1, "delegation tokens")
        case CreateTopic(configs=configs):
            return _need_of_configs(configs)
        case SetConfigs(resource_type=ResourceType.TOPIC, values=values):
            return _need_of_configs(values)
        case SetConfigs(resource_type=ResourceType.BROKER, values=values) if values.get(VOTERS):
            return Need(1, f"clusters with a dynamic {VOTERS}")
        case _:
            return None


def _need_of_configs(values: Mapping[str, str | None]) -> Need | None:
    if (values.get(TIERED) or "").strip().lower() == "true":
        return Need(1, f"topics with {TIERED}=true")
    if values.get(MIRROR):
        return Need(1, f"topics with {MIRROR}")
    return None
