"""Metrics of coordinators: a bounded number of groups by name, and totals of transactions."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prometheus_client.metrics_core import Metric

from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.shard import State
from headrace.groups.kinds import OffsetsOnlyGroup
from headrace.groups.state import Group, GroupId, GroupKind, GroupsState
from headrace.ids import TopicName
from headrace.loop.slices import Slice, Slices
from headrace.share.lag import share_lag
from headrace.txn.state import Status
from headrace.web.families import PAUSE, Collected, Rows, counters, gauge, gauges

if TYPE_CHECKING:
    from headrace.server.broker import Broker

GROUPS_MAX: Final = 200
"""How many groups get their own rows: those with the most members and the most lag."""
OTHERS: Final = "(others)"
"""The label of the row for all other groups."""


class GroupRow(NamedTuple):
    """The figures of one group."""

    name: str
    kind: str
    state: str
    members: int
    lag: int


def group_metrics(broker: "Broker") -> Collected:
    """Yield metrics of the groups and transactions this node coordinates, and of its loads."""
    current = Slice()
    share_lags = yield from _share_lags(broker, current)
    summary = _Summary()
    for shard in tuple(broker.groups):
        if shard.state is State.ACTIVE:
            yield from _summarize(broker, shard.machine.state, share_lags, summary, current)
    yield gauges(
        "headrace_groups",
        "Groups that this node coordinates, by protocol and state "
        "(group-coordinator-metrics group-count)",
        [(labels, count) for labels, count in sorted(summary.by_state.items())],
        labels=("protocol", "state"),
    )
    shown = summary.shown()
    yield gauges(
        "headrace_group_members",
        "Members of a group",
        summary.with_others([(row.name, row.members) for row in shown], summary.other_members),
        labels=("group",),
    )
    yield gauges(
        "headrace_group_lag_records",
        "Lag of a group on partitions that this node leads: committed offsets to high watermarks, "
        "or the records that a share group has not finished",
        summary.with_others([(row.name, row.lag) for row in shown], summary.other_lag),
        labels=("group",),
    )
    yield gauges(
        "headrace_group_state",
        "1, labelled with the group's current state",
        [((row.name, row.state), 1) for row in shown],
        labels=("group", "state"),
    )
    yield from _transactions(broker, current)
    yield from _coordinators(broker)


class _Summary:
    """The groups with their own rows, and the sum of the others."""

    def __init__(self) -> None:
        self.by_state: Counter[tuple[str, str]] = Counter()
        self.other_members = 0
        self.other_lag = 0
        self._count = 0
        self._largest: list[tuple[int, int, int, GroupRow]] = []

    def add(self, row: GroupRow) -> None:
        self.by_state[row.kind, row.state] += 1
        self._count += 1
        entry = (row.members, row.lag, -self._count, row)
        if self._count <= GROUPS_MAX:
            heappush(self._largest, entry)
            return
        dropped = heappushpop(self._largest, entry)[3]
        self.other_members += dropped.members
        self.other_lag += dropped.lag

    def shown(self) -> list[GroupRow]:
        """Return the groups with their own rows, in the order they were found."""
        return [entry[3] for entry in sorted(self._largest, key=lambda entry: -entry[2])]

    def with_others(self, rows: Iterable[tuple[str, int]], others: int) -> Rows:
        own = [((name,), float(value)) for name, value in rows]
        return [*own, ((OTHERS,), float(others))] if self._count > GROUPS_MAX else own


def _summarize(
    broker: "Broker",
    state: GroupsState,
    share_lags: Mapping[str, int],
    summary: _Summary,
    current: Slice,
) -> Iterator[None]:
    groups: list[Group | str] = [*state.groups.values(), *state.offsets.groups()]
    for found in groups:
        if isinstance(found, str):
            if GroupId(found) in state.groups:
                continue
            group: Group = OffsetsOnlyGroup(GroupId(found))
        else:
            group = found
        name = group.group_id
        lag = share_lags.get(name, 0) if group.kind is GroupKind.SHARE else 0
        for topic, offsets in tuple(state.offsets.committed(name).items()):
            for index, committed in tuple(offsets.items()):
                partition = broker.replicas.find(TopicName(topic), index)
                if partition is not None and partition.is_leader:
                    lag += max(partition.log.high_watermark - committed.offset, 0)
                if current.spend(2):
                    yield PAUSE
        summary.add(GroupRow(name, group.kind.value, group.state_name, _member_count(group), lag))
        if current.spend(5):
            yield PAUSE


def _share_lags(broker: "Broker", current: Slice) -> Slices[Counter[str]]:
    """Return the lag of share groups whose states are on this node."""
    lags: Counter[str] = Counter()
    for shard in tuple(broker.share_states):
        if shard.state is not State.ACTIVE:
            continue
        for key, state in tuple(shard.machine.state.states.items()):
            lags[key.group_id] += max(share_lag(broker.replicas, key, state.summary), 0)
            if current.spend(2):
                yield
    return lags


def _member_count(group: Group) -> int:
    """Return the number of members; a group that only has offsets has none."""
    return len(getattr(group, "members", ()))


def _transactions(broker: "Broker", current: Slice) -> Collected:
    total, is_open, completing = 0, 0, 0
    for shard in tuple(broker.transactions):
        if shard.state is not State.ACTIVE:
            continue
        for each in tuple(shard.machine.state.transactions.values()):
            total += 1
            is_open += each.status is Status.ONGOING
            completing += each.status.is_prepared
            if current.spend():
                yield PAUSE
    yield gauge("headrace_transactional_ids", "Transactional ids that this node coordinates", total)
    yield gauge(
        "headrace_open_transactions", "Transactions that were begun and are not decided", is_open
    )
    yield gauge(
        "headrace_completing_transactions",
        "Transactions that are decided and whose markers are not all written",
        completing,
    )


def _coordinators(broker: "Broker") -> Iterator[Metric]:
    coordinators: tuple[Coordinator[Any], ...] = (
        broker.groups,
        broker.transactions,
        broker.share_states,
    )
    by_state = {
        (str(each.topic), state.value): 0
        for each in coordinators
        for state in State
        if state is not State.CLOSED
    }
    for each in coordinators:
        for shard in each:
            by_state[str(each.topic), shard.state.value] += 1
    yield gauges(
        "headrace_coordinator_partitions",
        "Partitions of internal topics that this node leads, by how far they are loaded "
        "(group-coordinator-metrics num-partitions)",
        list(by_state.items()),
        labels=("topic", "state"),
    )
    yield counters(
        "headrace_coordinator_loads",
        "How often a partition of an internal topic was loaded "
        "(group-coordinator-metrics partition-load-time-max)",
        [((str(each.topic),), each.load_count) for each in coordinators],
        labels=("topic",),
    )
