"""`headrace share`: list, describe, offsets, reset, delete; other subcommands have own files."""

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
from headrace.cli.dead_letter_replay import replay_dead_letters
from headrace.cli.offset_reset import Move, Target, plan_reset
from headrace.cli.options import CommandGroup, bootstrap_option, json_option, yes_option
from headrace.cli.output import print_json, print_table, report_deleted
from headrace.cli.running import complete, make_sure, report
from headrace.cli.share_consume import consume
from headrace.cli.share_inspection import inspect
from headrace.client.admin import Admin
from headrace.client.group_members import GroupDescription, describe_group, describe_share_group
from headrace.client.groups import CommittedOffset, ListedGroup, delete_groups, list_groups
from headrace.client.leaders import by_topic
from headrace.client.offsets import FoundOffset, Start
from headrace.client.outcomes import Outcomes, values_of
from headrace.client.share.offsets import (
    ShareStart,
    alter_share_offsets,
    delete_share_offsets,
    describe_share_offsets,
)
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError


@click.group(cls=CommandGroup)
def share() -> None:
    """List, describe, reset and delete share groups; inspect queues, replay dead letters."""


@share.command("list")
@click.option("--state", "states", multiple=True, help="Only of this state; repeatable.")
@json_option
@bootstrap_option
def list_(states: tuple[str, ...], as_json: bool, bootstrap: str) -> None:
    """List share groups."""

    async def work() -> list[ListedGroup]:
        async with Admin(bootstrap, client_settings()) as admin:
            return await list_groups(admin.cluster, states, ["share"])

    columns = ("group", "state", "coordinator")
    rows = [(row.group_id, row.state, row.coordinator) for row in complete(work())]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


@share.command()
@names_argument
@json_option
@bootstrap_option
def describe(names: tuple[str, ...], as_json: bool, bootstrap: str) -> None:
    """Show state, epochs, members and their partitions."""
    outcomes = describe_each(names, bootstrap, describe_share_group)
    found = [row for row in outcomes.values() if isinstance(row, GroupDescription)]
    if as_json:
        print_json([_group_json(group) for group in found])
    else:
        for group in found:
            _print_group(group)
    report(outcomes, "share group")


@share.command()
@name_argument
@json_option
@bootstrap_option
def offsets(name: str, as_json: bool, bootstrap: str) -> None:
    """Show a group's start offsets, the partitions' ends, and its lag."""

    async def work() -> list[dict[str, object]]:
        async with Admin(bootstrap, client_settings()) as admin:
            await describe_share_group(admin.cluster, name)
            starts = await describe_share_offsets(admin.cluster, name)
            refused.update({str(key): row for key, row in starts.items()})
            return await _offset_rows(admin, starts)

    refused: dict[str, object] = {}
    rows = complete(work())
    if as_json:
        print_json(rows)
    else:
        columns = ("topic", "partition", "start", "end", "lag")
        print_table(columns, [tuple(row[column] for column in columns) for row in rows])
    report(refused, "partition")


@share.command()
@name_argument
@reset_options
@json_option
@bootstrap_option
def reset(
    name: str,
    *,
    wanted: dict[str, list[int]],
    target: Target,
    execute: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Reset the start offsets of a group without members. Without --execute, only show the effect.

    The states of records from there on are discarded: they are delivered, or delivered
    again, with a delivery count of 1.
    """

    async def work() -> list[Move]:
        async with Admin(bootstrap, client_settings()) as admin:
            group = await _find_group(admin, name)
            if group is not None and execute:
                group.check_empty()
            known = values_of(await describe_share_offsets(admin.cluster, name)) if group else {}
            places = wanted or by_topic(known)
            moves = await plan_reset(admin, _as_committed(known), places, target)
            if execute and moves:
                new_offsets = {move.partition: move.new_offset for move in moves}
                outcomes.update(await alter_share_offsets(admin.cluster, name, new_offsets))
            return moves

    outcomes: Outcomes[TopicPartition, None] = {}
    report_moves(complete(work()), outcomes, is_executed=execute, as_json=as_json)


@share.command()
@names_argument
@click.option(
    "--topic", "-t", "topics", multiple=True, help="Only the state of this topic; repeatable."
)
@yes_option
@if_exists_option
@json_option
@bootstrap_option
def delete(
    names: tuple[str, ...],
    *,
    topics: tuple[str, ...],
    yes: bool,
    if_exists: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Delete share groups, or their state of some topics. Asks for confirmation on a terminal."""
    if topics:
        make_sure(f"Have {', '.join(names)} forget {', '.join(topics)}?", is_sure=yes)
    else:
        make_sure(f"Delete {', '.join(names)} with all their state?", is_sure=yes)

    async def work() -> Outcomes[str, None]:
        outcomes: Outcomes[str, None] = {}
        async with Admin(bootstrap, client_settings()) as admin:
            for name in names:
                try:
                    outcomes |= await _delete(admin, name, topics)
                except KafkaError as error:
                    if error.code != ErrorCode.GROUP_ID_NOT_FOUND or not if_exists:
                        outcomes[name] = error
        return outcomes

    outcomes = complete(work())
    report_deleted(outcomes, "share group", as_json=as_json)


share.add_command(inspect)
share.add_command(consume)
share.add_command(replay_dead_letters)


async def _find_group(admin: Admin, name: str) -> GroupDescription | None:
    """Return a share group, or None; raise KafkaError if the group has another type."""
    try:
        group = await describe_group(admin.cluster, name)
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None
    if group.group_type != "share":
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"{name!r} is a {group.group_type} group, no share group; "
            "`headrace groups` is for all of them",
        )
    return group


async def _delete(admin: Admin, name: str, topics: tuple[str, ...]) -> Outcomes[str, None]:
    """Delete a group, or topics of it; return one outcome, or one for each `group/topic`."""
    group = await describe_share_group(admin.cluster, name)  # this command is not for other types
    group.check_empty()
    if not topics:
        return await delete_groups(admin.cluster, [name])
    outcomes = await delete_share_offsets(admin.cluster, name, topics)
    return {f"{name}/{topic}": outcome for topic, outcome in outcomes.items()}


def _as_committed(
    starts: dict[TopicPartition, ShareStart],
) -> dict[TopicPartition, CommittedOffset]:
    """Return the known start offsets in the form that a plan of moves takes."""
    return {
        partition: CommittedOffset(start.offset)
        for partition, start in starts.items()
        if start.offset is not None
    }


async def _offset_rows(
    admin: Admin, starts: Outcomes[TopicPartition, ShareStart]
) -> list[dict[str, object]]:
    known = {key: start for key, start in starts.items() if isinstance(start, ShareStart)}
    ends = await admin.list_offsets(dict.fromkeys(known, Start.END))
    rows: list[dict[str, object]] = []
    for partition, start in known.items():
        end = ends[partition]
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "start": start.offset,
                "end": end.offset if isinstance(end, FoundOffset) else None,
                "lag": start.lag,
            }
        )
    return rows


def _group_json(group: GroupDescription) -> dict[str, object]:
    return {
        "group": group.group_id,
        "state": group.state,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": [
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.host,
                "rack": member.rack,
                "epoch": member.epoch,
                "subscription": member.subscription,
                "assignment": member.assignment,
            }
            for member in group.members
        ],
    }


def _print_group(group: GroupDescription) -> None:
    print_table(
        ("member", "client", "host", "epoch", "topics", "partitions"),
        [
            (
                member.member_id,
                member.client_id,
                member.host.removeprefix("/"),
                member.epoch,
                member.subscription,
                member.assignment,
            )
            for member in group.members
        ],
        title=f"{group.group_id}  {group.state}  {group.assignor}  epoch {group.epoch}",
    )
