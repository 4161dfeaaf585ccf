"""Configs of topics, brokers, loggers, metrics and groups, as clients see and change them."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.config.registry import broker_settings
from headrace.metadata.backup import encode_backup, make_backup
from headrace.metadata.ddl import SetConfigs
from headrace.metadata.state import ResourceType
from headrace.wire.messages import alter_configs_request as alter_configs
from headrace.wire.messages.alter_configs_request import AlterConfigsRequest
from headrace.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.config_requests import (
    APPEND,
    BROKER,
    DELETE,
    INVALID_CONFIG,
    INVALID_REQUEST,
    LOGGER,
    NONE,
    SET,
    STEPS,
    SUBTRACT,
    TOPIC,
    codes_of,
    describe,
    one,
    replace,
)
from tests.unit.harness import Harness


@pytest.fixture
def node(harness: Harness) -> Any:
    """A node with the topics that the requests are about."""
    harness.create_topic("t")
    harness.create_topic("u")
    return harness


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("headrace.a.logger.to.test")
    yield found
    found.setLevel(logging.NOTSET)


def rows(answer: Any) -> dict[str, Any]:
    return {row.name: row for row in answer.results[0].configs}


def play(node: Harness, step: Any) -> Any:
    answer = node.ask(step.body, step.version)
    assert codes_of(answer) == step.codes
    return answer


def test_every_request_gets_the_codes_of_kafka(node: Harness) -> None:
    for step in STEPS:
        answer = node.ask(step.body, step.version)
        assert codes_of(answer) == step.codes, str(step)


def test_a_refusal_says_what_is_wrong(node: Harness) -> None:
    answer = play(node, one(BROKER, "1", ("num.partitions", SET, "3"), code=INVALID_REQUEST))
    assert "num.partitions: cannot change while a broker runs" in answer.responses[0].error_message


def test_a_topics_change_reaches_its_log_and_its_removal_too(node: Harness) -> None:
    def retention_ms() -> int:
        retention_ms = node.partition("t", 0).log.settings.retention_ms
        assert isinstance(retention_ms, int)
        return retention_ms

    play(node, one(TOPIC, "t", ("retention.ms", SET, "1234"), code=NONE))
    assert retention_ms() == 1234
    play(node, one(TOPIC, "t", ("retention.ms", DELETE, None), code=NONE))
    assert retention_ms() == 604_800_000
    play(node, one(BROKER, "", ("log.retention.ms", SET, "99"), code=NONE))
    assert retention_ms() == 99


def test_changes_are_there_after_a_restart(node: Harness) -> None:
    play(node, one(TOPIC, "t", ("retention.ms", SET, "1234"), code=NONE))
    node.restart()
    row = rows(play(node, describe((TOPIC, "t", ["retention.ms"]))))["retention.ms"]
    assert row.value == "1234"


def test_a_broker_shows_every_setting_and_none_of_its_secrets(node: Harness) -> None:
    found = rows(play(node, describe((BROKER, "1", None))))
    expected = {name for name, each in broker_settings().items() if not each.is_internal}
    assert found.keys() == {name for name in expected if not name.endswith(_DYNAMIC_ONLY)}
    assert found["ssl.key.password"].is_sensitive
    assert found["ssl.key.password"].value is None
    assert found["log.dirs"].config_source == 4
    assert found["http.listen"].read_only


_DYNAMIC_ONLY = (".throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second")


def test_documentation_is_there_for_those_who_ask(node: Harness) -> None:
    resource = DescribeConfigsResource(TOPIC, "t", ["retention.ms"])
    asked = DescribeConfigsRequest(resources=[resource], include_documentation=True)
    assert "How long records are kept" in rows(node.ask(asked, 4))["retention.ms"].documentation
    asked.include_documentation = False
    assert rows(node.ask(asked, 4))["retention.ms"].documentation is None


def test_a_secret_in_the_metadata_is_not_shown(node: Harness) -> None:
    name = "listener.name.outside.ssl.key.password"
    change = SetConfigs(ResourceType.BROKER, "1", {name: "hunter2"})
    node.run(node.broker.quorum.propose(change))
    assert "hunter2" not in repr(play(node, describe((BROKER, "1", None))))
    assert node.broker.image.configs(ResourceType.BROKER, "1") == {name: "hunter2"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listener.name.outside.ssl.key.password", "hunter2"),
        ("listener.name.plaintext.scram-sha-256.sasl.jaas.config", "hunter2"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("ssl.client.auth", "required"),
        ("principal.builder.class", "org.example.Builder"),
        ("super.users", "User:admin"),
        ("authorizer.class.name", "org.example.Authorizer"),
    ],
)
@pytest.mark.parametrize("resource", ["1", ""])
def test_a_config_that_would_protect_is_refused(
    node: Harness, resource: str, name: str, value: str
) -> None:
    for step in (
        one(BROKER, resource, (name, SET, value), code=INVALID_REQUEST),
        replace(BROKER, resource, {name: value}, INVALID_REQUEST),
    ):
        message = play(node, step).responses[0].error_message
        assert f"{name}: what protects a node cannot change while it runs" in message
        assert value not in message.replace(name, "")
    assert node.broker.image.configs(ResourceType.BROKER, resource) == {}


@pytest.mark.parametrize(
    "name",
    [
        "foo.password",
        "foo.Secret.Access.Key",
        "my.api_key",
        "plugin.token",
        "key",
        "listener.name.a.foo.password",
    ],
)
@pytest.mark.parametrize("resource", ["1", ""])
def test_what_is_called_a_secret_and_nobody_knows_is_refused(
    node: Harness, resource: str, name: str
) -> None:
    """It would stand in the metadata log, and in what is made of it, as it is."""
    for step in (
        one(BROKER, resource, (name, SET, "hunter2"), code=INVALID_REQUEST),
        replace(BROKER, resource, {name: "hunter2"}, INVALID_REQUEST),
    ):
        message = play(node, step).responses[0].error_message
        assert message.startswith(f"{name}: ")
        assert "hunter2" not in message
    assert node.broker.image.configs(ResourceType.BROKER, resource) == {}


def test_what_nobody_knows_of_a_broker_is_in_no_backup(node: Harness) -> None:
    lines = ("foo.bar", SET, "hunter2"), ("log.cleaner.threads", SET, "2")
    play(node, one(BROKER, "1", *lines, code=0))
    state = node.broker.image.state
    assert state.configs[ResourceType.BROKER, "1"]["foo.bar"] == "hunter2"
    document = make_backup(state, taken_at_ms=0, software="test")
    assert b"hunter2" not in encode_backup(document)
    assert document.left_out.unknown_configs == 1
    assert [each.configs for each in document.configs] == [{"log.cleaner.threads": "2"}]


def test_a_mechanism_added_to_the_list_of_them_is_refused(node: Harness) -> None:
    line = ("sasl.enabled.mechanisms", APPEND, "PLAIN")
    play(node, one(BROKER, "1", line, code=INVALID_REQUEST))


def test_a_level_holds_until_it_is_taken_away(node: Harness, logger: logging.Logger) -> None:
    def level() -> str:
        found = rows(play(node, describe((LOGGER, "1", [logger.name]))))
        value = found[logger.name].value
        assert isinstance(value, str)
        return value

    before = level()
    play(node, one(LOGGER, "1", (logger.name, SET, "TRACE"), code=NONE))
    assert level() == "TRACE"
    assert logger.isEnabledFor(5)
    play(node, one(LOGGER, "1", (logger.name, DELETE, None), code=NONE))
    assert level() == before
    assert logger.level == logging.NOTSET


def test_one_bad_level_changes_no_logger(node: Harness, logger: logging.Logger) -> None:
    lines = ((logger.name, SET, "ERROR"), ("no.such.logger", SET, "ERROR"))
    play(node, one(LOGGER, "1", *lines, code=40))
    assert logger.level == logging.NOTSET


def test_what_is_asked_for_twice_is_described_once(node: Harness) -> None:
    resources = [DescribeConfigsResource(TOPIC, "t", None)] * 2000
    resources += [DescribeConfigsResource(BROKER, "1", None)] * 2000
    resources += [DescribeConfigsResource(TOPIC, "t", ["retention.ms"])] * 2
    answer = node.ask(DescribeConfigsRequest(resources), 4)
    found = [(each.resource_type, each.resource_name, len(each.configs)) for each in answer.results]
    (topic, broker, one_config) = found
    assert topic[:2] == (TOPIC, "t")
    assert broker[:2] == (BROKER, "1")
    assert one_config == (TOPIC, "t", 1)
    assert topic[2] > 1


def test_a_list_cannot_grow_beyond_what_kafka_could_keep(node: Harness) -> None:
    name = "leader.replication.throttled.replicas"
    halves = [",".join(f"{part}:{index}" for index in range(4000)) for part in (1, 2)]
    play(node, one(TOPIC, "t", (name, SET, halves[0]), code=NONE))
    play(node, one(TOPIC, "t", (name, APPEND, halves[1]), code=INVALID_CONFIG))


def test_a_broker_cannot_be_told_any_number_of_configs(node: Harness) -> None:
    def lines(first: int, count: int) -> list[Any]:
        return [(f"no.such.{number}", SET, "x") for number in range(first, first + count)]

    play(node, one(BROKER, "1", *lines(0, 501), code=INVALID_REQUEST))
    play(node, one(BROKER, "1", *lines(0, 500), code=NONE))
    play(node, one(BROKER, "1", *lines(500, 1), code=INVALID_REQUEST))
    play(node, one(BROKER, "1", ("no.such.0", DELETE, None), code=NONE))
    play(node, one(BROKER, "1", *lines(500, 1), code=NONE))


def test_one_broker_has_no_min_isr_of_its_own(node: Harness) -> None:
    play(node, one(BROKER, "1", ("min.insync.replicas", SET, "2"), code=INVALID_CONFIG))
    play(node, one(BROKER, "1", ("min.insync.replicas", DELETE, None), code=NONE))
    play(node, one(BROKER, "", ("min.insync.replicas", SET, "2"), code=NONE))


def test_clients_that_change_a_list_at_the_same_time_are_all_heard(node: Harness) -> None:
    """None of them undoes what the others do, though all see the same list at first."""
    name = "leader.replication.throttled.replicas"

    async def change(operation: int, value: str) -> Any:
        line = AlterableConfig(name, operation, value)
        body = IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC, "t", [line])])
        return await node.ask_async(body, 1)

    async def change_all(operation: int, values: list[str]) -> list[int]:
        answers = await asyncio.gather(*(change(operation, value) for value in values))
        return [answer.responses[0].error_code for answer in answers]

    values = [f"{number}:1" for number in range(12)]
    assert node.run(change_all(APPEND, values)) == [NONE] * 12
    configs = node.broker.image.configs(ResourceType.TOPIC, "t")
    assert sorted(configs[name].split(",")) == sorted(values)
    assert node.run(change_all(SUBTRACT, values[1:])) == [NONE] * 11
    assert node.broker.image.configs(ResourceType.TOPIC, "t")[name] == values[0]


@pytest.mark.parametrize(
    ("resource_type", "name", "keys"),
    [
        (ResourceType.TOPIC, "t", ("retention.ms", "segment.ms")),
        (ResourceType.BROKER, "", ("log.retention.ms", "log.roll.ms")),
        (
            ResourceType.GROUP,
            "g",
            ("consumer.session.timeout.ms", "share.session.timeout.ms"),
        ),
        (ResourceType.CLIENT_METRICS, "s", ("interval.ms", "metrics")),
    ],
)
def test_clients_that_replace_configs_at_the_same_time_leave_those_of_one(
    node: Harness, resource_type: ResourceType, name: str, keys: tuple[str, str]
) -> None:
    async def change(key: str) -> int:
        wanted = alter_configs.AlterableConfig(key, "50000")
        resource = alter_configs.AlterConfigsResource(int(resource_type), name, [wanted])
        answer = await node.ask_async(AlterConfigsRequest([resource]), 2)
        code: int = answer.responses[0].error_code
        return code

    async def change_both() -> list[int]:
        return list(await asyncio.gather(*map(change, keys)))

    assert node.run(change_both()) == [NONE, NONE]
    configs = dict(node.broker.image.configs(resource_type, name))
    assert configs in [{key: "50000"} for key in keys]


def test_any_number_of_clients_may_set_the_same_config_at_the_same_time(node: Harness) -> None:
    async def change(value: int) -> int:
        config = AlterableConfig("retention.ms", SET, str(value))
        body = IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC, "t", [config])])
        code: int = (await node.ask_async(body, 1)).responses[0].error_code
        return code

    async def change_all() -> list[int]:
        return list(await asyncio.gather(*map(change, range(1_000, 1_300))))

    assert set(node.run(change_all())) == {NONE}


def test_clients_at_the_same_time_cannot_set_what_does_not_go_together(node: Harness) -> None:
    async def change(name: str, value: str) -> int:
        body = IncrementalAlterConfigsRequest(
            [AlterConfigsResource(TOPIC, "t", [AlterableConfig(name, SET, value)])]
        )
        answer = await node.ask_async(body, 1)
        code: int = answer.responses[0].error_code
        return code

    async def change_both() -> list[int]:
        return list(
            await asyncio.gather(
                change("min.compaction.lag.ms", "5000"), change("max.compaction.lag.ms", "1000")
            )
        )

    assert sorted(node.run(change_both())) == [NONE, INVALID_CONFIG]
    assert len(node.broker.image.configs(ResourceType.TOPIC, "t")) == 1


def test_clients_at_the_same_time_leave_a_broker_that_lets_somebody_in(node: Harness) -> None:
    limit, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"

    async def change(*rows: AlterableConfig) -> int:
        body = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, "", list(rows))])
        answer = await node.ask_async(body, 1)
        code: int = answer.responses[0].error_code
        return code

    async def change_both() -> list[int]:
        none = change(AlterableConfig(limit, SET, "0"))
        return list(await asyncio.gather(none, change(AlterableConfig(overrides, DELETE, None))))

    assert node.run(change(AlterableConfig(overrides, SET, "127.0.0.1:5"))) == NONE
    assert node.run(change_both()) == [NONE, INVALID_REQUEST]
    assert dict(node.broker.image.configs(ResourceType.BROKER, "")) == {
        limit: "0",
        overrides: "127.0.0.1:5",
    }
