"""`headrace groups`: list, describe, offsets, reset-offsets, delete, explain."""

import time

import click

from headrace.cli.any_group import (
    describe_each,
    if_exists_option,
    name_argument,
    names_argument,
    report_moves,
    reset_options,
)
from headrace.cli.client_config import client_settings
from headrace.cli.group_explanation import explain as explain_group
from headrace.cli.group_history import GroupHistory, read_history
from headrace.cli.offset_reset import Move, Target, plan_reset
from headrace.cli.options import CommandGroup, bootstrap_option, json_option, yes_option
from headrace.cli.output import print_json, print_table, report_deleted
from headrace.cli.running import complete, make_sure, report
from headrace.cli.streams import say
from headrace.client.admin import Admin
from headrace.client.group_members import GroupDescription, GroupMember, describe_group
from headrace.client.groups import (
    CommittedOffset,
    ListedGroup,
    commit_offsets,
    delete_groups,
    fetch_offsets,
    list_groups,
)
from headrace.client.offsets import FoundOffset, Start
from headrace.client.outcomes import Outcomes
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError


@click.group(cls=CommandGroup)
def groups() -> None:
    """List, describe, explain and delete groups; show their lag, reset their offsets."""


@groups.command("list")
@click.option("--state", "states", multiple=True, help="Only of this state; repeatable.")
@click.option(
    "--type", "kinds", multiple=True, help="classic, consumer, share or streams; repeatable."
)
@json_option
@bootstrap_option
def list_(states: tuple[str, ...], kinds: tuple[str, ...], as_json: bool, bootstrap: str) -> None:
    """List groups."""

    async def work() -> list[ListedGroup]:
        async with Admin(bootstrap, client_settings()) as admin:
            return await list_groups(admin.cluster, states, kinds)

    found = complete(work())
    if as_json:
        print_json(
            [
                {
                    "group": row.group_id,
                    "type": row.group_type,
                    "protocol": row.protocol_type,
                    "state": row.state,
                    "coordinator": row.coordinator,
                }
                for row in found
            ]
        )
        return
    print_table(
        ("group", "type", "protocol", "state", "coordinator"),
        [
            (row.group_id, row.group_type, row.protocol_type, row.state, row.coordinator)
            for row in found
        ],
    )


@groups.command()
@names_argument
@json_option
@bootstrap_option
def describe(names: tuple[str, ...], as_json: bool, bootstrap: str) -> None:
    """Show state, epochs, members and their partitions."""
    outcomes = describe_each(names, bootstrap, describe_group)
    found = [row for row in outcomes.values() if isinstance(row, GroupDescription)]
    if as_json:
        print_json([_group_json(group) for group in found])
    else:
        for group in found:
            _print_group(group)
    report(outcomes, "group")


@groups.command()
@name_argument
@json_option
@bootstrap_option
def explain(name: str, as_json: bool, bootstrap: str) -> None:
    """Explain why a group is rebalancing, which members are late, and since when."""

    async def work() -> tuple[GroupDescription, GroupHistory]:
        async with Admin(bootstrap, client_settings()) as admin:
            described = await describe_group(admin.cluster, name)
            return described, await read_history(admin.cluster, name)

    group, history = complete(work())
    sentences = explain_group(group, history, time.time_ns() // 1_000_000)
    if as_json:
        print_json({"group": name, "state": group.state, "explanation": sentences})
    else:
        say("\n".join(sentences))


@groups.command()
@name_argument
@json_option
@bootstrap_option
def offsets(name: str, as_json: bool, bootstrap: str) -> None:
    """Show a group's committed offsets, the partitions' ends, and its lag."""

    async def work() -> list[dict[str, object]]:
        async with Admin(bootstrap, client_settings()) as admin:
            try:
                described = await describe_group(admin.cluster, name)
            except KafkaError as error:
                if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                described = None
            committed = await fetch_offsets(admin.cluster, name)
            if described is None and not committed:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
            return await _lags(admin, described, committed)

    rows = complete(work())
    if as_json:
        print_json(rows)
        return
    columns = ("topic", "partition", "committed", "end", "lag", "member", "metadata")
    print_table(columns, [tuple(row[column] for column in columns) for row in rows])


@groups.command("reset-offsets")
@name_argument
@reset_options
@json_option
@bootstrap_option
def reset_offsets(
    name: str,
    *,
    wanted: dict[str, list[int]],
    target: Target,
    execute: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Reset the offsets of a group without members. Without --execute, only show the effect."""

    async def work() -> list[Move]:
        async with Admin(bootstrap, client_settings()) as admin:
            if execute:
                await _refuse_if_in_use(admin, name)
            committed = await fetch_offsets(admin.cluster, name)
            moves = await plan_reset(admin, committed, wanted, target)
            if execute and moves:
                new_offsets = {move.partition: move.new_offset for move in moves}
                outcomes.update(await commit_offsets(admin.cluster, name, new_offsets))
        return moves

    outcomes: Outcomes[TopicPartition, None] = {}
    report_moves(complete(work()), outcomes, is_executed=execute, as_json=as_json)


@groups.command()
@names_argument
@yes_option
@if_exists_option
@json_option
@bootstrap_option
def delete(
    names: tuple[str, ...], *, yes: bool, if_exists: bool, as_json: bool, bootstrap: str
) -> None:
    """Delete groups and their offsets. Asks for confirmation on a terminal."""
    make_sure(f"Delete {', '.join(names)} with all offsets?", is_sure=yes)

    async def work() -> Outcomes[str, None]:
        async with Admin(bootstrap, client_settings()) as admin:
            return await delete_groups(admin.cluster, names)

    outcomes = complete(work())
    fine = ErrorCode.GROUP_ID_NOT_FOUND if if_exists else None
    report_deleted(outcomes, "group", as_json=as_json, fine=fine)


async def _lags(
    admin: Admin,
    group: GroupDescription | None,
    committed: dict[TopicPartition, CommittedOffset],
) -> list[dict[str, object]]:
    """Return a row for each partition that has a committed offset or an owner."""
    owners: dict[TopicPartition, GroupMember] = {}
    if group is not None and group.group_type != "streams":
        owners = {part: member for member in group.members for part in member.assignment}
    partitions = sorted({*committed, *owners})
    ends = await admin.list_offsets(dict.fromkeys(partitions, Start.END))
    rows = []
    for partition in partitions:
        end, at, owner = ends[partition], committed.get(partition), owners.get(partition)
        end_offset = end.offset if isinstance(end, FoundOffset) else None
        lag = None if at is None or end_offset is None else max(end_offset - at.offset, 0)
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": None if at is None else at.offset,
                "end": end_offset,
                "lag": lag,
                "member": None if owner is None else owner.member_id,
                "metadata": (at.metadata or None) if at is not None else None,
            }
        )
    return rows


async def _refuse_if_in_use(admin: Admin, name: str) -> None:
    try:
        described = await describe_group(admin.cluster, name)
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return  # offsets may be set for a group before a member joins
    described.check_empty()


def _group_json(group: GroupDescription) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "protocol": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "rack": member.rack,
                "epoch": member.epoch,
                "subscription": member.subscription,
                "assignment": member.assignment,
                "target": member.target,
            }
            for member in group.members
        ],
    }


def _print_group(group: GroupDescription) -> None:
    epoch = "" if group.epoch is None else f"  epoch {group.epoch}"
    print_table(
        ("member", "instance", "client", "host", "epoch", "partitions"),
        [
            (
                member.member_id,
                member.instance_id,
                member.client_id,
                member.host.removeprefix("/"),
                member.epoch,
                member.assignment,
            )
            for member in group.members
        ],
        title=f"{group.group_id}  {group.group_type}  {group.state}  {group.assignor}{epoch}",
    )
