"""Listing, describing and deleting groups, and deleting their offsets."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.coordinator.machine import Outcome
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.administration import (
    GroupFilter,
    GroupRow,
    delete_group,
    delete_offsets,
    describe_group,
    give_up_deletion,
    list_groups,
)
from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.groups.classic.join import Joiner, join
from headrace.groups.consumer import heartbeat as consumer
from headrace.groups.heartbeats import Sender
from headrace.groups.offsets.expiry import TOMBSTONES_AT_ONCE
from headrace.groups.state import GroupId, GroupsState
from headrace.groups.streams import heartbeat as streams
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.group_metadata_key import GroupMetadataKey
from headrace.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from tests.unit.groups.machines import NOW_MS, Groups, Subscribed, offset, topic


@pytest.fixture
def groups() -> Groups:
    """`plain` has offsets only, `stable` and `empty` are groups of consumers."""
    groups = Groups()
    groups.commit("plain", topic("a", offset(0, 5)))
    for name, state in (("stable", ClassicState.STABLE), ("empty", ClassicState.EMPTY)):
        group_id = GroupId(name)
        groups.state.groups[group_id] = ClassicGroup(
            group_id, protocol_type="consumer", state=state
        )
    return groups


def ignore(_: object) -> None:
    """Nobody waits."""


def listed(groups: Groups, wanted: GroupFilter) -> list[GroupRow]:
    return groups.do(list_groups(groups.state, wanted, ignore))  # type: ignore[no-any-return]


def deleted(groups: Groups, group_id: str, *topics: tuple[str, list[int]]) -> Any:
    outcome = delete_offsets(groups.state, group_id, topics, ignore)
    return groups.do(outcome)


def test_groups_are_listed_with_state_and_type(groups: Groups) -> None:
    assert sorted(listed(groups, GroupFilter())) == [
        GroupRow("empty", "consumer", "Empty", "classic"),
        GroupRow("plain", "", "Empty", "classic"),
        GroupRow("stable", "consumer", "Stable", "classic"),
    ]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (GroupFilter(states=frozenset({"stable"})), ["stable"]),
        (GroupFilter(states=frozenset({"empty"})), ["empty", "plain"]),
        (GroupFilter(states=frozenset({"empty", "bogus"})), ["empty", "plain"]),
        (GroupFilter(states=frozenset({"bogus"})), []),
        (GroupFilter(kinds=frozenset({"classic"})), ["empty", "plain", "stable"]),
        (GroupFilter(kinds=frozenset({"consumer"})), []),
        (GroupFilter(frozenset({"stable"}), frozenset({"consumer"})), []),
    ],
)
def test_filters_leave_what_they_name(
    groups: Groups, wanted: GroupFilter, names: list[str]
) -> None:
    assert sorted(row.group_id for row in listed(groups, wanted)) == names


def test_a_group_with_offsets_of_an_undecided_transaction_alone_is_listed(
    groups: Groups,
) -> None:
    groups.commit("undecided", topic("a", offset(0, 5)), producer_id=7)
    assert "undecided" in {row.group_id for row in listed(groups, GroupFilter())}


def test_a_group_of_offsets_only_is_described_as_empty(groups: Groups) -> None:
    row = groups.do(describe_group(groups.state, "plain", ignore))
    assert (row.group_state, row.protocol_type, row.members) == ("Empty", "", [])


def test_what_is_no_group_is_not_described(groups: Groups) -> None:
    with pytest.raises(KafkaError) as caught:
        describe_group(groups.state, "nope", ignore)
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert caught.value.message == "Group nope not found."


def test_deleting_a_group_deletes_its_offsets_and_its_records(groups: Groups) -> None:
    groups.commit("empty", topic("a", offset(0, 5)), topic("b", offset(3, 5)))
    groups.commit("empty", topic("b", offset(4, 5)), producer_id=7)
    outcome = delete_group(groups.state, "empty", ignore)
    assert [(record.key, record.value) for record in outcome.records] == [
        (OffsetCommitKey("empty", "a", 0), None),
        (OffsetCommitKey("empty", "b", 3), None),
        (OffsetCommitKey("empty", "b", 4), None),
        (GroupMetadataKey("empty"), None),
    ]


def test_a_deleted_group_of_offsets_only_is_gone(groups: Groups) -> None:
    assert groups.do(delete_group(groups.state, "plain", ignore)) is True
    with pytest.raises(KafkaError) as caught:
        delete_group(groups.state, "plain", ignore)
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_nobody_commits_to_a_group_while_it_is_deleted_in_parts(groups: Groups) -> None:
    many = [offset(index, 5) for index in range(2 * TOMBSTONES_AT_ONCE)]
    groups.commit("g", topic("a", *many))
    assert groups.do(delete_group(groups.state, "g", ignore)) is False
    for producer_id in (-1, 7):
        with pytest.raises(KafkaError) as caught:
            groups.commit("g", topic("a", offset(0, 9)), producer_id=producer_id)
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    groups.commit("plain", topic("a", offset(0, 9)))
    assert groups.do(delete_group(groups.state, "g", ignore)) is True
    assert "g" not in groups.state.offsets
    groups.commit("g", topic("a", offset(0, 9)))
    assert groups.offset("g", "a", 0) == 9


def test_a_deletion_that_failed_on_its_way_leaves_a_group_that_is_served(groups: Groups) -> None:
    many = [offset(index, 5) for index in range(2 * TOMBSTONES_AT_ONCE)]
    groups.commit("g", topic("a", *many))
    groups.do(delete_group(groups.state, "g", ignore))
    groups.do(give_up_deletion(groups.state, "g", ignore))
    groups.commit("g", topic("a", offset(0, 9)))
    assert groups.offset("g", "a", 0) == 9


def _join_classic(state: GroupsState) -> Outcome:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joiner = Joiner("client", "host", fetches_id=False, skips_assignment=False)
    return join(state, request, joiner, NOW_MS, ignore)


def _join_consumer(state: GroupsState) -> Outcome:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["a"],
        topic_partitions=[],
    )
    return consumer.heartbeat(state, request, Sender("", "", version=1), NOW_MS, ignore)


def _join_streams(state: GroupsState) -> Outcome:
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=10_000,
        process_id="p",
        topology=Topology(subtopologies=[Subtopology("0", source_topics=["a"])]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    return streams.heartbeat(state, request, Sender("", ""), NOW_MS, ignore)


@pytest.mark.parametrize("join_group", [_join_classic, _join_consumer, _join_streams])
def test_nobody_joins_a_group_while_it_is_deleted_in_parts(
    groups: Groups, join_group: Callable[[GroupsState], Outcome]
) -> None:
    many = [offset(index, 5) for index in range(2 * TOMBSTONES_AT_ONCE)]
    groups.commit("g", topic("a", *many))
    groups.do(delete_group(groups.state, "g", ignore))
    with pytest.raises(KafkaError) as caught:
        join_group(groups.state)
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert groups.do(delete_group(groups.state, "g", ignore)) is True
    groups.do(join_group(groups.state))
    assert "g" in groups.state.groups


def test_a_group_with_members_cannot_be_deleted(groups: Groups) -> None:
    with pytest.raises(KafkaError) as caught:
        delete_group(groups.state, "stable", ignore)
    assert caught.value.code == ErrorCode.NON_EMPTY_GROUP


def test_offsets_are_deleted_where_there_are_any(groups: Groups) -> None:
    outcome = delete_offsets(groups.state, "plain", [("a", [0, 9]), ("b", [0])], ignore)
    assert [record.key for record in outcome.records] == [OffsetCommitKey("plain", "a", 0)]
    assert groups.do(outcome) == set()


def test_offsets_of_an_undecided_transaction_are_deleted_too(groups: Groups) -> None:
    groups.commit("h", topic("a", offset(0, 5)), producer_id=7)
    assert deleted(groups, "h", ("a", [0])) == set()
    groups.machine.end_transaction(7, 0, is_commit=True)
    assert groups.offset("h", "a", 0) is None


def test_offsets_of_topics_that_members_want_stay(groups: Groups) -> None:
    groups.commit("g", topic("wanted", offset(0, 5)), topic("other", offset(0, 6)))
    groups.state.groups[GroupId("g")] = Subscribed(
        GroupId("g"), protocol_type="consumer", state=ClassicState.STABLE
    )
    assert deleted(groups, "g", ("wanted", [0]), ("other", [0])) == {"wanted"}
    assert groups.offset("g", "wanted", 0) == 5
    assert groups.offset("g", "other", 0) is None


def test_offsets_of_members_that_are_no_consumers_stay(groups: Groups) -> None:
    group_id = GroupId("workers")
    groups.state.groups[group_id] = ClassicGroup(
        group_id, protocol_type="connect", state=ClassicState.STABLE
    )
    with pytest.raises(KafkaError) as caught:
        deleted(groups, "workers", ("a", [0]))
    assert caught.value.code == ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted(groups: Groups) -> None:
    with pytest.raises(KafkaError) as caught:
        deleted(groups, "nope", ("a", [0]))
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND
