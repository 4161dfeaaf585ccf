"""A classic group by itself: who is in it, what all can do, whom offsets are kept for."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.description import describe
from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.groups.classic.members import ClassicMember, OfferedProtocol
from headrace.groups.classic.offsets import validate_offset_commit
from headrace.groups.state import GroupId, MemberId
from headrace.wire import encode
from headrace.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription


def subscription(*topics: str, version: int = 1, end: bytes = b"") -> bytes:
    known = min(version, 3)
    message = ConsumerProtocolSubscription(topics=list(topics))
    return version.to_bytes(2, "big") + encode(message, known) + end


def new_group(
    *members: ClassicMember,
    state: ClassicState = ClassicState.STABLE,
    protocol_type: str = "consumer",
) -> ClassicGroup:
    group = ClassicGroup(GroupId("g"), state=state, generation=3)
    for member in members:
        group.add(member, protocol_type)
    group.protocol_name = group.select_protocol() if members else None
    return group


def member(name: str, *protocols: tuple[str, bytes], instance: str | None = None) -> ClassicMember:
    return ClassicMember(
        MemberId(name),
        instance,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=1000,
        session_timeout_ms=1000,
        protocols=tuple(OfferedProtocol(*each) for each in protocols or (("range", b"r"),)),
        assignment=b"part",
    )


def offers(*names: str) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, b"") for name in names)


@pytest.mark.parametrize(
    ("votes", "selected"),
    [
        ([("range", "sticky"), ("range", "sticky"), ("sticky", "range")], "range"),
        ([("new", "old"), ("new", "old"), ("old",)], "old"),
        ([("x", "range"), ("x", "sticky", "range"), ("sticky", "range")], "range"),
        # Ties, as Kafka 4.3.1 was seen to break them.
        ([("range", "roundrobin"), ("roundrobin", "range")], "range"),
        ([("range", "rr"), ("rr", "range")], "rr"),
        ([("a", "b"), ("b", "a")], "a"),
        ([("b", "a"), ("a", "b")], "a"),
    ],
)
def test_the_protocol_with_the_most_votes_that_all_know_is_selected(
    votes: list[tuple[str, ...]], selected: str
) -> None:
    members = [member(str(number), *offers(*names)) for number, names in enumerate(votes)]
    assert new_group(*members).select_protocol() == selected


def test_a_protocol_of_members_that_left_is_not_asked_of_others() -> None:
    group = new_group(member("a", *offers("x", "y")), member("b", *offers("y")))
    assert not group.supports("consumer", (OfferedProtocol("x", b""),))
    group.remove(MemberId("b"))
    assert group.supports("consumer", (OfferedProtocol("x", b""),))


def test_the_member_that_is_longest_there_leads_when_the_leader_goes() -> None:
    group = new_group(member("a"), member("b"), member("c"))
    group.remove(MemberId("a"))
    assert group.leader == "b"
    group.remove(MemberId("b"))
    group.remove(MemberId("c"))
    assert group.leader is None


def test_a_replaced_static_member_keeps_its_place_and_its_lead() -> None:
    group = new_group(member("a", instance="i"), member("b"))
    group.replace(group.members[MemberId("a")], MemberId("a2"))
    assert list(group.members) == ["a2", "b"]
    assert (group.leader, group.static_members) == ("a2", {"i": "a2"})


@pytest.mark.parametrize(
    ("member_id", "instance", "code"),
    [
        ("a", "i", None),
        ("a", None, None),
        ("a", "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_the_last_process_of_an_instance_is_its_member(
    member_id: str, instance: str | None, code: ErrorCode | None
) -> None:
    group = new_group(member("a", instance="i"))
    if code is None:
        assert group.find_member(member_id, instance).member_id == member_id
        return
    with pytest.raises(KafkaError) as raised:
        group.find_member(member_id, instance)
    assert raised.value.code == code


# Subscriptions


def test_topics_of_every_member_are_subscribed_to() -> None:
    group = new_group(
        member("a", ("range", subscription("orders"))),
        member("b", ("range", subscription("orders", "bills", version=3))),
    )
    assert group.is_subscribed_to("orders")
    assert group.is_subscribed_to("bills")
    assert not group.is_subscribed_to("other")


def test_a_subscription_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    group = new_group(member("a", ("range", subscription("orders", version=9, end=b"new"))))
    assert group.is_subscribed_to("orders")
    assert not group.is_subscribed_to("other")


@pytest.mark.parametrize(
    "metadata", [b"", b"\x00", b"sticky", b"\xff\xff\x00\x00", b"\x00\x01\x7f\xff\xff\xff"]
)
def test_what_cannot_be_read_counts_as_a_subscription_to_everything(metadata: bytes) -> None:
    assert new_group(member("a", ("range", metadata))).is_subscribed_to("anything")


def test_of_members_that_are_no_consumers_no_topic_is_known() -> None:
    metadata = subscription("orders")
    group = new_group(member("a", ("range", metadata)), protocol_type="connect")
    assert not group.is_subscribed_to("orders")


def test_a_group_without_members_is_subscribed_to_nothing() -> None:
    group = ClassicGroup(GroupId("g"), protocol_type="consumer", generation=4)
    assert not group.is_subscribed_to("orders")


# Commits

STATES = ClassicState.STABLE, ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("is_transactional", [True, False])
@pytest.mark.parametrize(
    ("member_id", "instance", "generation", "code"),
    [
        ("a", None, 3, ErrorCode.NONE),
        ("a", "i", 3, ErrorCode.NONE),
        ("x", "i", 3, ErrorCode.FENCED_INSTANCE_ID),
        ("x", None, 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", None, 2, ErrorCode.ILLEGAL_GENERATION),
        ("a", None, -1, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_members_of_the_generation_commit(
    state: ClassicState,
    is_transactional: bool,
    member_id: str,
    instance: str | None,
    generation: int,
    code: ErrorCode,
) -> None:
    group = new_group(member("a", instance="i"), state=state)
    is_between = state is ClassicState.COMPLETING_REBALANCE and not is_transactional
    if code == ErrorCode.NONE and is_between:
        code = ErrorCode.REBALANCE_IN_PROGRESS
    assert refusal(group, member_id, instance, generation, is_transactional) == code


def test_a_tool_commits_only_while_nobody_is_in_the_group() -> None:
    group = new_group(member("a"))
    assert refusal(group, "", None, -1, False) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(group, "", None, -1, True) == ErrorCode.NONE
    empty = ClassicGroup(GroupId("g"), generation=3)
    assert refusal(empty, "", None, -1, False) == ErrorCode.NONE
    assert refusal(empty, "a", None, 3, False) == ErrorCode.UNKNOWN_MEMBER_ID


def refusal(
    group: ClassicGroup,
    member_id: str,
    instance: str | None,
    generation: int,
    is_transactional: bool,
) -> ErrorCode:
    try:
        validate_offset_commit(group, member_id, instance, generation, is_transactional)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


# Description


@pytest.mark.parametrize("state", STATES)
def test_metadata_is_described_while_the_group_is_stable(state: ClassicState) -> None:
    row = describe(new_group(member("a", instance="i"), state=state))
    is_stable = state is ClassicState.STABLE
    assert (row.group_state, row.protocol_type) == (state.value, "consumer")
    assert row.protocol_data == ("range" if is_stable else "")
    (each,) = row.members
    assert (each.member_id, each.group_instance_id) == ("a", "i")
    assert (each.client_id, each.client_host) == ("client", "/127.0.0.1")
    assert (each.member_metadata, each.member_assignment) == (b"r" if is_stable else b"", b"part")
