"""Metrics of coordinators: groups by name, as many as a page can bear, and transactions in sum."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prometheus_client.metrics_core import Metric

from headrace.broker.share_lag import share_lag
from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.shard import Shard, State
from headrace.groups.kinds import all_groups
from headrace.groups.machine import GroupsMachine
from headrace.groups.state import Group, GroupKind
from headrace.ids import TopicName
from headrace.txn.state import Status
from headrace.web.families import Rows, counters, gauge, gauges

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

GROUPS_MAX: Final = 200
"""How many groups have rows of their own: those with the most members and the most lag."""
OTHERS: Final = "(others)"
"""The rest in one."""


class GroupRow(NamedTuple):
    """What is counted of one group."""

    name: str
    kind: str
    state: str
    members: int
    lag: int


def group_metrics(broker: "Broker") -> Iterator[Metric]:
    """Give the groups and transactions that this node coordinates, and how its loads went."""
    share_lags = _share_lags(broker)
    rows = [row for shard in broker.groups for row in _rows_of(broker, shard, share_lags)]
    by_state = Counter((row.kind, row.state) for row in rows)
    yield gauges(
        "headrace_groups",
        "Groups that this node coordinates, by protocol and state "
        "(group-coordinator-metrics group-count)",
        [(labels, count) for labels, count in sorted(by_state.items())],
        labels=("protocol", "state"),
    )
    shown, others = _shown(rows)
    yield gauges(
        "headrace_group_members",
        "Members of a group",
        _with_others([(row.name, row.members) for row in shown], [row.members for row in others]),
        labels=("group",),
    )
    yield gauges(
        "headrace_group_lag_records",
        "Records that a group has not read: committed offsets to high watermarks, or what a share "
        "group is not done with, of partitions that this node leads",
        _with_others([(row.name, row.lag) for row in shown], [row.lag for row in others]),
        labels=("group",),
    )
    yield gauges(
        "headrace_group_state",
        "1, with the state that a group is in",
        [((row.name, row.state), 1) for row in shown],
        labels=("group", "state"),
    )
    yield from _transactions(broker)
    yield from _coordinators(broker)


def _rows_of(
    broker: "Broker", shard: Shard[GroupsMachine], share_lags: Mapping[str, int]
) -> Iterator[GroupRow]:
    if shard.state is not State.ACTIVE:
        return
    state = shard.machine.state
    for group in all_groups(state):
        name = group.group_id
        lag = share_lags.get(name, 0) if group.kind is GroupKind.SHARE else 0
        for topic, offsets in state.offsets.committed(name).items():
            for index, committed in offsets.items():
                partition = broker.replicas.find(TopicName(topic), index)
                if partition is not None and partition.is_leader:
                    lag += max(partition.log.high_watermark - committed.offset, 0)
        yield GroupRow(name, group.kind.value, group.state_name, _member_count(group), lag)


def _share_lags(broker: "Broker") -> Counter[str]:
    """Give how far share groups are behind, as far as their states are here."""
    lags: Counter[str] = Counter()
    for shard in broker.share_states:
        if shard.state is State.ACTIVE:
            for key, state in shard.machine.state.states.items():
                lags[key.group_id] += max(share_lag(broker, key, state.summary), 0)
    return lags


def _member_count(group: Group) -> int:
    """Say how many there are; a group of offsets only has none."""
    return len(getattr(group, "members", ()))


def _shown(rows: list[GroupRow]) -> tuple[list[GroupRow], list[GroupRow]]:
    """Give the groups that have rows of their own, and the others."""
    if len(rows) <= GROUPS_MAX:
        return rows, []
    shown = nlargest(GROUPS_MAX, rows, key=lambda row: (row.members, row.lag))
    names = {row.name for row in shown}
    return shown, [row for row in rows if row.name not in names]


def _with_others(rows: Iterable[tuple[str, int]], others: list[int]) -> Rows:
    own = [((name,), float(value)) for name, value in rows]
    return [*own, ((OTHERS,), float(sum(others)))] if others else own


def _transactions(broker: "Broker") -> Iterator[Metric]:
    transactions = [
        each
        for shard in broker.transactions
        if shard.state is State.ACTIVE
        for each in shard.machine.state.transactions.values()
    ]
    yield gauge(
        "headrace_transactional_ids",
        "Transactional ids that this node coordinates",
        len(transactions),
    )
    yield gauge(
        "headrace_open_transactions",
        "Transactions that were begun and are not decided",
        sum(each.status is Status.ONGOING for each in transactions),
    )
    yield gauge(
        "headrace_completing_transactions",
        "Transactions that are decided and whose markers are not all written",
        sum(each.status.is_prepared for each in transactions),
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
