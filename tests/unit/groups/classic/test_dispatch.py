"""Classic groups on the machine: what is written, what comes back, who waits."""

import pytest

from headrace.config import load_settings
from headrace.coordinator.records import CoordinatorRecord, encode_record
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.group import ClassicState
from headrace.groups.classic.rebalance import dissolve
from headrace.groups.classic.records import group_tombstone
from headrace.groups.classic.requests import PROTOCOLS_MAX
from headrace.groups.classic.sync import STRANGERS_MAX, sync
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.state import Group, GroupId, GroupKind
from headrace.groups.streams.group import StreamsGroup
from headrace.wire.messages.group_metadata_key import GroupMetadataKey
from headrace.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from headrace.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.groups.classic.classic_world import START_MS, World, read_back


def test_the_record_of_a_stable_group_is_kafkas() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    joined = world.join(
        "c", instance="i", protocols=(("range", b"r"), ("sticky", b"s")), rebalance_ms=20_000
    )
    world.wait(0)
    world.sync("i-1", joined.answer.generation_id, {"i-1": b"AAA", "stranger": b"B"})
    first, record = world.log
    assert encode_record(first).key == b"\x00\x02\x00\x01g"
    # Bytes: as Kafka 4.3.1 writes a group that begins.
    assert encode_record(first).value == (
        b"\x00\x03"
        b"\x00\x00"
        b"\x00\x00\x00\x00"
        b"\xff\xff"
        b"\xff\xff" + START_MS.to_bytes(8, "big") + b"\x00\x00\x00\x00"
    )
    assert record.value_version == 3
    value = record.value
    assert isinstance(value, GroupMetadataValue)
    assert (value.protocol_type, value.generation) == ("consumer", 1)
    assert (value.protocol, value.leader) == ("range", "i-1")
    (member,) = value.members
    assert (member.member_id, member.group_instance_id) == ("i-1", "i")
    assert (member.client_id, member.client_host) == ("c", "/host")
    assert (member.rebalance_timeout, member.session_timeout) == (20_000, 10_000)
    assert (bytes(member.subscription), bytes(member.assignment)) == (b"r", b"AAA")


def test_more_protocols_than_any_client_has_are_refused() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    protocols = tuple((f"protocol {number}", b"") for number in range(PROTOCOLS_MAX + 1))
    assert world.join("c", instance="i", protocols=protocols).code == ErrorCode.INVALID_REQUEST
    assert not world.machine.state.groups
    joined = world.join("c", instance="i", protocols=protocols[:-1])
    world.wait(0)
    assert joined.code == ErrorCode.NONE


def test_many_more_assignments_than_members_are_refused_and_the_leader_may_sync_again() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    joined = world.join("c", instance="i")
    world.wait(0)
    generation = joined.answer.generation_id
    given = {"i-1": b"A"} | {f"stranger {number}": b"B" for number in range(STRANGERS_MAX)}
    refused = world.sync("i-1", generation, given | {"one more": b"B"})
    assert refused.code == ErrorCode.INVALID_REQUEST
    synced = world.sync("i-1", generation, given)
    assert (synced.code, bytes(synced.answer.assignment)) == (ErrorCode.NONE, b"A")


def test_crashing_behind_every_record_gives_the_group_that_was_written() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    a = world.stable("a")[0]
    b = world.enter("b")
    world.join("a", a)
    world.sync(a, 2, {a: b"one", b.answer.member_id: b"two"})
    world.leave((a, None), (b.answer.member_id, None))
    seen = []
    for end in range(1, len(world.log) + 1):
        other = World()
        other.log = world.log[:end]
        other.restart()
        group = other.group()
        parts = {name.split("-")[0]: each.assignment for name, each in group.members.items()}
        seen.append((group.state, group.generation, parts))
    assert seen == [
        (ClassicState.EMPTY, 0, {}),
        (ClassicState.STABLE, 1, {"a": b"a"}),
        (ClassicState.STABLE, 2, {"a": b"one", "b": b"two"}),
        (ClassicState.EMPTY, 3, {}),
    ]


def test_a_record_of_an_old_broker_has_no_rebalance_timeout() -> None:
    world = World()
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m",
        members=[MemberMetadata(member_id="m", session_timeout=9000, subscription=b"s")],
    )
    world.log = [read_back(CoordinatorRecord(GroupMetadataKey(group="g"), value, 0))]
    world.restart()
    group = world.group()
    assert group.rebalance_timeout_ms == 9000
    assert group.state_since_ms == -1
    world.wait(8999)
    assert world.heartbeat("m", 7).code == ErrorCode.NONE


def test_a_group_is_gone_with_its_tombstone_and_nothing_of_it_is_due() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    world.stable("a")
    world.join("b")
    world.machine.replay(group_tombstone("g"))
    state = world.machine.state
    assert GroupId("g") not in state.groups
    assert not len(state.deadlines)


def test_a_loaded_group_that_is_too_large_rebalances_down_to_size() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    a, b, c = world.stable("a", "b", "c")
    world.settings = load_settings(overrides={"group.max.size": "2"})
    world.restart()
    assert world.group().state is ClassicState.PREPARING_REBALANCE
    calls = [world.join("client", each) for each in (a, b, c)]
    assert calls[2].code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [each.answer.generation_id for each in calls[:2]] == [2, 2]


def test_an_assignment_that_cannot_be_written_changes_nothing() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    calls = [world.enter(name) for name in ("a", "b")]
    world.wait(0)
    a, b = (call.answer.member_id for call in calls)
    waiting = world.sync(b, 1)
    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=a,
        assignments=[SyncGroupRequestAssignment(member_id=b, assignment=b"large")],
    )
    # What the shard does with a record that is too large: it drops all of the outcome.
    outcome = sync(world.machine.state, request, world.now_ms, lambda _: None)
    assert outcome.records
    assert not waiting.is_answered
    assert world.group().state is ClassicState.COMPLETING_REBALANCE
    assert world.sync(a, 1, {b: b"small"}).code == ErrorCode.NONE
    assert bytes(waiting.answer.assignment) == b"small"


def test_who_asks_twice_is_answered_twice() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    first = world.enter("a")
    again = world.join("a", "a-1")
    assert first.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert not again.is_answered
    world.enter("b")
    world.wait(0)
    assert again.answer.generation_id == 1
    first = world.sync("b-2", 1)
    again = world.sync("b-2", 1)
    assert first.code == ErrorCode.REBALANCE_IN_PROGRESS
    world.sync("a-1", 1, {"b-2": b"part"})
    assert bytes(again.answer.assignment) == b"part"


def test_an_id_that_was_given_out_cannot_become_a_static_member() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    world.join("s", instance="i")
    world.wait(0)
    given = world.join("a")
    call = world.join("a", given.answer.member_id, instance="i")
    assert call.code == ErrorCode.INVALID_REQUEST
    assert world.group().static_members == {"i": "i-1"}


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (("consumer", "range"), ErrorCode.NONE),
        ((None, None), ErrorCode.NONE),
        (("connect", "range"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (("consumer", "sticky"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_member_that_follows_another_protocol_gets_no_assignment(
    said: tuple[str | None, str | None], code: ErrorCode
) -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    (a,) = world.stable("a")
    assert world.sync(a, 1, protocol=said).code == code


def test_everybody_who_waits_is_known_to_the_machine() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    joining = [world.enter("a"), world.enter("b")]
    assert len(list(world.machine.waiting())) == 2
    world.wait(0)
    syncing = world.sync(joining[1].answer.member_id, 1)
    assert len(list(world.machine.waiting())) == 1
    world.restart()
    assert syncing.code == ErrorCode.NOT_COORDINATOR


def test_a_group_that_becomes_another_kind_sends_its_members_to_join_again() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    (a,) = world.stable("a")
    joining = world.enter("b")
    state = world.machine.state
    for reply, answer in dissolve(state, world.group()):
        reply(answer)
    assert joining.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert a in world.group().members
    assert not len(state.deadlines)


class OtherKind:
    """A group of another kind, with members or not."""

    def __init__(self, kind: GroupKind, *, is_empty: bool) -> None:
        self.group_id = GroupId("g")
        self.kind = kind
        self.is_empty = is_empty
        self.state_name = "Stable"
        self.protocol_type = kind.value

    def is_subscribed_to(self, topic: str) -> bool:
        return False


@pytest.mark.parametrize(
    "group",
    [
        OtherKind(GroupKind.SHARE, is_empty=True),
        OtherKind(GroupKind.SHARE, is_empty=False),
        OtherKind(GroupKind.STREAMS, is_empty=False),
    ],
)
def test_a_group_of_another_kind_is_not_joined(group: Group) -> None:
    world = World()
    world.machine.state.groups[GroupId("g")] = group
    assert world.join("a").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync("a-1", 1).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("a-1", 1).code == ErrorCode.UNKNOWN_MEMBER_ID
    (row,) = world.leave(("a-1", None)).answer.members
    assert row.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.machine.state.groups[GroupId("g")] is group


@pytest.mark.parametrize("group", [ConsumerGroup(GroupId("g")), StreamsGroup(GroupId("g"))])
def test_an_empty_group_of_another_kind_gives_way(group: Group) -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    world.machine.state.groups[GroupId("g")] = group
    assert world.join("a", "a-1").code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.machine.state.groups[GroupId("g")] is group
    world.stable("a")
    tombstones = [each for each in world.log if each.value is None]
    assert len(tombstones) >= 2
    world.restart()
    assert world.group().state is ClassicState.STABLE


def test_a_deadline_of_a_group_that_is_gone_does_nothing() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    world.stable("a")
    del world.machine.state.groups[GroupId("g")]
    written = len(world.log)
    world.wait(120_000)
    assert len(world.log) == written
    assert isinstance(world.heartbeat("a-1", 1).answer, KafkaError)
