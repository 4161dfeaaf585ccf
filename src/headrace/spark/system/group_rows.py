"""Rows about groups, their positions and members, and about transactions."""

from collections.abc import Iterable

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.coordinators import CoordinatorType, find_coordinator
from headrace.client.group_members import GroupDescription, GroupMember, describe_group
from headrace.client.groups import fetch_offsets, list_groups
from headrace.client.offsets import FoundOffset, Start, list_offsets
from headrace.client.outcomes import Outcomes
from headrace.client.share.offsets import ShareStart, describe_share_offsets
from headrace.client.topics import TopicPartition
from headrace.client.transactions import (
    TransactionDescription,
    describe_transaction,
    list_transactions,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.spark.system.parts import (
    GROUPS_PER_TASK,
    TASKS_MAX,
    Part,
    Row,
    each_of,
    known,
    moment,
)
from headrace.spark.system.selection import Selection, chunks

_SHARE = "share"
_STREAMS = "streams"


class Position(msgspec.Struct, frozen=True):
    """Where a group is in a partition."""

    offset: int | None
    lag: int | None
    """As a share group's coordinator knows it."""
    metadata: str | None = None


async def plan_groups(cluster: Cluster, selection: Selection) -> list[Part]:
    """Return tasks of some groups each; groups that are named are not listed first."""
    names = selection.values("group_id")
    if names is None:
        listed = await list_groups(cluster)
        names = frozenset(
            each.group_id
            for each in listed
            if not each.group_type or selection.admits(type=each.group_type)
        )
    return [Part(each) for each in chunks(sorted(names), GROUPS_PER_TASK, TASKS_MAX)]


async def plan_transactions(cluster: Cluster, selection: Selection) -> list[Part]:
    """Return tasks of some transactional ids each."""
    names = selection.values("transactional_id")
    if names is None:
        states = selection.values("state") or frozenset()
        listed = await list_transactions(cluster, sorted(states))
        names = frozenset(each.transactional_id for each in listed)
    return [Part(each) for each in chunks(sorted(names), GROUPS_PER_TASK, TASKS_MAX)]


async def group_rows(cluster: Cluster, part: Part, selection: Selection) -> list[Row]:
    """Return the frame `groups`."""
    groups = await described(cluster, part.names)
    names = [group.group_id for group in groups]
    coordinators = await each_of(names, lambda name: _coordinator(cluster, name))
    positions = await each_of(groups, lambda group: _positions(cluster, group))
    ends = await _ends(cluster, positions)
    rows: list[Row] = []
    for group, node, places in zip(groups, coordinators, positions, strict=True):
        lags = [_lag(position, ends.get(each)) for each, position in places.items()]
        sure = [lag for lag in lags if lag is not None]
        rows.append(
            (
                group.group_id,
                group.group_type,
                group.state,
                group.protocol_type or None,
                group.assignor or None,
                node,
                group.epoch,
                len(group.members),
                len(places),
                sum(sure) if sure else None,
                max(sure, default=None),
            )
        )
    return rows


async def offset_rows(cluster: Cluster, part: Part, selection: Selection) -> list[Row]:
    """Return the frame `group_offsets`."""
    groups = await described(cluster, part.names)
    everywhere = await each_of(groups, lambda group: _positions(cluster, group))
    positions = [
        {each: row for each, row in places.items() if selection.admits(topic=each.topic)}
        for places in everywhere
    ]
    ends = await _ends(cluster, positions)
    rows: list[Row] = []
    for group, places in zip(groups, positions, strict=True):
        owners: dict[TopicPartition, GroupMember] = {}
        if group.group_type not in (_STREAMS, _SHARE):  # tasks, and partitions with several owners
            owners = {each: member for member in group.members for each in member.assignment}
        for each, position in places.items():
            end, owner = ends.get(each), owners.get(each)
            rows.append(
                (
                    group.group_id,
                    group.group_type,
                    *each,
                    position.offset,
                    end.offset if isinstance(end, FoundOffset) else None,
                    _lag(position, end),
                    None if owner is None else owner.member_id,
                    None if owner is None else owner.client_id,
                    None if owner is None else owner.host.removeprefix("/"),
                    position.metadata,
                )
            )
    return rows


async def member_rows(cluster: Cluster, part: Part, selection: Selection) -> list[Row]:
    """Return the frame `group_members`."""
    return [
        (
            group.group_id,
            group.group_type,
            member.member_id,
            member.instance_id,
            member.client_id,
            member.host.removeprefix("/"),
            member.rack,
            member.epoch,
            list(member.subscription),
            [str(each) for each in member.assignment],
        )
        for group in await described(cluster, part.names)
        for member in group.members
    ]


async def transaction_rows(cluster: Cluster, part: Part, selection: Selection) -> list[Row]:
    """Return the frame `transactions`."""

    async def describe(name: str) -> tuple[TransactionDescription, int] | None:
        try:
            found = await describe_transaction(cluster, name)
        except KafkaError as error:
            if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None  # expired meanwhile, or never existed
            raise
        return found, await find_coordinator(cluster, CoordinatorType.TRANSACTION, name)

    return [
        (
            row.transactional_id,
            row.state,
            row.producer_id,
            row.producer_epoch,
            node,
            row.timeout_ms,
            moment(row.start_ms),
            [str(each) for each in row.partitions],
        )
        for row, node in filter(None, await each_of(part.names, describe))
    ]


async def described(cluster: Cluster, names: Iterable[str]) -> list[GroupDescription]:
    """Return the groups that exist, in the order of their names."""

    async def describe(name: str) -> GroupDescription | None:
        try:
            return await describe_group(cluster, name)
        except KafkaError as error:
            if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                return None
            raise

    return [each for each in await each_of(names, describe) if each is not None]


async def _coordinator(cluster: Cluster, name: str) -> int:
    return await find_coordinator(cluster, CoordinatorType.GROUP, name)


async def _positions(cluster: Cluster, group: GroupDescription) -> dict[TopicPartition, Position]:
    if group.group_type == _SHARE:
        starts = await describe_share_offsets(cluster, group.group_id)
        return {
            each: Position(start.offset, start.lag)
            for each, start in starts.items()
            if isinstance(start, ShareStart)
        }
    committed = await fetch_offsets(cluster, group.group_id)
    return {
        each: Position(row.offset, None, row.metadata or None) for each, row in committed.items()
    }


async def _ends(
    cluster: Cluster, positions: Iterable[dict[TopicPartition, Position]]
) -> Outcomes[TopicPartition, FoundOffset]:
    partitions = sorted({each for places in positions for each in places})
    return await list_offsets(cluster, dict.fromkeys(partitions, Start.END)) if partitions else {}


def _lag(position: Position, end: FoundOffset | KafkaError | None) -> int | None:
    if position.lag is not None:
        return known(position.lag)
    if position.offset is None or not isinstance(end, FoundOffset):
        return None
    return max(end.offset - position.offset, 0)
