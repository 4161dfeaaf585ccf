"""Configs described, replaced and altered."""

from collections.abc import Iterable

from headrace.wire.messages import alter_configs_request as alter
from headrace.wire.messages import incremental_alter_configs_request as incremental
from headrace.wire.messages.alter_configs_request import AlterConfigsRequest
from headrace.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.messages.describe_configs_response import DescribeConfigsResponse
from headrace.wire.messages.incremental_alter_configs_request import (
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from tests.differential.connection import all_versions
from tests.differential.conversation import Conversation

UNKNOWN, TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 0, 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

BROKER_KEYS = [
    "node.id",
    "num.partitions",
    "default.replication.factor",
    "auto.create.topics.enable",
    "delete.topic.enable",
    "min.insync.replicas",
    "message.max.bytes",
    "log.retention.ms",
    "log.retention.minutes",
    "log.retention.hours",
    "log.retention.bytes",
    "log.segment.bytes",
    "log.cleanup.policy",
    "log.cleaner.enable",
    "log.flush.interval.messages",
    "socket.request.max.bytes",
    "max.connections",
    "connections.max.idle.ms",
    "fetch.max.bytes",
    "compression.type",
    "unclean.leader.election.enable",
]
"""Settings of a broker that mean the same in both."""


def describe_topic_configs(talk: Conversation) -> None:
    topic = talk.topic("plain", retention_ms="12345", cleanup_policy="compact")
    talk.ask_all_versions("all", _describe(TOPIC, topic.name))
    talk.ask_all_versions("all with synonyms", _describe(TOPIC, topic.name, synonyms=True))
    documented = _describe(TOPIC, topic.name, documentation=True)
    talk.ask_all_versions("all with documentation", documented, (3, 4))
    some = ["retention.ms", "segment.bytes", "none.such"]
    talk.ask("some", _describe(TOPIC, topic.name, some, synonyms=True))
    talk.ask("none", _describe(TOPIC, topic.name, []))
    talk.ask("one twice", _describe(TOPIC, topic.name, ["retention.ms", "retention.ms"]))
    talk.ask_all_versions("an unknown topic", _describe(TOPIC, talk.name("unknown")))
    talk.ask("an invalid name", _describe(TOPIC, "a b"))
    talk.ask("an empty name", _describe(TOPIC, ""))
    one = _describe(TOPIC, topic.name, ["retention.ms"]).resources[0]
    other = _describe(TOPIC, talk.name("unknown")).resources[0]
    talk.ask("two resources", DescribeConfigsRequest(resources=[one, other]))
    talk.ask("a resource twice", DescribeConfigsRequest(resources=[one, one]))
    talk.ask("nothing", DescribeConfigsRequest())


def describe_other_configs(talk: Conversation) -> None:
    for synonyms in (False, True):
        words = " with synonyms" if synonyms else ""
        request = _describe(BROKER, "1", BROKER_KEYS, synonyms=synonyms)
        talk.ask_all_versions(f"a broker{words}", request)
        talk.ask(f"all brokers{words}", _describe(BROKER, "", BROKER_KEYS, synonyms=synonyms))
    talk.ask("everything of all brokers", _describe(BROKER, ""))
    talk.ask("another broker", _describe(BROKER, "99"))
    talk.ask("a broker that is no number", _describe(BROKER, "one"))
    talk.ask("a logger of another broker", _describe(BROKER_LOGGER, "99"))
    talk.ask("a logger of all brokers", _describe(BROKER_LOGGER, ""))
    talk.ask("a logger of no number", _describe(BROKER_LOGGER, "one"))
    talk.ask("client metrics", _describe(CLIENT_METRICS, talk.name("metrics"), synonyms=True))
    talk.ask("client metrics without a name", _describe(CLIENT_METRICS, ""))
    talk.ask("a group", _describe(GROUP, talk.name("group"), synonyms=True))
    talk.ask("a group without a name", _describe(GROUP, ""))
    for kind in (UNKNOWN, 1, 3, 64, -1):
        talk.ask(f"resource type {kind}", _describe(kind, "a"))


def alter_topic_configs(talk: Conversation) -> None:
    topic = talk.topic("plain", retention_ms="1", segment_ms="2")
    for version in all_versions(AlterConfigsRequest):
        request = _alter(TOPIC, topic.name, {"retention.ms": f"{version}00"})
        talk.ask(f"replace v{version}", request, version)
    _await_value(talk, topic.name, "retention.ms", "200")
    keys = ["retention.ms", "segment.ms"]
    talk.ask("what there is", _describe(TOPIC, topic.name, keys))
    checked = _alter(TOPIC, topic.name, {"retention.ms": "999"})
    checked.validate_only = True
    talk.ask("only checked", checked)
    talk.ask("what there still is", _describe(TOPIC, topic.name, keys))
    cases: tuple[tuple[str, dict[str, str | None]], ...] = (
        ("an unknown name", {"none.such": "1"}),
        ("not a number", {"retention.ms": "x"}),
        ("null", {"retention.ms": None}),
        ("empty", {"retention.ms": ""}),
        ("lags crossed", {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}),
        ("a broker's name", {"log.retention.ms": "10"}),
    )
    for name, configs in cases:
        talk.ask(name, _alter(TOPIC, topic.name, configs))
    talk.ask("an unknown topic", _alter(TOPIC, talk.name("unknown"), {"retention.ms": "1"}))
    talk.ask("an invalid topic", _alter(TOPIC, "a b", {"retention.ms": "1"}))
    talk.ask("an empty topic", _alter(TOPIC, "", {"retention.ms": "1"}))
    twice = _alter(TOPIC, topic.name, {"retention.ms": "7"})
    twice.resources = [*twice.resources, *twice.resources]
    talk.ask("a resource twice", twice, patience_seconds=1)
    doubled = _alter(TOPIC, topic.name, {"retention.ms": "7"})
    doubled.resources[0].configs = [*doubled.resources[0].configs] * 2
    talk.ask("a config twice", doubled)
    mixed = _alter(TOPIC, topic.name, {"retention.ms": "55"})
    mixed.resources = [
        *mixed.resources,
        *_alter(TOPIC, talk.name("unknown"), {"retention.ms": "1"}).resources,
    ]
    talk.ask("a good and a bad resource", mixed)
    talk.ask("nothing to set", _alter(TOPIC, topic.name, {}))
    _await_value(talk, topic.name, "retention.ms", "604800000")
    talk.ask("all is as at first", _describe(TOPIC, topic.name, keys))
    talk.ask("nothing", AlterConfigsRequest())
    for kind in (UNKNOWN, BROKER_LOGGER, 64):
        talk.ask(f"resource type {kind}", _alter(kind, "1", {"a": "b"}))


def alter_topic_configs_incrementally(talk: Conversation) -> None:
    topic = talk.topic("plain")

    def ask(name: str, *changes: tuple[str, int, str | None], **options: object) -> None:
        talk.ask(name, _change(TOPIC, topic.name, changes, **options))  # type: ignore[arg-type]

    for version in all_versions(IncrementalAlterConfigsRequest):
        request = _change(TOPIC, topic.name, [("retention.ms", SET, f"{version}00")])
        talk.ask(f"set v{version}", request, version)
    _await_value(talk, topic.name, "retention.ms", "100")
    ask("only checked", ("retention.ms", SET, "999"), validate_only=True)
    ask("set two", ("segment.ms", SET, "5"), ("cleanup.policy", SET, "compact"))
    _await_value(talk, topic.name, "cleanup.policy", "compact")
    ask("append", ("cleanup.policy", APPEND, "delete"))
    _await_value(talk, topic.name, "cleanup.policy", "compact,delete")
    ask("append what is there", ("cleanup.policy", APPEND, "delete"))
    ask("append a bad value", ("cleanup.policy", APPEND, "shred"))
    ask("subtract", ("cleanup.policy", SUBTRACT, "compact"))
    _await_value(talk, topic.name, "cleanup.policy", "delete")
    ask("subtract what is not there", ("cleanup.policy", SUBTRACT, "compact"))
    ask("subtract all", ("cleanup.policy", SUBTRACT, "delete"))
    _await_value(talk, topic.name, "cleanup.policy", "")
    talk.ask("what there is", _describe(TOPIC, topic.name, ["cleanup.policy"], synonyms=True))
    ask("delete", ("cleanup.policy", DELETE, None), ("retention.ms", DELETE, None))
    _await_value(talk, topic.name, "retention.ms", "604800000")
    ask("delete what is not set", ("flush.ms", DELETE, None))
    ask("delete with a value", ("flush.ms", DELETE, "5"))
    ask("delete an unknown name", ("none.such", DELETE, None))
    ask("append to the default", ("cleanup.policy", APPEND, "compact"))
    _await_value(talk, topic.name, "cleanup.policy", "delete,compact")
    ask("append to a number", ("retention.ms", APPEND, "5"))
    ask("subtract from a number", ("retention.ms", SUBTRACT, "5"))
    ask("set an unknown name", ("none.such", SET, "1"))
    ask("set a bad value", ("retention.ms", SET, "x"))
    ask("set null", ("retention.ms", SET, None))
    ask("append null", ("cleanup.policy", APPEND, None))
    ask("set empty", ("retention.ms", SET, ""))
    ask("an unknown operation", ("retention.ms", 9, "1"))
    ask("one config twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    ask("a good and a bad one", ("retention.ms", SET, "77"), ("segment.ms", SET, "x"))
    ask("nothing to change")
    ask("throttled replicas", ("leader.replication.throttled.replicas", APPEND, "0:1"))
    _await_value(talk, topic.name, "leader.replication.throttled.replicas", "0:1")
    talk.ask("what there is at last", _describe(TOPIC, topic.name))
    good = _change(TOPIC, topic.name, [("retention.ms", SET, "88")])
    unknown = _change(TOPIC, talk.name("unknown"), [("retention.ms", SET, "88")])
    good.resources = [*good.resources, *unknown.resources]
    talk.ask("a good and an unknown topic", good)
    twice = _change(TOPIC, topic.name, [("retention.ms", SET, "1")])
    twice.resources = [*twice.resources, *twice.resources]
    talk.ask("a resource twice", twice)
    talk.ask("an invalid topic", _change(TOPIC, "a b", [("retention.ms", SET, "1")]))
    talk.ask("nothing", IncrementalAlterConfigsRequest())
    for kind in (UNKNOWN, 1, 64):
        talk.ask(f"resource type {kind}", _change(kind, "1", [("a", SET, "b")]))


def alter_broker_configs(talk: Conversation) -> None:
    keys = ["message.max.bytes", "log.retention.ms", "num.partitions"]

    def ask(name: str, broker: str, *changes: tuple[str, int, str | None]) -> None:
        talk.ask(name, _change(BROKER, broker, changes))

    def await_value(broker: str, key: str, value: str | None) -> None:
        _await_value(talk, broker, key, value, BROKER)

    topic = talk.topic("plain")
    ask("set for all brokers", "", ("message.max.bytes", SET, "2000000"))
    await_value("1", "message.max.bytes", "2000000")
    talk.ask("a broker then", _describe(BROKER, "1", keys, synonyms=True))
    talk.ask("all brokers then", _describe(BROKER, "", keys, synonyms=True))
    talk.ask("a topic then", _describe(TOPIC, topic.name, ["max.message.bytes"], synonyms=True))
    ask("set for one broker", "1", ("message.max.bytes", SET, "3000000"))
    await_value("1", "message.max.bytes", "3000000")
    talk.ask("that broker then", _describe(BROKER, "1", keys, synonyms=True))
    talk.ask("its topic then", _describe(TOPIC, topic.name, ["max.message.bytes"], synonyms=True))
    ask("back for one", "1", ("message.max.bytes", DELETE, None))
    await_value("1", "message.max.bytes", "2000000")
    ask("back for all", "", ("message.max.bytes", DELETE, None))
    await_value("1", "message.max.bytes", "1048588")
    ask("what is read-only", "1", ("num.partitions", SET, "5"))
    ask("what is read-only, for all", "", ("broker.rack", SET, "here"))
    ask("an unknown name", "", ("none.such", SET, "5"))
    ask("an unknown name no more", "", ("none.such", DELETE, None))
    ask("a bad value", "", ("message.max.bytes", SET, "x"))
    ask("a value too small", "", ("message.max.bytes", SET, "-1"))
    ask("a listener for all", "", ("advertised.listeners", SET, "PLAINTEXT://127.0.0.1:1"))
    ask("another broker", "99", ("message.max.bytes", SET, "5"))
    ask("no number", "one", ("message.max.bytes", SET, "5"))
    talk.ask("replace nothing", _alter(BROKER, "", {}))
    talk.ask("replace with what is read-only", _alter(BROKER, "1", {"num.partitions": "5"}))
    talk.ask("what there is at last", _describe(BROKER, "1", keys, synonyms=True))


def alter_group_and_metrics_configs(talk: Conversation) -> None:
    group, metrics = talk.name("group"), talk.name("metrics")

    def ask(name: str, kind: int, resource: str, *changes: tuple[str, int, str | None]) -> None:
        talk.ask(name, _change(kind, resource, changes))

    ask("a group's session", GROUP, group, ("consumer.session.timeout.ms", SET, "50000"))
    _await_value(talk, group, "consumer.session.timeout.ms", "50000", GROUP)
    talk.ask("the group", _describe(GROUP, group, synonyms=True))
    ask("too short a session", GROUP, group, ("consumer.session.timeout.ms", SET, "5"))
    ask("an unknown name", GROUP, group, ("none.such", SET, "5"))
    ask("no group", GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))
    ask("metrics", CLIENT_METRICS, metrics, ("interval.ms", SET, "5000"))
    _await_value(talk, metrics, "interval.ms", "5000", CLIENT_METRICS)
    ask(
        "more metrics",
        CLIENT_METRICS,
        metrics,
        ("metrics", SET, "a.,b."),
        ("match", SET, "client_id=x"),
    )
    _await_value(talk, metrics, "match", "client_id=x", CLIENT_METRICS)
    talk.ask("the metrics", _describe(CLIENT_METRICS, metrics, synonyms=True))
    ask("too short an interval", CLIENT_METRICS, metrics, ("interval.ms", SET, "5"))
    ask("a bad match", CLIENT_METRICS, metrics, ("match", SET, "what"))
    ask("a match by an unknown word", CLIENT_METRICS, metrics, ("match", SET, "what=1"))
    ask("a match that is no pattern", CLIENT_METRICS, metrics, ("match", SET, "client_id=("))
    ask("an unknown metrics name", CLIENT_METRICS, metrics, ("none.such", SET, "5"))
    ask("no metrics", CLIENT_METRICS, "", ("interval.ms", SET, "5000"))
    for version in (0, 1):
        types = [] if version == 0 else [CLIENT_METRICS, GROUP]
        talk.ask(
            f"the resources v{version}", ListConfigResourcesRequest(resource_types=types), version
        )
    ask("no interval", CLIENT_METRICS, metrics, ("interval.ms", DELETE, None))
    ask(
        "no more of them",
        CLIENT_METRICS,
        metrics,
        ("metrics", DELETE, None),
        ("match", DELETE, None),
    )
    ask("no session", GROUP, group, ("consumer.session.timeout.ms", DELETE, None))
    _await_value(talk, group, "consumer.session.timeout.ms", "45000", GROUP)
    talk.ask("the metrics at last", _describe(CLIENT_METRICS, metrics))
    talk.ask("a group replaced", _alter(GROUP, group, {"consumer.session.timeout.ms": "50000"}))
    talk.ask("a group cleared", _alter(GROUP, group, {}))


def alter_logger_configs(talk: Conversation) -> None:
    def ask(name: str, broker: str, *changes: tuple[str, int, str | None]) -> None:
        talk.ask(name, _change(BROKER_LOGGER, broker, changes))

    ask("an unknown logger", "1", ("none.such.logger", SET, "DEBUG"))
    ask("the root logger", "1", ("root", SET, "ERROR"))
    ask("a bad level", "1", ("root", SET, "LOUD"))
    ask("append", "1", ("root", APPEND, "INFO"))
    ask("delete the root logger", "1", ("root", DELETE, None))
    ask("another broker", "99", ("root", SET, "INFO"))
    ask("no broker", "", ("root", SET, "INFO"))
    ask("no number", "one", ("root", SET, "INFO"))
    ask("nothing to change", "1")
    talk.ask("the root logger then", _describe(BROKER_LOGGER, "1", ["root"]))


def list_config_resources(talk: Conversation) -> None:
    talk.topic("a")

    def request(*types: int) -> ListConfigResourcesRequest:
        return ListConfigResourcesRequest(resource_types=list(types))

    talk.ask("v0", request(), 0)
    talk.ask("all", request())
    for kind in (UNKNOWN, 1, TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, 64, -1):
        talk.ask(f"type {kind}", request(kind))
    talk.ask("topics and brokers", request(TOPIC, BROKER))
    talk.ask("topics twice", request(TOPIC, TOPIC))
    talk.ask("a known and an unknown type", request(TOPIC, 64))


def _describe(
    kind: int,
    name: str,
    keys: list[str] | None = None,
    *,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )


def _alter(kind: int, name: str, configs: dict[str, str | None]) -> AlterConfigsRequest:
    rows = [alter.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    return AlterConfigsRequest(
        resources=[alter.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)]
    )


def _change(
    kind: int,
    name: str,
    changes: Iterable[tuple[str, int, str | None]],
    *,
    validate_only: bool = False,
) -> IncrementalAlterConfigsRequest:
    rows = [
        incremental.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    return IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
        ],
        validate_only=validate_only,
    )


def _await_value(
    talk: Conversation, name: str, key: str, value: str | None, kind: int = TOPIC
) -> None:
    """Wait until a change, which is answered before every broker knows it, can be seen."""

    def is_so(answer: DescribeConfigsResponse) -> bool:
        return any(c.name == key and c.value == value for c in answer.results[0].configs)

    talk.until(_describe(kind, name, [key]), DescribeConfigsResponse, is_so)


SCRIPTS = (
    describe_topic_configs,
    describe_other_configs,
    alter_topic_configs,
    alter_topic_configs_incrementally,
    alter_broker_configs,
    alter_group_and_metrics_configs,
    alter_logger_configs,
    list_config_resources,
)
