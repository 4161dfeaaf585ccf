"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, in all versions."""

import asyncio
from typing import Any

import pytest

from headrace.api.groups import client_host
from headrace.coordinator.shard import State
from headrace.errors import ErrorCode
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.members import ClassicMember
from headrace.groups.state import GroupId
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.harness import Harness

SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
pytestmark = pytest.mark.parametrize("harness", [SETTINGS], indirect=True)
JOIN_VERSIONS = range(10)


@pytest.fixture(autouse=True)
def coordinator(harness: Harness) -> None:
    """Have the topic of groups, loaded."""
    harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    harness.run(load(harness))


async def load(harness: Harness) -> None:
    for shard in harness.broker.groups:
        await shard.loaded()


def joining(member_id: str = "", version: int = 9, **fields: Any) -> JoinGroupRequest:
    offered = JoinGroupRequestProtocol(name="range", metadata=b"meta")
    values = {"group_id": "g", "protocol_type": "consumer", "protocols": [offered], **fields}
    values.setdefault("session_timeout_ms", 10_000)
    if version >= 1:
        values.setdefault("rebalance_timeout_ms", 20_000)
    return JoinGroupRequest(member_id=member_id, **values)


def join(harness: Harness, version: int = 9) -> Any:
    """Join as clients of a version do."""
    answer = harness.ask(joining(version=version), version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = harness.ask(joining(answer.member_id, version), version)
    return answer


def syncing(joined: Any, version: int = 5, *, unsaid: str = "") -> SyncGroupRequest:
    given = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"part")
    values: dict[str, Any] = {"assignments": [given]}
    if version >= 5:
        values |= {"protocol_type": "consumer", "protocol_name": "range"}
    return SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        **{name: value for name, value in values.items() if name != unsaid},
    )


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_a_member_is_told_its_generation(harness: Harness, version: int) -> None:
    answer = join(harness, version)
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 1)
    assert answer.protocol_name == "range"
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert answer.leader == answer.member_id
    assert answer.member_id.startswith("test-")
    (member,) = answer.members
    assert bytes(member.metadata) == b"meta"


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_a_member_has_to_fetch_its_id_from_version_4_on(harness: Harness, version: int) -> None:
    answer = harness.ask(joining(version=version), version)
    is_required = version >= 4
    code = ErrorCode.MEMBER_ID_REQUIRED if is_required else ErrorCode.NONE
    assert answer.error_code == code
    assert answer.member_id


@pytest.mark.parametrize("version", JOIN_VERSIONS)
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_is_refused_gets_its_id_back_and_no_protocol(
    harness: Harness, version: int, fields: dict[str, Any], code: ErrorCode
) -> None:
    answer = harness.ask(joining("stranger", version, **fields), version)
    assert (answer.error_code, answer.generation_id) == (code, -1)
    assert (answer.member_id, answer.leader, answer.members) == ("stranger", "", [])
    assert answer.protocol_name == (None if version >= 7 else "")


def members(harness: Harness) -> list[ClassicMember]:
    (shard,) = harness.broker.groups
    group = shard.machine.state.groups[GroupId("g")]
    assert isinstance(group, ClassicGroup)
    return list(group.members.values())


def test_in_version_0_the_session_timeout_is_the_rebalance_timeout(harness: Harness) -> None:
    join(harness, 0)
    (member,) = members(harness)
    assert member.rebalance_timeout_ms == member.session_timeout_ms == 10_000


@pytest.mark.parametrize("version", range(6))
def test_the_assignment_comes_with_the_protocol_from_version_5_on(
    harness: Harness, version: int
) -> None:
    answer = harness.ask(syncing(join(harness), version), version)
    assert (answer.error_code, bytes(answer.assignment)) == (ErrorCode.NONE, b"part")
    expected = ("consumer", "range") if version >= 5 else (None, None)
    assert (answer.protocol_type, answer.protocol_name) == expected


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_a_sync_has_to_name_its_protocol_from_version_5_on(harness: Harness, missing: str) -> None:
    joined = join(harness)
    answer = harness.ask(syncing(joined, unsaid=missing), 5)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.ask(syncing(joined, 4), 4).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(5))
def test_a_heartbeat_is_answered(harness: Harness, version: int) -> None:
    joined = join(harness)
    alive = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert harness.ask(alive, version).error_code == ErrorCode.NONE
    stranger = HeartbeatRequest(group_id="g", generation_id=1, member_id="x")
    assert harness.ask(stranger, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    nowhere = HeartbeatRequest(group_id="", generation_id=1, member_id="x")
    assert harness.ask(nowhere, version).error_code == ErrorCode.INVALID_GROUP_ID


def test_nobody_is_missed_while_groups_are_loaded(harness: Harness) -> None:
    (shard,) = harness.broker.groups
    shard.state = State.LOADING
    alive = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert harness.ask(alive, 4).error_code == ErrorCode.NONE
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.ask(joining(), 9).error_code == loading
    shard.state = State.ACTIVE


@pytest.mark.parametrize("version", range(3))
def test_one_member_leaves_up_to_version_2(harness: Harness, version: int) -> None:
    joined = join(harness)
    leaving = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
    assert harness.ask(leaving, version).error_code == ErrorCode.NONE
    assert harness.ask(leaving, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3, 6))
def test_many_members_leave_from_version_3_on(harness: Harness, version: int) -> None:
    joined = join(harness)
    members = [MemberIdentity(member_id=each) for each in (joined.member_id, "x")]
    answer = harness.ask(LeaveGroupRequest(group_id="g", members=members), version)
    assert answer.error_code == ErrorCode.NONE
    codes = [row.error_code for row in answer.members]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    unknown = harness.ask(LeaveGroupRequest(group_id="none", members=members), version)
    assert unknown.error_code == ErrorCode.NONE
    assert [row.error_code for row in unknown.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_a_group_goes_on_when_its_node_starts_again(harness: Harness) -> None:
    joined = join(harness)
    harness.ask(syncing(joined), 5)
    harness.restart()
    harness.run(load(harness))
    alive = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert harness.ask(alive, 4).error_code == ErrorCode.NONE
    (row,) = harness.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
    assert (row.group_state, row.protocol_data) == ("Stable", "range")
    assert bytes(row.members[0].member_assignment) == b"part"


def test_a_member_whose_session_ends_is_gone(harness: Harness) -> None:
    joined = join(harness)
    harness.ask(syncing(joined), 5)

    async def until_empty() -> None:
        harness.clock.advance(10_001)
        async with asyncio.timeout(10):
            while members(harness):
                await asyncio.sleep(0)

    harness.run(until_empty())
    alive = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert harness.ask(alive, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("address", "host"), [("127.0.0.1:9092", "/127.0.0.1"), ("[::1]:9092", "/::1")]
)
def test_a_host_is_shown_without_its_port(harness: Harness, address: str, host: str) -> None:
    assert client_host(address) == host


@pytest.mark.parametrize("version", [3, 4, 9])
def test_a_client_id_that_is_too_long_for_a_member_id_hurts_nobody_else(
    harness: Harness, version: int
) -> None:
    async def ask() -> tuple[Any, Any, Any]:
        before = harness.ask_async(DescribeGroupsRequest(groups=["g"]), 5)
        harness.client_id = "x" * 32_760
        broken = harness.ask_async(joining(version=version), version)
        behind = harness.ask_async(HeartbeatRequest(group_id="other", member_id="m"), 4)
        return await asyncio.gather(before, broken, behind)

    before, broken, behind = harness.run(ask())
    assert before.groups[0].error_code == ErrorCode.NONE
    assert broken.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert behind.error_code == ErrorCode.UNKNOWN_MEMBER_ID
