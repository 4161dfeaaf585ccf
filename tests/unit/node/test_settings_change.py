"""Settings that may change while a node runs do so without a restart; others are refused by name.

The lists are walked whole: a setting that becomes dynamic needs a line here that shows its effect.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from headrace.config import SETTINGS
from headrace.config.group_configs import BROKER_RANGES, GROUP_CONFIGS
from headrace.config.registry import broker_settings
from headrace.config.setting import AnySetting
from headrace.config.topic import SYNONYMS, TOPIC_CONFIGS
from headrace.errors import ErrorCode
from headrace.groups.configs import group_config
from headrace.groups.state import GroupsState
from headrace.ids import TopicId
from headrace.log.compaction import compact
from headrace.metadata.state import ResourceType
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from tests.config_requests import BROKER, DELETE, GROUP, INVALID_REQUEST, NONE, SET, TOPIC, one
from tests.unit.api.transactional_producer import begin, pass_time
from tests.unit.harness import Harness
from tests.unit.node.setting_values import COMPANIONS, TIER, TIERED, another_value
from tests.unit.node.test_upkeep import COMPACTED, DAY_MS, HOUR_MS, append, log_of, until, upkeep

ALL_BROKERS, THIS_BROKER = "", "1"
DYNAMIC = {name: each for name, each in SETTINGS.items() if each.has_effect and each.is_dynamic}
ELSEWHERE = {
    "headrace.voters.max",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "transaction.partition.verification.enable",
    "unclean.leader.election.enable",
}
"""Shown by tests of their own: below, `test_partition_care`, `tests/cluster`."""
NOT_OF_ONE_BROKER = {"min.insync.replicas"}
"""Refused by name for one broker: eligible leader replicas need one value for all."""
OF_SHARE_PARTITIONS = {
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
}
"""What the leaders of partitions go by, and not the coordinator of the group."""
OF_THE_TIER = {name for name in DYNAMIC if name.startswith("remote.")}
"""Read by the parts of the tier whenever they use them; their tests show it."""
ONE_WAY = {"headrace.mirror.source", "remote.storage.enable"}
"""What cannot be taken back just so, or only be set when the topic is created."""


def alter(harness: Harness, resource: tuple[int, str], changes: Mapping[str, str | None]) -> None:
    """Change configs by IncrementalAlterConfigs; None takes one away."""
    lines = [(name, DELETE if text is None else SET, text) for name, text in changes.items()]
    step = one(*resource, *lines, code=NONE)
    (answer,) = harness.ask(step.body, step.version).responses
    assert answer.error_code == NONE, answer.error_message
    harness.run(asyncio.sleep(0))


def of_topic(harness: Harness) -> object:
    """Return what the partition of `orders` goes by."""
    partition = harness.partition("orders")
    return (
        partition.log.settings,
        partition.min_insync_replicas,
        partition.is_leader_throttled,
        partition.is_follower_throttled,
    )


def groups_state(harness: Harness) -> GroupsState:
    """Return the state of the coordinator of group `g`, which has been loaded."""
    harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    for shard in harness.broker.groups:
        harness.run(shard.loaded())
    state: GroupsState = harness.broker.groups.shard("g").machine.state
    return state


def of_group(name: str) -> Callable[[Harness], object]:
    """Return how to look what group `g` goes by."""

    def look(harness: Harness) -> object:
        return group_config(groups_state(harness), "g", name)

    return look


SHOWN: dict[str, Callable[[Harness], object]] = {
    **{
        synonym.name: of_topic
        for synonyms in SYNONYMS.values()
        for synonym in synonyms
        if synonym.name in DYNAMIC
    },
    **{each.synonym.name: of_group(name) for name, each in BROKER_RANGES.items()},
    "leader.replication.throttled.rate": lambda harness: harness.broker.throttles.leader.rate(),
    "follower.replication.throttled.rate": lambda harness: harness.broker.throttles.follower.rate(),
    "num.replica.fetchers": lambda harness: harness.broker.fetchers.count,
    "producer.id.expiration.ms": of_topic,
    "headrace.inflated.batch.max.bytes": of_topic,
    "headrace.tier.drop.uncopied": of_topic,
    "max.connection.creation.rate": lambda harness: (
        harness.node.quotas.connections.limit_of_listener("")
    ),
    "max.connections": lambda harness: harness.node.traffic.connections_max,
    "max.connections.per.ip": lambda harness: harness.node.traffic.connections_per_ip_max,
    "max.connections.per.ip.overrides": lambda harness: harness.node.traffic.connections_max_of,
}
"""Where the effect of a dynamic setting is seen."""


@pytest.fixture
def node(harness: Harness, register: Any, place: Callable[..., TopicId]) -> Harness:
    """A node that leads topic `orders`, which has a second replica elsewhere."""
    groups_state(harness)  # before there is another broker that its topic could be on
    register(7)
    place("orders", [1, 7], isr=[1, 7], leader=1)
    return harness


def test_there_is_a_test_for_every_dynamic_setting() -> None:
    assert sorted(DYNAMIC.keys() - SHOWN.keys() - ELSEWHERE - OF_THE_TIER) == []


def inert(
    node: Harness,
    resource: tuple[int, str],
    settings: dict[str, AnySetting],
    observer_of: Callable[[str], Callable[[Harness], object]],
) -> list[str]:
    """Change each setting and change it back; return those whose change cannot be seen."""
    found = []
    for name, setting in sorted(settings.items()):
        observe, companions = observer_of(name), COMPANIONS.get(name, {})
        if companions == TIERED:
            companions = {}  # the topic is in the tier already
        alter(node, resource, {**companions})
        before = observe(node)
        alter(node, resource, {name: another_value(setting)})
        changed = observe(node)
        alter(node, resource, {name: None})
        if changed == before or observe(node) != before:
            found.append(name)
        alter(node, resource, dict.fromkeys(companions))
    return found


@pytest.mark.parametrize("harness", [TIER], indirect=True, ids=["tier"])
@pytest.mark.parametrize("resource", [ALL_BROKERS, THIS_BROKER], ids=["all", "this"])
def test_every_dynamic_setting_takes_effect_without_a_restart(node: Harness, resource: str) -> None:
    left_out = ELSEWHERE | OF_THE_TIER | (NOT_OF_ONE_BROKER if resource == THIS_BROKER else set())
    walked = {name: each for name, each in DYNAMIC.items() if name not in left_out}
    alter(node, (TOPIC, "orders"), TIERED)
    assert inert(node, (BROKER, resource), walked, SHOWN.__getitem__) == []


@pytest.mark.parametrize("harness", [TIER], indirect=True, ids=["tier"])
def test_every_config_of_a_topic_takes_effect_without_a_restart(node: Harness) -> None:
    walked = {
        name: each
        for name, each in TOPIC_CONFIGS.items()
        if each.has_effect and name not in ONE_WAY | ELSEWHERE
    }
    of_tier = {name: walked.pop(name) for name in list(walked) if COMPANIONS.get(name) == TIERED}
    assert inert(node, (TOPIC, "orders"), walked, lambda name: of_topic) == []
    alter(node, (TOPIC, "orders"), TIERED)
    assert inert(node, (TOPIC, "orders"), of_tier, lambda name: of_topic) == []


def test_every_config_of_a_group_takes_effect_without_a_restart(harness: Harness) -> None:
    def observer_of(name: str) -> Callable[[Harness], object]:
        if name in BROKER_RANGES and name not in OF_SHARE_PARTITIONS:
            return of_group(name)
        return lambda harness: harness.broker.share_partitions.settings_of("g")

    assert inert(harness, (GROUP, "g"), dict(GROUP_CONFIGS), observer_of) == []


def test_every_setting_that_is_fixed_is_refused_by_name(harness: Harness) -> None:
    taken = []
    for name, setting in broker_settings().items():
        if setting.is_dynamic:
            continue
        step = one(BROKER, THIS_BROKER, (name, SET, setting.default_text or "1"), code=NONE)
        (answer,) = harness.ask(step.body, step.version).responses
        if answer.error_code != INVALID_REQUEST or name not in (answer.error_message or ""):
            taken.append((name, answer.error_message))
    assert taken == []


def test_a_value_of_this_broker_wins_over_one_of_all(node: Harness) -> None:
    alter(node, (BROKER, THIS_BROKER), {"producer.id.expiration.ms": "1000"})
    alter(node, (BROKER, ALL_BROKERS), {"producer.id.expiration.ms": "2000"})
    assert log_of(node).settings.producer_id_expiration_ms == 1000
    alter(node, (BROKER, THIS_BROKER), {"producer.id.expiration.ms": None})
    assert log_of(node).settings.producer_id_expiration_ms == 2000


def test_what_was_changed_holds_after_a_restart(node: Harness) -> None:
    alter(node, (BROKER, THIS_BROKER), {"producer.id.expiration.ms": "1000"})
    alter(node, (BROKER, THIS_BROKER), {"max.connections": "77"})
    node.restart()
    assert log_of(node).settings.producer_id_expiration_ms == 1000
    assert node.node.traffic.connections_max == 77


def test_an_image_that_comes_as_a_whole_brings_its_settings(node: Harness) -> None:
    async def restore() -> None:
        image = node.broker.image
        image.state.configs[ResourceType.BROKER, ""] = {
            "max.connections": "77",
            "producer.id.expiration.ms": "1000",
        }
        node.node._on_restored(image)
        await node.broker.replicas.settle()

    node.run(restore())
    assert node.node.traffic.connections_max == 77
    assert log_of(node).settings.producer_id_expiration_ms == 1000


def test_names_of_hosts_are_looked_up_when_their_limits_change_and_nobody_waits_for_that(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[str] = []
    is_answered = asyncio.Event()

    async def look_up(loop: object, host: str, port: None) -> list[Any]:
        looked_up.append(host)
        await is_answered.wait()
        return [(0, 0, 0, "", ("10.0.0.9" if host == "somewhere" else host, 0))]

    def limits() -> Any:
        return harness.node.traffic.connections_max_of

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    wanted = "somewhere:5,127.0.0.2:3"
    alter(harness, (BROKER, ALL_BROKERS), {"max.connections.per.ip.overrides": wanted})
    alter(harness, (BROKER, ALL_BROKERS), {"max.connections": "77"})
    assert (looked_up, limits()) == (["somewhere"], {"somewhere": 5, "127.0.0.2": 3})
    is_answered.set()
    harness.run(until(lambda: "10.0.0.9" in limits()))
    assert limits() == {"somewhere": 5, "127.0.0.2": 3, "10.0.0.9": 5}
    assert looked_up == ["somewhere", "127.0.0.2"]


@pytest.mark.parametrize(
    "written", ["10.0.0.7", "::ffff:10.0.0.7", "::FFFF:a00:7", "0:0:0:0:0:ffff:10.0.0.7"]
)
def test_limits_of_addresses_hold_however_they_are_written(harness: Harness, written: str) -> None:
    harness.node.traffic.connections_per_ip_max = 1
    alter(
        harness, (BROKER, ALL_BROKERS), {"max.connections.per.ip.overrides": f"{written}:2,::1:3"}
    )
    assert harness.node.traffic.connections_max_of == {"10.0.0.7": 2, "::1": 3}


def test_producers_are_forgotten_by_the_time_that_holds_now(node: Harness) -> None:
    append(node, b"k", producer_id=1, producer_epoch=0, base_sequence=0)
    pass_time(node, 2 * HOUR_MS)
    node.run(upkeep(node).run_producer_expiry())
    assert [state.producer_id for state in log_of(node).producers] == [1]
    alter(node, (BROKER, ALL_BROKERS), {"producer.id.expiration.ms": str(HOUR_MS)})
    node.run(upkeep(node).run_producer_expiry())
    assert [state.producer_id for state in log_of(node).producers] == []


@pytest.mark.parametrize("harness", [{"log.cleaner.backoff.ms": str(DAY_MS)}], indirect=True)
def test_a_shorter_rest_of_compaction_ends_the_one_that_is_under_way(harness: Harness) -> None:
    harness.run(asyncio.sleep(0))
    assert upkeep(harness).counters["compaction"].runs == 0
    alter(harness, (BROKER, ALL_BROKERS), {"log.cleaner.backoff.ms": "1"})
    harness.run(until(lambda: upkeep(harness).counters["compaction"].runs > 0))


def test_compaction_has_the_memory_that_holds_now(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []

    def note(*arguments: Any, map_bytes: int) -> Any:
        given.append(map_bytes)
        return compact(*arguments, map_bytes=map_bytes)

    monkeypatch.setattr("headrace.node.compactor.compact", note)
    harness.create_topic("orders", configs=COMPACTED)
    alter(harness, (BROKER, ALL_BROKERS), {"log.cleaner.dedupe.buffer.size": "2097152"})
    append(harness, *[b"a"] * 40)
    harness.run(upkeep(harness).run_compaction())
    assert given == [2097152]


def test_transactions_are_verified_as_long_as_that_is_on(harness: Harness) -> None:
    producer = begin(harness, "orders")
    assert producer.produce("orders", 0, version=11) != [ErrorCode.NONE]
    producer.sequences.clear()
    verification = "transaction.partition.verification.enable"
    alter(harness, (BROKER, ALL_BROKERS), {verification: "false"})
    assert producer.produce("orders", 0, version=11) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    "harness", [{"group.consumer.assignment.interval.ms": "15000"}], indirect=True
)
def test_a_consumer_group_assigns_when_the_interval_that_holds_now_has_passed(
    harness: Harness,
) -> None:
    groups_state(harness)
    harness.create_topic("in", 4)

    def beat(member_id: str, epoch: int = 0, **fields: Any) -> int:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch, **fields
        )
        answer = harness.ask(request, 1)
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        found: int = answer.member_epoch
        return found

    def epochs() -> tuple[int, int]:
        (group,) = harness.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
        return group.group_epoch, group.assignment_epoch

    joining: dict[str, Any] = {
        "rebalance_timeout_ms": 1000,
        "topic_partitions": [],
        "subscribed_topic_names": ["in"],
    }
    beat("first", **joining)
    epoch = beat("second", **joining)
    group_epoch, assignment_epoch = epochs()
    assert assignment_epoch < group_epoch, "the interval has not passed"
    alter(harness, (BROKER, ALL_BROKERS), {"group.consumer.assignment.interval.ms": "0"})
    beat("second", epoch)
    assert epochs() == (group_epoch, group_epoch)
