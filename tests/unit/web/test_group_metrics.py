"""What coordinators know, in numbers: who is in a group, how far it is behind, what is open."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.config import load_settings
from headrace.coordinator.shard import State
from headrace.groups.machine import GroupsMachine
from headrace.groups.offsets.store import CommittedOffset
from headrace.groups.state import GroupId, GroupsState
from headrace.ids import UNKNOWN_OFFSET, PartitionIndex, SharePartitionKey
from headrace.metadata.image import Image
from headrace.share.durable import UNKNOWN_COUNT, StateSummary
from headrace.txn.state import Status, Transaction
from headrace.web.group_metrics import GROUPS_MAX, OTHERS, group_metrics
from tests.unit.groups.classic.classic_world import World
from tests.unit.groups.share.share_world import ShareWorld

Values = dict[tuple[str, ...], float]


class Coordinated:
    """Shards of a topic that were loaded twice."""

    def __init__(self, topic: str, *shards: Any) -> None:
        self.topic = topic
        self.load_count = 2
        self._shards = shards

    def __iter__(self) -> Any:
        return iter(self._shards)


class Replicas:
    """Partitions of topic `t`, led here but for the last."""

    image = Image()

    def find_by_id(self, topic_id: bytes, index: int) -> Any:
        return self.find(topic_id[:1].decode(), index)

    def find(self, topic: str, index: int) -> Any:
        if topic != "t" or index > 2:
            return None
        return SimpleNamespace(is_leader=index < 2, log=SimpleNamespace(high_watermark=100))


def shard_of(machine: Any, state: State = State.ACTIVE) -> Any:
    return SimpleNamespace(state=state, machine=machine)


def empty_groups() -> GroupsMachine:
    image = Image()
    return GroupsMachine(GroupsState(load_settings(), lambda: image, new_id=str))


def values_of(
    *shards: Any, transactions: tuple[Any, ...] = (), share_states: tuple[Any, ...] = ()
) -> Values:
    broker: Any = SimpleNamespace(
        groups=Coordinated("__consumer_offsets", *shards),
        transactions=Coordinated("__transaction_state", *transactions),
        share_states=Coordinated("__share_group_state", *share_states),
        image=Image(),
        replicas=Replicas(),
    )
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in group_metrics(broker)
        if metric is not None
        for sample in metric.samples
    }


def commit(machine: GroupsMachine, group_id: str, topic: str, index: int, offset: int) -> None:
    machine.state.offsets.put(group_id, (topic, index), CommittedOffset(offset))


def test_a_group_has_its_members_and_its_state() -> None:
    world = World()
    world.stable("one", "two")
    values = values_of(shard_of(world.machine))
    assert values["headrace_group_members", "g"] == 2
    assert values["headrace_group_state", "g", "Stable"] == 1
    assert values["headrace_groups", "classic", "Stable"] == 1


def test_lag_is_what_is_committed_to_what_is_there_of_partitions_led_here() -> None:
    machine = empty_groups()
    commit(machine, "g", "t", 0, 90)
    commit(machine, "g", "t", 1, 40)
    commit(machine, "g", "t", 2, 0)  # led elsewhere
    commit(machine, "g", "gone", 0, 0)
    commit(machine, "ahead", "t", 0, 200)  # the topic was made anew
    values = values_of(shard_of(machine))
    assert values["headrace_group_lag_records", "g"] == 10 + 60
    assert values["headrace_group_lag_records", "ahead"] == 0
    assert values["headrace_group_members", "g"] == 0
    assert values["headrace_groups", "classic", "Empty"] == 2


def test_lag_of_a_share_group_is_what_it_is_not_done_with() -> None:
    world = ShareWorld()
    world.add_topic("t", 3)
    world.share_beat("m", 0, ["t"])
    topic_id = world.topic_id("t")
    summaries = {
        0: StateSummary(2, 0, 90, 3),
        1: StateSummary(2, 0, UNKNOWN_OFFSET, UNKNOWN_COUNT),
        2: StateSummary(2, 0, 0, 0),  # led elsewhere
    }
    states = {
        SharePartitionKey("g", topic_id, PartitionIndex(index)): SimpleNamespace(summary=summary)
        for index, summary in summaries.items()
    }
    kept = shard_of(SimpleNamespace(state=SimpleNamespace(states=states)))
    values = values_of(shard_of(world.machine), share_states=(kept,))
    assert values["headrace_group_lag_records", "g"] == 7
    assert values["headrace_group_members", "g"] == 1
    assert values["headrace_groups", "share", "Stable"] == 1
    assert values["headrace_group_state", "g", "Stable"] == 1


def test_groups_beyond_the_maximum_are_one_row() -> None:
    world = World()
    world.stable("one")
    for number in range(GROUPS_MAX + 10):
        commit(world.machine, f"group-{number}", "t", 0, 100 - number % 100)
    values = values_of(shard_of(world.machine))
    shown = [key[1] for key in values if key[0] == "headrace_group_lag_records"]
    assert len(shown) == GROUPS_MAX + 1
    assert "g" in shown
    lags = (values["headrace_group_lag_records", each] for each in shown)
    assert sum(lags) == sum(number % 100 for number in range(GROUPS_MAX + 10))
    assert ("headrace_group_members", OTHERS) in values
    assert not any(key[:2] == ("headrace_group_state", OTHERS) for key in values)


@pytest.mark.parametrize("state", [State.LOADING, State.FAILED])
def test_nothing_is_told_of_what_is_not_loaded(state: State) -> None:
    machine = empty_groups()
    commit(machine, "g", "t", 0, 90)
    values = values_of(shard_of(machine, state))
    assert ("headrace_group_lag_records", "g") not in values
    assert values["headrace_coordinator_partitions", "__consumer_offsets", state.value] == 1
    assert values["headrace_coordinator_partitions", "__consumer_offsets", "active"] == 0
    assert values["headrace_coordinator_loads_total", "__consumer_offsets"] == 2


def test_transactions_are_open_until_decided_and_completing_until_everybody_knows() -> None:
    statuses = (Status.EMPTY, Status.ONGOING, Status.ONGOING, Status.PREPARE_COMMIT)
    transactions = {
        str(number): Transaction(str(number), number, 0, 1000, status)
        for number, status in enumerate(statuses)
    }
    machine = SimpleNamespace(state=SimpleNamespace(transactions=transactions))
    values = values_of(transactions=(shard_of(machine),))
    assert values["headrace_transactional_ids",] == 4
    assert values["headrace_open_transactions",] == 2
    assert values["headrace_completing_transactions",] == 1


def test_a_group_that_is_gone_has_no_row() -> None:
    machine = empty_groups()
    commit(machine, "g", "t", 0, 90)
    machine.state.offsets.remove("g", ("t", 0))
    assert GroupId("g") not in machine.state.groups
    assert not any("g" in key for key in values_of(shard_of(machine)))
