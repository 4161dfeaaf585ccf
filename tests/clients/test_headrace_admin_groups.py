"""Our own administrator and groups of all four types, on Headrace and on Apache Kafka."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from headrace.client import (
    Admin,
    CommittedOffset,
    ErrorCode,
    KafkaError,
    Resource,
    ShareConsumer,
    TopicPartition,
    values_of,
)
from headrace.client.coordinators import CoordinatorType, ask_coordinator
from headrace.wire.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from headrace.wire.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from tests.clients.awaiting import code_of, eventually, run


@contextmanager
def member(bootstrap: str, group: str, topic: str, **settings: Any) -> Iterator[ConfluentConsumer]:
    """A member of a group; it has joined."""
    client = ConfluentConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "session.timeout.ms": 30_000,
            **settings,
        }
        if settings.get("group.protocol") != "consumer"
        else {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            **settings,
        }
    )
    try:
        client.subscribe([topic])
        while not client.assignment():
            client.poll(0.05)
        yield client
    finally:
        client.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_listed_described_and_deleted(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    group = f"{new_name}-group"
    settings = {"group.protocol": protocol}

    async def while_in_use() -> None:
        async with Admin(any_bootstrap) as admin:
            listed = {row.group_id: row for row in await admin.list_groups(types=[protocol])}
            assert listed[group].group_type == protocol
            assert group not in [row.group_id for row in await admin.list_groups(["Empty"])]
            described = await admin.describe_group(group)
            assert (described.group_type, described.state) == (protocol, "Stable")
            (only,) = described.members
            assert only.assignment == (TopicPartition(new_name, 0),)
            refused = await admin.delete_groups([group, f"{group}-not"])
            assert code_of(refused[group]) == ErrorCode.NON_EMPTY_GROUP
            assert code_of(refused[f"{group}-not"]) == ErrorCode.GROUP_ID_NOT_FOUND

    async def afterwards() -> None:
        async with Admin(any_bootstrap) as admin:

            async def state() -> str:
                return (await admin.describe_group(group)).state

            await eventually(state, "Empty")
            await admin.delete_group(group)
            both = await admin.describe_groups([group])
            assert code_of(both[group]) == ErrorCode.GROUP_ID_NOT_FOUND

    async def make_topic() -> None:
        async with Admin(any_bootstrap) as admin:
            await admin.create_topic(new_name, 1, 1)

    run(make_topic())
    with member(any_bootstrap, group, new_name, **settings):
        run(while_in_use())
    run(afterwards())


def test_members_are_removed(any_bootstrap: str, new_name: str) -> None:
    group = f"{new_name}-group"

    async def make_topic() -> None:
        async with Admin(any_bootstrap) as admin:
            await admin.create_topic(new_name, 1, 1)

    async def remove() -> None:
        async with Admin(any_bootstrap) as admin:
            outcomes = await admin.remove_members(
                group, member_ids=["nobody"], instance_ids=["instance"], reason="a test"
            )
            assert outcomes["instance"] is None
            assert code_of(outcomes["nobody"]) == ErrorCode.UNKNOWN_MEMBER_ID
            assert await admin.remove_members(group) == {}

            async def members() -> int:
                return len((await admin.describe_group(group)).members)

            await eventually(members, 0)
            assert await admin.remove_all_members(group) == {}

    run(make_topic())
    with member(any_bootstrap, group, new_name, **{"group.instance.id": "instance"}):
        run(remove())


def test_all_members_are_removed(any_bootstrap: str, new_name: str) -> None:
    group = f"{new_name}-group"

    async def make_topic() -> None:
        async with Admin(any_bootstrap) as admin:
            await admin.create_topic(new_name, 1, 1)

    async def remove() -> None:
        async with Admin(any_bootstrap) as admin:
            before = (await admin.describe_group(group)).members
            outcomes = await admin.remove_all_members(group, reason="a test")
            assert outcomes == {each.member_id: None for each in before}
            after = (await admin.describe_group(group)).members
            assert not {each.member_id for each in before} & {each.member_id for each in after}

    run(make_topic())
    with member(any_bootstrap, group, new_name):
        run(remove())


def test_offsets_of_a_group_are_set_listed_and_deleted(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        group = f"{new_name}-group"
        one, two = TopicPartition(new_name, 0), TopicPartition(new_name, 1)
        async with Admin(any_bootstrap) as admin:
            await admin.create_topic(new_name, 2, 1)
            assert await admin.list_group_offsets(group) == {}
            wanted: dict[TopicPartition, int | CommittedOffset] = {}
            wanted |= {one: 3, two: CommittedOffset(4, -1, "a note")}
            assert await admin.alter_group_offsets(group, wanted) == {one: None, two: None}
            found = await admin.list_group_offsets(group)
            assert found == {one: CommittedOffset(3), two: CommittedOffset(4, -1, "a note")}
            assert await admin.delete_group_offsets(group, [one]) == {one: None}
            assert list(await admin.list_group_offsets(group)) == [two]
            with pytest.raises(KafkaError) as missing:
                await admin.delete_group_offsets(f"{group}-not", [one])
            assert missing.value.code == ErrorCode.GROUP_ID_NOT_FOUND

    run(work())


def test_share_groups_are_described_and_moved(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        group, partition = f"{new_name}-group", TopicPartition(new_name, 0)
        async with Admin(any_bootstrap) as admin:
            await admin.create_topic(new_name, 1, 1)
            await admin.alter_configs(
                Resource.group(group), set={"share.auto.offset.reset": "earliest"}
            )
            async with ShareConsumer(any_bootstrap, group, [new_name]) as queue:
                await queue.poll(100)
                listed = await admin.list_groups(types=["share"])
                assert group in [row.group_id for row in listed]
                described = await admin.describe_group(group)
                assert described.group_type == "share"
                assert len(described.members) == 1

            async def members() -> int:
                return len((await admin.describe_group(group)).members)

            await eventually(members, 0)
            values_of(await admin.alter_share_group_offsets(group, {partition: 0}))
            starts = values_of(await admin.list_share_group_offsets(group))
            assert starts[partition].offset == 0
            values_of(await admin.delete_share_group_offsets(group, [new_name]))
            assert partition not in await admin.list_share_group_offsets(group)
            await admin.delete_group(group)

    run(work())


def test_streams_groups_are_listed_described_and_deleted(any_bootstrap: str, new_name: str) -> None:
    group = f"{new_name}-group"

    async def beat(admin: Admin, **fields: Any) -> StreamsGroupHeartbeatResponse:
        return await ask_coordinator(
            admin.cluster,
            CoordinatorType.GROUP,
            group,
            StreamsGroupHeartbeatRequest(group_id=group, member_id="member", **fields),
            StreamsGroupHeartbeatResponse,
            code_of=lambda answer: answer.error_code,
        )

    async def work() -> None:
        async with Admin(any_bootstrap) as admin:
            await admin.create_topic(new_name, 1, 1)
            topology = Topology(0, [Subtopology("0", source_topics=[new_name])])
            joined = await beat(
                admin,
                rebalance_timeout_ms=1000,
                topology=topology,
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
                process_id="process",
            )
            assert joined.error_code == ErrorCode.NONE
            assert group in [row.group_id for row in await admin.list_groups(types=["streams"])]
            described = await admin.describe_group(group)
            assert described.group_type == "streams"
            assert [each.member_id for each in described.members] == ["member"]
            await beat(admin, member_epoch=-1)
            await admin.delete_group(group)
            outcome = (await admin.describe_groups([group]))[group]
            assert code_of(outcome) == ErrorCode.GROUP_ID_NOT_FOUND

    run(work())
