"""Our settings beside those of Apache Kafka: names, types, defaults, bounds, synonyms, checks."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from headrace.config import (
    InvalidSetting,
    Settings,
    effective_topic_configs,
    load_settings,
    security,
)
from headrace.config.broker import DYNAMIC_ONLY
from headrace.config.client_metrics import CLIENT_METRICS_CONFIGS, check_client_metrics_configs
from headrace.config.group_configs import BROKER_RANGES, GROUP_CONFIGS, check_group_configs
from headrace.config.properties import read_properties
from headrace.config.registry import SETTINGS, broker_settings
from headrace.config.setting import AnySetting
from headrace.config.topic import SYNONYMS, TOPIC_CONFIGS
from headrace.config.topic_checks import check_topic_configs
from tools.configs import ACCEPTED, accepted_module
from tools.jvm.oracles import ConfigOracle, OracleError

pytestmark = pytest.mark.jvm

SOCKET_BUFFERS = {"socket.send.buffer.bytes", "socket.receive.buffer.bytes"}
"""Left to the kernel here, as every other client and server of today does."""
OWN_DEFAULTS = {"node.id", "listeners", "log.dir", *SOCKET_BUFFERS}
"""A node starts without a file, for its own machine only, with its data where it is started."""
FIXED_HERE = {"listeners", "listener.security.protocol.map", *security.ACTING}
"""What Kafka changes while it runs, and a node reads when it starts."""
OWN_PREFIXES = ("headrace.", "http.", "errors.deadletterqueue.", "rlmm.config.")
"""What Kafka 4.3.1 does not have, the third as KIP-1191 names it, or does not define."""
OF_PLUGINS = {"allow.everyone.if.no.acl.found", "super.users"}
"""What Kafka's authorizer reads and no class of Kafka's defines."""
KINDS: dict[str, Mapping[str, AnySetting]] = {
    "topic": {
        name: each for name, each in TOPIC_CONFIGS.items() if not name.startswith(OWN_PREFIXES)
    },
    "group": {
        name: each for name, each in GROUP_CONFIGS.items() if not name.startswith(OWN_PREFIXES)
    },
    "client_metrics": CLIENT_METRICS_CONFIGS,
    "broker": {
        name: each
        for name, each in broker_settings().items()
        if name not in DYNAMIC_ONLY | OF_PLUGINS and not name.startswith(OWN_PREFIXES)
    },
    "dynamic": {name: SETTINGS[name] for name in DYNAMIC_ONLY},
}
CHECKED_TOGETHER = {
    "controller.quorum.voters",
    "interval.ms",
    "match",
    "max.connections.per.ip.overrides",
    "metrics",
    "offsets.topic.compression.codec",
    "replica.selector.class",
    "share.coordinator.state.topic.compression.codec",
}
"""What Kafka checks with a resource's other configs; the tests of those have it."""
RESERVED = {("node.id", "2147483647"), ("broker.id", "2147483647")}
"""The id that operators' commands have at a node port."""
TEXTS = [
    *("", " ", "0", "-1", "-2", "-3", "1", "2", "3", "4", "5", "9", "10", "17", "18", "22", "23"),
    *("26", "99", "100", "499", "501", "999", "1000", "1001", "1023", "1024", "1999", "2000"),
    *("4001", "9999", "10000", "10001", "14999", "29999", "30000", "30001", "32767", "32768"),
    *(
        "60001",
        "524287",
        "524288",
        "1048575",
        "1048576",
        "3600000",
        "3600001",
        "8388607",
        "8388608",
    ),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "-131072", "-131073"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("-9223372036854775809", "+5", " 7 ", "1_0", "0x5", "5.0", "0.5", "1.0", "1.00001", "1e-3"),
    *("-0.5", "true", "TRUE", " False", "yes", "none", "compact", "delete,compact", "x,,y"),
    *("delete,delete", "*", "1:2", "1:2,3:4", "a:b", "latest", "earliest", "by_duration:PT1H"),
    *("by_duration:P1DT2H3M4.5S", "by_duration:", "by_duration:P", "by_duration:PT", "LATEST"),
    *("by_duration:-PT1H", "by_duration:pt5s", "read_committed", "READ_COMMITTED", "gzip", "LZ4"),
    *("CreateTime", "createtime", "upgrade", "RS256", "rs256", "required", "REQUIRED", "SSL"),
    *("classic,share", "broker,controller", "broker,broker", "a,b", "a,a"),
]


@pytest.fixture(scope="module")
def oracle() -> Iterator[ConfigOracle]:
    with ConfigOracle() as running:
        yield running


@pytest.mark.parametrize("kind", KINDS)
def test_names_types_defaults_and_scopes_are_kafkas(oracle: ConfigOracle, kind: str) -> None:
    theirs = {row["name"]: row for row in oracle.define(kind)}
    assert theirs.keys() == KINDS[kind].keys()
    for name, row in theirs.items():
        each = KINDS[kind][name]
        assert each.type.name == row["type"], name
        assert each.is_internal == row["internal"], name
        if name not in OWN_DEFAULTS:
            assert each.default_text == row["default"], name
        if kind in ("broker", "dynamic") and name not in FIXED_HERE:
            assert each.scope.value == (row["scope"] or "read-only"), name


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_allowed_and_how_it_is_read_are_kafkas(oracle: ConfigOracle, kind: str) -> None:
    differences = []
    for name, each in KINDS[kind].items():
        if each.type.name in ("CLASS", "PASSWORD") or name in CHECKED_TOGETHER:
            continue  # which classes there are is a matter of a JVM, and a secret is not shown
        for text in TEXTS:
            ours, theirs = _ours(each, text), _theirs(oracle, kind, name, text)
            is_lenient = not each.has_effect and theirs is None
            if ours != theirs and not is_lenient and (name, text) not in RESERVED:
                differences.append((name, text, ours, theirs))
    assert differences == []


def _ours(setting: AnySetting, text: str) -> str | None:
    try:
        return setting.canonical(text)
    except InvalidSetting:
        return None


def _theirs(oracle: ConfigOracle, kind: str, name: str, text: str) -> str | None:
    try:
        return oracle.parse(kind, name, text)
    except OracleError:
        return None


def test_synonyms_are_kafkas(oracle: ConfigOracle) -> None:
    for row in oracle.define("topic"):
        ours = [
            [each.name, each.unit if each.unit > 1 else 0] for each in SYNONYMS.get(row["name"], ())
        ]
        assert ours == row["synonyms"], row["name"]
    for row in oracle.define("group"):
        bounds = BROKER_RANGES.get(row["name"])
        assert ([[bounds.synonym.name, 0]] if bounds else []) == row["synonyms"], row["name"]


def test_what_has_no_effect_here_is_listed_as_kafka_has_it(oracle: ConfigOracle) -> None:
    assert accepted_module(oracle.define("broker")) == ACCEPTED.read_text()


TIERED = {"remote.storage.enable": "true"}
NOT_COPIED = {**TIERED, "remote.log.copy.disable": "true"}


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"no.such": "5"},
        {"retention.ms": "soon"},
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
        {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
        {"segment.jitter.ms": "700000000000", "segment.ms": "5"},
        {"local.retention.ms": "700000000000"},
        TIERED,
        {**TIERED, "cleanup.policy": "compact"},
        {**TIERED, "cleanup.policy": "compact,delete"},
        {**TIERED, "cleanup.policy": ""},
        {**TIERED, "local.retention.ms": "-1"},
        {**TIERED, "local.retention.ms": "604800001"},
        {**TIERED, "local.retention.ms": "604800000"},
        {**TIERED, "local.retention.ms": "0"},
        {**TIERED, "local.retention.ms": "5", "retention.ms": "-1"},
        {**TIERED, "local.retention.ms": "-1", "retention.ms": "-1"},
        {**TIERED, "local.retention.bytes": "-1"},
        {**TIERED, "local.retention.bytes": "-1", "retention.bytes": "100"},
        {**TIERED, "local.retention.bytes": "101", "retention.bytes": "100"},
        {**TIERED, "local.retention.bytes": "100", "retention.bytes": "100"},
        NOT_COPIED,
        {**NOT_COPIED, "local.retention.ms": "5"},
        {**NOT_COPIED, "local.retention.ms": "604800000", "local.retention.bytes": "-1"},
        {**NOT_COPIED, "local.retention.bytes": "5"},
        {"remote.log.copy.disable": "true", "local.retention.bytes": "5"},
        {"remote.log.delete.on.disable": "true"},
    ],
    ids=str,
)
def test_a_topics_configs_are_refused_together_as_kafka_refuses_them(
    oracle: ConfigOracle, own: dict[str, str]
) -> None:
    effective = effective_topic_configs(own, {}, {}, Settings())
    ours = _is_refused(lambda: check_topic_configs(own, effective, has_tier=True))
    assert ours == _refuses(oracle, "tiered_topic", own)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"no.such": "1"},
        *({"consumer.session.timeout.ms": text} for text in ("1", "44999", "45000", "60001", "")),
        *({"consumer.heartbeat.interval.ms": text} for text in ("4999", "5000", "15000", "15001")),
        {"consumer.heartbeat.interval.ms": "15000", "consumer.session.timeout.ms": "45000"},
        *({"share.record.lock.duration.ms": text} for text in ("14999", "15000", "60001")),
        *({"share.delivery.count.limit": text} for text in ("1", "2", "10", "11")),
        *({"share.partition.max.record.locks": text} for text in ("99", "100", "4001")),
        *({"streams.num.standby.replicas": text} for text in ("0", "2", "3")),
        *({"streams.session.timeout.ms": text} for text in ("1", "50000", "70000")),
        *({"share.heartbeat.interval.ms": text} for text in ("1", "5000", "70000")),
        *({"share.assignment.interval.ms": text} for text in ("0", "15001")),
        *({"streams.assignment.interval.ms": text} for text in ("0", "15001")),
        *({"streams.initial.rebalance.delay.ms": text} for text in ("0", "2147483647")),
    ],
    ids=str,
)
def test_a_groups_configs_are_refused_as_kafka_refuses_them(
    oracle: ConfigOracle, values: dict[str, str]
) -> None:
    ours = _is_refused(lambda: check_group_configs(values, Settings()))
    assert ours == _refuses(oracle, "group", values)


@pytest.mark.parametrize(
    "values",
    [
        {"interval.ms": "99"},
        {"interval.ms": "3600000"},
        {"metrics": "a,b"},
        {"metrics": "*"},
        {"metrics": ""},
        {"metrics": "a,a"},
        *({"match": text} for text in ("client_id=a", "foo=a", "client_id=(", "client_id", "")),
        *({"match": text} for text in ("client_id=a=b", "client_id=", "=a", "client_id = a")),
        {"match": "client_id=a,client_source_port=1.*"},
        {"match": "client_id=a,client_id=b"},
        {"match": "client_id=a,"},
        {"no.such": "1"},
    ],
    ids=str,
)
def test_a_subscriptions_configs_are_refused_as_kafka_refuses_them(
    oracle: ConfigOracle, values: dict[str, str]
) -> None:
    ours = _is_refused(lambda: check_client_metrics_configs(values))
    assert ours == _refuses(oracle, "client_metrics", values)


@pytest.mark.parametrize(
    "given",
    [
        *({"log.retention.ms": text} for text in ("0", "-1", "-5", "1")),
        *({"log.retention.hours": text} for text in ("0", "-1")),
        {"log.retention.minutes": "0"},
        {"log.retention.minutes": "0", "log.retention.ms": "5"},
        *({"log.roll.ms": text} for text in ("0", "-1", "1")),
        *({"log.roll.jitter.ms": text} for text in ("-1", "0")),
        *({"queued.max.request.bytes": text} for text in ("0", "-5", "100", "104857600")),
        {"log.cleaner.dedupe.buffer.size": "1048575"},
        {"log.cleaner.dedupe.buffer.size": "1048576"},
        {"log.cleaner.dedupe.buffer.size": "1048577"},
        {"max.connections.per.ip": "0"},
        {"max.connections.per.ip.overrides": "a:b"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
        {"offsets.topic.compression.codec": "5"},
        {"offsets.topic.compression.codec": "4"},
        {"broker.id": "3"},
        {"broker.id": "1"},
        {"group.coordinator.rebalance.protocols": "consumer"},
        {"group.min.session.timeout.ms": "2000000"},
        {"group.consumer.heartbeat.interval.ms": "2"},
        {"group.consumer.heartbeat.interval.ms": "50000"},
        {
            "group.consumer.heartbeat.interval.ms": "50000",
            "group.consumer.max.heartbeat.interval.ms": "50000",
        },
        {
            "group.share.heartbeat.interval.ms": "45000",
            "group.share.max.heartbeat.interval.ms": "50000",
        },
        {
            "group.share.heartbeat.interval.ms": "44999",
            "group.share.max.heartbeat.interval.ms": "50000",
        },
        {"share.coordinator.state.topic.compression.codec": "5"},
        {"group.consumer.session.timeout.ms": "70000"},
        {"group.consumer.max.session.timeout.ms": "10"},
        {"group.share.delivery.count.limit": "2", "group.share.min.delivery.count.limit": "3"},
        {"group.share.record.lock.duration.ms": "70000"},
        {"group.streams.num.standby.replicas": "3"},
        {"group.consumer.assignment.interval.ms": "20000"},
        {"group.share.max.size": "1001"},
        {"default.replication.factor": "0"},
        {"connections.max.idle.ms": "-1"},
    ],
    ids=str,
)
def test_a_nodes_settings_are_refused_together_as_kafka_refuses_them(
    oracle: ConfigOracle, given: dict[str, str]
) -> None:
    ours = _is_refused(lambda: load_settings(None, {}, {"node.id": "1", **given}))
    assert ours == _refuses(oracle, "broker", given)


@pytest.mark.parametrize(
    "text",
    [
        "a=1\nb:2\nc 3\n d\t=\t4 \ne\n\nf = = 5\n",
        "# a=1\n! b=2\n   # c=3\n\n \t\nd=4",
        "a=1,\\\n    2,\\\r\n#3\nb=4\\\\\nc=5\\",
        "a\\ b\\=c=\\t\\u0041\\q\\\\",
        "a=1\na=2",
        "=x\n:y",
        "a\\:b : c\\\n\\\n d",
        "key with\\\n  more = value",
        "a=\\\n\nb=2",
        "a=x\\\\\\\n  y",
        "a==b",
        "a: =b",
        "a=1\rb=2\r\nc=3\x0cd",
        "\x0c a=1",
        "a=\\u00e9",
    ],
)
def test_properties_are_read_as_java_reads_them(oracle: ConfigOracle, text: str) -> None:
    assert read_properties(text) == oracle.properties(text)


def _is_refused(check: Callable[[], object]) -> bool:
    try:
        check()
    except InvalidSetting:
        return True
    return False


def _refuses(oracle: ConfigOracle, kind: str, values: dict[str, str]) -> bool:
    try:
        oracle.check(kind, values)
    except OracleError:
        return True
    return False
