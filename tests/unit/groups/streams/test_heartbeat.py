"""Heartbeats of streams groups: joining, tasks that move, leaving, and what is refused."""

from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.groups.streams.heartbeat import note_topic_creation
from headrace.groups.streams.topology import StatusCode
from headrace.wire.messages.streams_group_heartbeat_request import (
    Endpoint,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from tests.unit.groups.streams.streams_world import (
    GROUP,
    STATEFUL,
    STATELESS,
    World,
    statuses,
    task_rows,
    tasks,
    words,
)


@pytest.fixture
def world() -> World:
    """A cluster with a source topic of four partitions."""
    world = World()
    world.add_topic("in", 4)
    return world


def test_first_member_gets_all_tasks(world: World) -> None:
    answer = world.join("a")
    assert (answer.member_id, answer.member_epoch) == ("a", 2)
    assert tasks(answer.active_tasks) == ["0_0", "0_1", "0_2", "0_3"]
    assert (answer.standby_tasks, answer.warmup_tasks) == ([], [])
    assert answer.heartbeat_interval_ms == 5000
    assert words(world.log) == [
        "+MemberMetadata",
        "+Topology",
        "+Metadata",
        "+TargetAssignmentMember",
        "+TargetAssignmentMetadata",
        "+CurrentMemberAssignment",
    ]
    assert world.describe().group_state == "Stable"


def test_heartbeat_of_a_settled_member_writes_nothing_and_names_no_tasks(world: World) -> None:
    world.join("a")
    before = len(world.log)
    answer = world.beat("a", 2)
    assert answer.active_tasks is None
    assert len(world.log) == before


def test_task_moves_when_its_member_has_given_it_up(world: World) -> None:
    world.join("a")
    joined = world.join("b")
    assert (joined.member_epoch, tasks(joined.active_tasks)) == (3, [])
    assert world.describe().group_state == "Reconciling"

    revoked = world.beat("a", 2)
    assert (revoked.member_epoch, tasks(revoked.active_tasks)) == (2, ["0_0", "0_1"])
    assert world.beat("b", 3).active_tasks is None  # not while a may still run them
    assert world.beat("a", 2, ["0_0", "0_1", "0_2"]).member_epoch == 2

    assert world.beat("a", 2, ["0_0", "0_1"]).member_epoch == 3
    assert tasks(world.beat("b", 3).active_tasks) == ["0_2", "0_3"]
    assert world.describe().group_state == "Stable"


def test_epochs_say_since_when_a_member_has_a_task(world: World) -> None:
    world.join("a")
    world.join("b")
    world.beat("a", 2)
    world.beat("a", 2, ["0_0", "0_1"])
    world.beat("b", 3)
    world.leave("b")
    world.beat("a", 3)
    epochs = world.group.members["a"].active_epochs  # type: ignore[index]
    assert {task.partition: epoch for task, epoch in epochs.items()} == {0: 2, 1: 2, 2: 4, 3: 4}


def test_member_that_leaves_is_gone_with_its_records(world: World) -> None:
    world.join("a")
    before = len(world.log)
    answer = world.leave("a")
    assert (answer.member_id, answer.member_epoch, answer.active_tasks) == ("a", -1, None)
    assert words(world.log[before:]) == [
        "-CurrentMemberAssignment",
        "-TargetAssignmentMember",
        "-MemberMetadata",
        "+Metadata",
    ]
    assert world.describe().group_state == "Empty"
    assert world.refusal("a", -1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_is_silent_is_removed_after_its_session(world: World) -> None:
    world.join("a")
    world.join("b")
    world.pass_time(44_999)
    assert len(world.group.members) == 2
    world.beat("b", 3)
    world.pass_time(1)
    assert list(world.group.members) == ["b"]


def test_session_timeout_of_the_group_counts() -> None:
    world = World(group_streams_min_session_timeout_ms=1000)
    world.configure(streams_session_timeout_ms=2000, streams_heartbeat_interval_ms=6000)
    assert world.join("a").heartbeat_interval_ms == 6000
    world.pass_time(2000)
    assert world.group.is_empty


def test_member_that_does_not_give_up_tasks_is_removed_after_its_rebalance_timeout(
    world: World,
) -> None:
    world.join("a", rebalance_timeout_ms=10_000)
    world.join("b")
    world.beat("a", 2)
    world.pass_time(9_999)
    world.beat("a", 2)
    world.pass_time(1)
    assert list(world.group.members) == ["b"]
    assert world.refusal("a", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert tasks(world.beat("b", 3).active_tasks) == ["0_0", "0_1", "0_2", "0_3"]


def test_member_that_gave_up_tasks_in_time_stays(world: World) -> None:
    world.join("a", rebalance_timeout_ms=10_000)
    world.join("b")
    world.beat("a", 2)
    world.beat("a", 2, ["0_0", "0_1"])
    world.pass_time(20_000)
    assert set(world.group.members) == {"a", "b"}


def test_member_at_another_epoch_is_fenced(world: World) -> None:
    world.join("a")
    assert world.refusal("a", 1) == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.refusal("a", 3) == ErrorCode.FENCED_MEMBER_EPOCH


def test_member_that_missed_an_answer_goes_on_if_it_has_nothing_else(world: World) -> None:
    world.join("a")
    world.beat("a", 2, rack_id="r")  # the answer says epoch 3
    assert world.refusal("a", 2) == ErrorCode.FENCED_MEMBER_EPOCH
    foreign = {"standby_tasks": [TaskIds("0", [0])], "warmup_tasks": []}
    assert (
        world.refusal("a", 2, active_tasks=task_rows(["0_1"]), **foreign)
        == ErrorCode.FENCED_MEMBER_EPOCH
    )
    assert world.beat("a", 2, ["0_0", "0_1"]).member_epoch == 3


def test_member_that_has_less_than_it_should_is_told_its_tasks_again(world: World) -> None:
    world.join("a")
    assert tasks(world.beat("a", 2, ["0_0"]).active_tasks) == ["0_0", "0_1", "0_2", "0_3"]
    assert world.beat("a", 2, ["0_0", "0_1", "0_2", "0_3"]).active_tasks is None


def test_member_that_joins_again_is_told_what_it_has(world: World) -> None:
    world.join("a")
    before = len(world.log)
    again = world.join("a")
    assert (again.member_epoch, tasks(again.active_tasks)) == (2, ["0_0", "0_1", "0_2", "0_3"])
    assert len(world.log) == before


@pytest.mark.parametrize(
    "change",
    [
        {"rack_id": "r"},
        {"process_id": "other"},
        {"rebalance_timeout_ms": 1},
        {"user_endpoint": Endpoint("host", 1)},
    ],
)
def test_member_that_changes_begins_another_epoch(world: World, change: dict[str, Any]) -> None:
    world.join("a")
    assert world.beat("a", 2, **change).member_epoch == 3
    assert world.beat("a", 3, **change).member_epoch == 3


# Topics


def test_group_waits_for_its_source_topics() -> None:
    world = World()
    answer = world.join("a")
    assert statuses(answer) == [StatusCode.MISSING_SOURCE_TOPICS]
    assert answer.status is not None
    assert "in" in answer.status[0].status_detail
    assert tasks(answer.active_tasks) == []
    assert world.describe().group_state == "NotReady"
    world.add_topic("in", 2)
    answer = world.beat("a", 2)
    assert (statuses(answer), tasks(answer.active_tasks)) == ([], ["0_0", "0_1"])


def test_tasks_end_with_their_source_topic(world: World) -> None:
    world.join("a")
    world.remove_topic("in")
    answer = world.beat("a", 2)
    assert statuses(answer) == [StatusCode.MISSING_SOURCE_TOPICS]
    assert tasks(answer.active_tasks) == []
    assert world.describe().group_state == "NotReady"


def test_internal_topics_are_to_be_created_as_the_topology_says(world: World) -> None:
    topology = Topology(
        0,
        [
            Subtopology("0", source_topics=["in"], repartition_sink_topics=["again"]),
            Subtopology(
                "1",
                repartition_source_topics=[TopicInfo("again")],
                state_changelog_topics=[TopicInfo("log", replication_factor=2)],
            ),
        ],
    )
    fields = {"rebalance_timeout_ms": 1, "topology": topology}
    answer = world.send("a", 0, active_tasks=[], standby_tasks=[], warmup_tasks=[], **fields)
    assert statuses(answer.response) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert [each[:3] for each in answer.to_create] == [("again", 4, 0), ("log", 4, 2)]
    world.add_topic("again", 4)
    world.add_topic("log", 4)
    ready = world.send("a", 2)
    assert (statuses(ready.response), ready.to_create) == ([], ())
    assert tasks(ready.response.active_tasks) == [f"{s}_{p}" for s in "01" for p in range(4)]
    described = world.describe().topology
    assert described is not None
    assert described.subtopologies is not None
    assert described.subtopologies[1].state_changelog_topics[0].partitions == 4


def test_members_are_told_why_a_topic_could_not_be_created(world: World) -> None:
    world.join("a", STATEFUL)
    note_topic_creation(world.machine.state, GROUP, {"log": "no room"})
    (status,) = world.beat("a", 2).status or []
    assert status.status_code == StatusCode.MISSING_INTERNAL_TOPICS
    assert "log (no room)" in status.status_detail


# Standbys and endpoints


def test_copies_are_kept_by_other_processes(world: World) -> None:
    world.configure(streams_num_standby_replicas=1)
    world.add_topic("log", 4)
    world.join("a", STATEFUL, process_id="p")
    world.join("b", STATEFUL, process_id="q")
    world.beat("a", 2)
    world.beat("a", 2, ["0_0", "0_1"])
    assert tasks(world.beat("b", 3).active_tasks) == ["0_2", "0_3"]
    answer = world.beat("a", 3)
    assert tasks(answer.standby_tasks) == ["0_2", "0_3"]
    assert {task.partition for task in world.group.members["b"].assigned.standby} == {0, 1}  # type: ignore[index]


def test_copy_becomes_active_after_it_was_given_up_as_a_copy(world: World) -> None:
    world.configure(streams_num_standby_replicas=1)
    world.add_topic("log", 4)
    world.join("a", STATEFUL)
    world.join("b", STATEFUL)
    world.beat("a", 2)
    world.beat("a", 2, ["0_0", "0_1"])
    world.beat("b", 3)
    world.leave("a")
    revoked = world.beat("b", 3)
    assert (tasks(revoked.active_tasks), tasks(revoked.standby_tasks)) == (["0_2", "0_3"], [])
    world.beat("b", 3, ["0_2", "0_3"])
    assert tasks(world.beat("b", 4).active_tasks) == ["0_0", "0_1", "0_2", "0_3"]


def test_task_is_not_active_where_its_process_still_has_a_copy(world: World) -> None:
    world.configure(streams_num_standby_replicas=1)
    world.add_topic("log", 4)
    world.join("a", STATEFUL, process_id="p")
    world.join("b", STATEFUL, process_id="q")
    world.beat("a", 2)
    world.beat("a", 2, ["0_0", "0_1"])
    world.beat("b", 3)
    world.join("c", STATEFUL, process_id="q")
    world.leave("a")
    answer = world.beat("c", 4)
    # What b keeps copies of is c's to run, once b, which shares its folder, has closed them.
    held = {task.partition for task in world.group.members["b"].held.standby}  # type: ignore[index]
    given = {int(task[-1]) for task in tasks(answer.active_tasks) or ()}
    assert held
    assert not held & given


def test_endpoints_are_told_when_tasks_have_moved(world: World) -> None:
    first = world.join("a", user_endpoint=Endpoint("host", 7), endpoint_information_epoch=-1)
    (row,) = first.partitions_by_user_endpoint or []
    assert (row.user_endpoint.host, row.user_endpoint.port) == ("host", 7)
    assert [(each.topic, each.partitions) for each in row.active_partitions] == [
        ("in", [0, 1, 2, 3])
    ]
    epoch = first.endpoint_information_epoch
    unchanged = world.beat("a", 2, endpoint_information_epoch=epoch)
    assert unchanged.partitions_by_user_endpoint is None
    world.join("b")
    moved = world.beat("a", 2, endpoint_information_epoch=epoch)
    assert moved.endpoint_information_epoch == epoch + 1
    (row,) = moved.partitions_by_user_endpoint or []
    assert row.active_partitions[0].partitions == [0, 1]


# Delays


def test_new_group_waits_for_more_members_before_it_assigns() -> None:
    world = World(group_streams_initial_rebalance_delay_ms=3000)
    world.add_topic("in", 4)
    first, second = world.join("a"), world.join("b")
    assert (first.member_epoch, tasks(first.active_tasks)) == (1, [])
    assert statuses(first) == statuses(second) == [StatusCode.ASSIGNMENT_DELAYED]
    assert world.describe().group_state == "Assigning"
    world.pass_time(3000)
    assert world.describe().group_state == "Reconciling"
    assert tasks(world.beat("a", 1).active_tasks) == ["0_0", "0_2"]
    assert tasks(world.beat("b", 1).active_tasks) == ["0_1", "0_3"]


def test_group_assigns_no_more_often_than_its_interval() -> None:
    world = World(group_streams_assignment_interval_ms=1000)
    world.add_topic("in", 4)
    world.join("a")
    world.pass_time(999)
    late = world.join("b")
    assert (late.member_epoch, statuses(late)) == (2, [StatusCode.ASSIGNMENT_DELAYED])
    world.pass_time(1)
    assert tasks(world.beat("a", 2).active_tasks) == ["0_0", "0_1"]


# Words for all


def test_all_members_are_told_when_one_asks_for_the_end(world: World) -> None:
    world.join("a")
    world.join("b")
    assert statuses(world.beat("a", 2, shutdown_application=True)) == [
        StatusCode.SHUTDOWN_APPLICATION
    ]
    assert statuses(world.beat("b", 3)) == [StatusCode.SHUTDOWN_APPLICATION]
    world.leave("a")
    assert statuses(world.beat("b", 3)) == [StatusCode.SHUTDOWN_APPLICATION]
    world.leave("b")
    assert statuses(world.join("c")) == []


def test_member_with_an_older_topology_is_told_so(world: World) -> None:
    world.join("a", Topology(5, STATELESS.subtopologies))
    older = world.join("b", Topology(4, [Subtopology("9", source_topics=["gone"])]))
    assert statuses(older) == [StatusCode.STALE_TOPOLOGY]
    assert world.describe().topology.epoch == 5  # type: ignore[union-attr]


def test_topology_of_a_group_cannot_change(world: World) -> None:
    world.join("a")
    world.leave("a")
    joining = {
        "rebalance_timeout_ms": 1,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }
    newer = Topology(1, STATELESS.subtopologies)
    assert world.refusal("b", 0, topology=newer, **joining) == ErrorCode.INVALID_REQUEST
    assert world.refusal("b", 0, topology=STATEFUL, **joining) == ErrorCode.INVALID_REQUEST


def test_group_takes_no_more_members_than_it_may() -> None:
    world = World(group_streams_max_size=1)
    world.join("a")
    joining = {
        "rebalance_timeout_ms": 1,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }
    code = world.refusal("b", 0, topology=STATELESS, **joining)
    assert code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join("a").member_epoch == 2


JOINING: dict[str, Any] = {
    "rebalance_timeout_ms": 1,
    "topology": STATELESS,
    "active_tasks": [],
    "standby_tasks": [],
    "warmup_tasks": [],
}


@pytest.mark.parametrize(
    ("epoch", "fields"),
    [
        (0, JOINING | {"rebalance_timeout_ms": -1}),
        (0, JOINING | {"topology": None}),
        (0, JOINING | {"active_tasks": None}),
        (0, JOINING | {"standby_tasks": task_rows(["0_0"])}),
        (0, JOINING | {"rack_id": ""}),
        (0, JOINING | {"instance_id": "i"}),
        (0, JOINING | {"task_offsets": []}),
        (0, JOINING | {"task_end_offsets": [TaskOffset("0", 0, 1)]}),
        (0, JOINING | {"topology": Topology(0, [Subtopology("0", source_topic_regex=["a.*"])])}),
        (2, {"topology": STATELESS}),
        (2, {"active_tasks": []}),
        (2, {"active_tasks": [], "standby_tasks": [], "warmup_tasks": task_rows(["0_0"])}),
        (2, {"active_tasks": task_rows(["0_4"]), "standby_tasks": [], "warmup_tasks": []}),
        (2, {"active_tasks": task_rows(["9_0"]), "standby_tasks": [], "warmup_tasks": []}),
        (-2, {}),
        (-3, {}),
    ],
)
def test_heartbeat_that_lacks_something_or_asks_too_much_is_refused(
    world: World, epoch: int, fields: dict[str, Any]
) -> None:
    world.join("a")
    assert world.refusal("a", epoch, **fields) == ErrorCode.INVALID_REQUEST


def test_group_that_is_not_there_is_said_to_be_missing(world: World) -> None:
    assert world.refusal("a", 1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.refusal("a", -1) == ErrorCode.GROUP_ID_NOT_FOUND


def test_group_is_the_same_after_a_restart(world: World) -> None:
    world.join("a", user_endpoint=Endpoint("host", 7))
    world.join("b")
    world.beat("a", 2)
    before = world.describe()
    world.restart()
    assert world.describe() == before
    assert world.beat("a", 2, ["0_0", "0_1"]).member_epoch == 3
    assert tasks(world.beat("b", 3).active_tasks) == ["0_2", "0_3"]


def test_members_have_their_time_again_after_a_restart(world: World) -> None:
    world.join("a", rebalance_timeout_ms=10_000)
    world.join("b")
    world.beat("a", 2)
    world.pass_time(9_000)
    world.restart()
    world.pass_time(9_999)
    assert set(world.group.members) == {"a", "b"}
    world.pass_time(1)
    assert set(world.group.members) == {"b"}
