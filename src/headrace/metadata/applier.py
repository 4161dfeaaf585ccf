"""The applier: committed entries become the image, each once, in order, or the node stops.

    last = applier.apply(committed)             # the index that the image covers now
    applier.outcome(index).raise_if_refused()   # the outcome of one's own proposal

An index at or below the applied one is ignored, for the image and for watchers alike; the entries
of a batch share an index and are all applied. Indices may skip: Raft uses some itself.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Struct

from headrace.config import METADATA_OUTCOMES_MAX
from headrace.errors import HeadraceError
from headrace.metadata import brokers, configs, leases, migrations, rights, topics
from headrace.metadata.ddl import (
    AddAcls,
    AddPartitions,
    CancelDecommission,
    ChangeBroker,
    ChangePartition,
    ChangeTokenExpiry,
    CreateTopic,
    Ddl,
    DeleteTopic,
    Expire,
    RaiseLevel,
    RegisterBroker,
    RemoveAcls,
    RemoveDelegationToken,
    RemoveScramCredential,
    SetClusterId,
    SetConfigs,
    SetConfigsIf,
    SetDelegationToken,
    SetFeature,
    SetFeaturesIf,
    SetQuota,
    SetScramCredential,
    UnregisterBroker,
    decode_ddl,
)
from headrace.metadata.entries import (
    Batch,
    CatalogDdl,
    CatalogDdlAudited,
    CaTrustChange,
    ClusterVersionBump,
    DescriptorDrainEnd,
    DescriptorDrainStart,
    DescriptorLeaseGrant,
    DescriptorLeaseRelease,
    Entry,
    JoinTokenTransition,
    MigrationAbort,
    MigrationCheckpoint,
    RoutingChange,
    SurrogateAlloc,
    TopologyChange,
    decode_entry,
)
from headrace.metadata.errors import MetadataStopped, Refused
from headrace.metadata.events import (
    Event,
    JoinTokenChanged,
    MigrationEvent,
    RoutingEvent,
    TopologyEvent,
)
from headrace.metadata.image import Image
from headrace.metadata.routing import change_route
from headrace.metadata.surrogates import allocate
from headrace.metadata.token_states import change_token, forget_tokens
from headrace.metadata.topology import cancel_decommission, change_topology
from headrace.metadata.trust import change_trust


class Refusal(Struct, frozen=True):
    """An entry that changed nothing, and why."""

    position: int
    """Among the entries of the index, batches counted through; zero if it is not a batch."""
    error: Refused


class Outcome(Struct, frozen=True):
    """What an index did to the image."""

    index: int
    events: tuple[Event, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    def raise_if_refused(self) -> None:
        """Raise the first refusal, for the proposer."""
        if self.refusals:
            raise self.refusals[0].error


class Watchers(Struct, frozen=True):
    """Callbacks for changes, called once an index is completely applied; each may be absent.

    A watcher must not raise: its exception goes to the caller of `apply`, and later watchers are
    not called.
    """

    topology: Callable[[TopologyEvent], None] | None = None
    routing: Callable[[RoutingEvent], None] | None = None
    migrations: Callable[[MigrationEvent], None] | None = None
    tokens: Callable[[JoinTokenChanged], None] | None = None
    outcomes: Callable[[Outcome], None] | None = None


class OutcomeForgotten(HeadraceError):
    """An index whose outcome is not known here any more, or not yet known."""


class Applier:
    """Applies committed entries to one image, the only one to change it."""

    def __init__(
        self,
        image: Image,
        watchers: Watchers = Watchers(),  # noqa: B008  frozen
        outcomes_max: int = METADATA_OUTCOMES_MAX.default,
    ) -> None:
        self.image: Final = image
        self._watchers = watchers
        self._outcomes: dict[int, Outcome] = {}
        self._outcomes_max = outcomes_max
        self._stopped: MetadataStopped | None = None

    def apply(self, entries: Iterable[tuple[int, bytes]]) -> int:
        """Apply committed entries and return the last index that the image covers.

        Entries without data are no-ops. Raise MetadataStopped if one cannot be applied, and from
        then on always: the image must not be used any more, least of all for a snapshot.
        """
        self.check_is_running()
        for index, data in entries:
            if index <= self.image.applied_index:
                continue
            if data:
                outcome = self._apply_one(index, data)
                self._remember(outcome)
                self._tell(outcome)
            else:
                self.advance(index)
        return self.image.applied_index

    def advance(self, index: int) -> int:
        """Cover an index that holds nothing for the image: a no-op or a change of members."""
        self.check_is_running()
        if index > self.image.applied_index:
            self.image.state.applied_index = index
            self._remember(Outcome(index))
        return self.image.applied_index

    def outcome(self, index: int) -> Outcome:
        """Return what an index did; raise OutcomeForgotten if it is not among the last applied."""
        found = self._outcomes.get(index)
        if found is None:
            raise OutcomeForgotten(
                f"the outcome of metadata index {index} is not known: applied is "
                f"{self.image.applied_index}, and the last {self._outcomes_max} outcomes are kept"
            )
        return found

    def check_is_running(self) -> None:
        """Raise what stopped this applier, if something did."""
        if self._stopped is not None:
            raise self._stopped

    def _apply_one(self, index: int, data: bytes) -> Outcome:
        events: list[Event] = []
        refusals: list[Refusal] = []
        try:
            # All is read before anything is changed.
            steps = _steps(decode_entry(data))
            for position, step in enumerate(steps):
                try:
                    events += _apply_step(self.image, step)
                except Refused as error:
                    # What led here is of no use to anybody, and would be kept with it.
                    refusals.append(Refusal(position, error.with_traceback(None)))
        except HeadraceError as error:
            raise self._stop(index, str(error)) from error
        except Exception as error:
            # A bug. It is the same on every node, but how far it got need not be.
            raise self._stop(index, f"{type(error).__name__}: {error}") from error
        self.image.end_entry()
        self.image.state.applied_index = index
        return Outcome(index, tuple(events), tuple(refusals))

    def _stop(self, index: int, reason: str) -> MetadataStopped:
        self._stopped = MetadataStopped(index, reason)
        return self._stopped

    def _remember(self, outcome: Outcome) -> None:
        self._outcomes[outcome.index] = outcome
        if len(self._outcomes) > self._outcomes_max:
            del self._outcomes[next(iter(self._outcomes))]

    def _tell(self, outcome: Outcome) -> None:
        watchers = self._watchers
        for event in outcome.events:
            if watchers.topology is not None and isinstance(event, TopologyEvent):
                watchers.topology(event)
            if watchers.routing is not None and isinstance(event, RoutingEvent):
                watchers.routing(event)
            if watchers.migrations is not None and isinstance(event, MigrationEvent):
                watchers.migrations(event)
            if watchers.tokens is not None and isinstance(event, JoinTokenChanged):
                watchers.tokens(event)
        if watchers.outcomes is not None:
            watchers.outcomes(outcome)


def check_entry(data: bytes) -> "list[Entry | Ddl]":
    """Return the steps of an entry; InvalidEntry if no applier could read it.

    In the log it would stop every node.
    """
    return _steps(decode_entry(data))


def _steps(entry: Entry) -> list[Entry | Ddl]:
    """Yield the entries of an index, with decoded DDL."""
    match entry:
        case Batch(entries):
            return [step for each in entries for step in _steps(each)]
        case CatalogDdl(payload) | CatalogDdlAudited(payload):
            return [decode_ddl(payload)]
        case _:
            return [entry]


def _apply_step(image: Image, step: Entry | Ddl) -> list[Event]:
    if isinstance(step, Ddl):
        image.state.catalog_entries_applied += 1
    return _STEPS[type(step)](image, step)


def _expire(image: Image, ddl: Expire) -> list[Event]:
    return [
        *leases.expire_leases(image, ddl.now_ms),
        *rights.expire_delegation_tokens(image, ddl.now_ms),
        *forget_tokens(image, ddl.now_ms),
    ]


def _change_topology(image: Image, entry: TopologyChange) -> list[Event]:
    return change_topology(image, entry.change)


def _change_route(image: Image, entry: RoutingChange) -> list[Event]:
    return change_route(image, entry.change)


_STEPS: Final[dict[type[Any], Callable[[Image, Any], list[Event]]]] = {
    TopologyChange: _change_topology,
    RoutingChange: _change_route,
    ClusterVersionBump: configs.bump_version,
    DescriptorLeaseGrant: leases.grant,
    DescriptorLeaseRelease: leases.release,
    DescriptorDrainStart: leases.start_drain,
    DescriptorDrainEnd: leases.end_drain,
    CaTrustChange: change_trust,
    SurrogateAlloc: allocate,
    JoinTokenTransition: change_token,
    MigrationCheckpoint: migrations.checkpoint,
    MigrationAbort: migrations.abort,
    CreateTopic: topics.create_topic,
    DeleteTopic: topics.delete_topic,
    AddPartitions: topics.add_partitions,
    ChangePartition: topics.change_partition,
    SetClusterId: configs.set_cluster_id,
    RegisterBroker: brokers.register_broker,
    ChangeBroker: brokers.change_broker,
    UnregisterBroker: brokers.unregister_broker,
    SetConfigs: configs.set_configs,
    SetConfigsIf: configs.set_configs_if,
    SetFeature: configs.set_feature,
    SetFeaturesIf: configs.set_features_if,
    RaiseLevel: configs.raise_level,
    AddAcls: rights.add_acls,
    RemoveAcls: rights.remove_acls,
    SetScramCredential: rights.set_scram_credential,
    RemoveScramCredential: rights.remove_scram_credential,
    SetQuota: rights.set_quota,
    SetDelegationToken: rights.set_delegation_token,
    ChangeTokenExpiry: rights.change_token_expiry,
    RemoveDelegationToken: rights.remove_delegation_token,
    CancelDecommission: cancel_decommission,
    Expire: _expire,
}
