"""A script of config requests, each with the codes that Apache Kafka 4.3.1 answers.

A node with the id 1 and the topics `t` and `u` answers them one after the other. Unit tests play it
to ours; where there is Java it is played to Kafka too, and the answers are compared.
"""

from typing import Any, NamedTuple

from headrace.wire.messages import alter_configs_request as replacing
from headrace.wire.messages import incremental_alter_configs_request as incremental
from headrace.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from headrace.wire.schema import Message

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
UNKNOWN_SERVER_ERROR, NONE, UNKNOWN_TOPIC, INVALID_TOPIC = -1, 0, 3, 17
UNSUPPORTED_VERSION, INVALID_CONFIG, INVALID_REQUEST = 35, 40, 42


class Step(NamedTuple):
    """A request and the code of each resource in its answer."""

    body: Message
    version: int
    codes: tuple[int, ...]

    def __str__(self) -> str:
        return repr(self.body)


def describe(
    *resources: tuple[int, str, list[str] | None], code: int = NONE, version: int = 4
) -> Step:
    return Step(
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(*resource) for resource in resources],
            include_synonyms=True,
        ),
        version,
        (code,) * len(resources),
    )


Lines = list[tuple[str, int, str | None]]


def alter(*resources: tuple[int, str, Lines], codes: tuple[int, ...], dry: bool = False) -> Step:
    return Step(
        incremental.IncrementalAlterConfigsRequest(
            resources=[
                incremental.AlterConfigsResource(
                    resource_type, name, [incremental.AlterableConfig(*line) for line in lines]
                )
                for resource_type, name, lines in resources
            ],
            validate_only=dry,
        ),
        1,
        codes,
    )


def one(resource_type: int, name: str, *lines: tuple[str, int, str | None], code: int) -> Step:
    return alter((resource_type, name, list(lines)), codes=(code,))


def replace(resource_type: int, name: str, configs: dict[str, str | None], code: int) -> Step:
    return Step(
        replacing.AlterConfigsRequest(
            resources=[
                replacing.AlterConfigsResource(
                    resource_type,
                    name,
                    [replacing.AlterableConfig(*config) for config in configs.items()],
                )
            ]
        ),
        2,
        (code,),
    )


def listing(*types: int, code: int = NONE, version: int = 1) -> Step:
    return Step(ListConfigResourcesRequest(resource_types=list(types)), version, (code,))


RETENTION = ["retention.ms"]
POLICY = ["cleanup.policy"]
BACKOFF = ["log.cleaner.backoff.ms"]
STEPS = [
    describe((TOPIC, "t", None)),
    describe((TOPIC, "t", []), version=1),
    describe((TOPIC, "t", ["retention.ms", "no.such", "retention.ms"])),
    describe((TOPIC, "t", RETENTION), (TOPIC, "t", POLICY), (TOPIC, "u", POLICY)),
    describe((TOPIC, "none", None), code=UNKNOWN_TOPIC),
    describe((TOPIC, "../x", None), code=INVALID_TOPIC),
    describe((TOPIC, "", None), code=INVALID_TOPIC),
    describe((BROKER, "1", ["num.io.threads", "delegation.token.secret.key", "log.retention.ms"])),
    describe((BROKER, "1", ["log.retention.hours", "log.cleanup.policy", "broker.id"])),
    describe((BROKER, "2", None), code=INVALID_REQUEST),
    describe((BROKER, "x", None), code=INVALID_REQUEST),
    describe((LOGGER, "2", None), code=INVALID_REQUEST),
    describe((LOGGER, "", None), code=INVALID_REQUEST),
    describe((METRICS, "sub", None)),
    describe((METRICS, "", None), code=INVALID_REQUEST),
    describe((GROUP, "g", None)),
    describe((GROUP, "", None), code=INVALID_REQUEST),
    *(describe((each, "x", None), code=INVALID_REQUEST) for each in (0, 3, 99)),
    listing(),
    *(listing(each) for each in (TOPIC, BROKER, LOGGER, METRICS, GROUP)),
    listing(99, code=UNSUPPORTED_VERSION),
    listing(0, code=UNSUPPORTED_VERSION),
    listing(version=0),
    # topics
    one(TOPIC, "t", ("retention.ms", SET, "1000"), code=NONE),
    describe((TOPIC, "t", RETENTION)),
    alter((TOPIC, "t", [("retention.ms", SET, "9")]), codes=(NONE,), dry=True),
    describe((TOPIC, "t", RETENTION)),
    one(TOPIC, "t", ("retention.ms", SET, " 2000 "), code=NONE),
    describe((TOPIC, "t", RETENTION)),
    one(TOPIC, "t", ("no.such", SET, "1"), code=INVALID_CONFIG),
    one(TOPIC, "t", ("retention.ms", SET, "abc"), code=INVALID_CONFIG),
    one(TOPIC, "t", ("retention.ms", SET, "-2"), code=INVALID_CONFIG),
    one(TOPIC, "t", ("retention.ms", SET, None), code=INVALID_REQUEST),
    one(TOPIC, "t", ("retention.ms", APPEND, "5"), code=INVALID_CONFIG),
    one(TOPIC, "t", ("retention.ms", SUBTRACT, "5"), code=INVALID_CONFIG),
    one(TOPIC, "t", ("no.such", APPEND, "a"), code=INVALID_CONFIG),
    one(TOPIC, "t", ("segment.ms", DELETE, None), code=NONE),
    one(TOPIC, "t", ("no.such", DELETE, None), code=NONE),
    one(TOPIC, "t", ("cleanup.policy", APPEND, "compact"), code=NONE),
    describe((TOPIC, "t", POLICY)),
    one(TOPIC, "t", ("cleanup.policy", APPEND, "compact"), code=NONE),
    one(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"), code=NONE),
    describe((TOPIC, "t", POLICY)),
    one(TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact"), code=NONE),
    describe((TOPIC, "t", POLICY)),
    one(TOPIC, "t", ("cleanup.policy", APPEND, "shred"), code=INVALID_CONFIG),
    one(TOPIC, "t", ("cleanup.policy", APPEND, "delete,compact"), code=NONE),
    describe((TOPIC, "t", POLICY)),
    one(TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"), code=INVALID_REQUEST),
    one(TOPIC, "t", ("retention.ms", 9, "1"), code=UNKNOWN_SERVER_ERROR),
    one(TOPIC, "none", ("retention.ms", SET, "1"), code=UNKNOWN_TOPIC),
    one(TOPIC, "", ("retention.ms", SET, "1"), code=INVALID_REQUEST),
    one(TOPIC, "../x", ("retention.ms", SET, "1"), code=INVALID_TOPIC),
    alter(
        (TOPIC, "t", [("retention.ms", SET, "3000")]),
        (TOPIC, "t", [("segment.ms", SET, "3000")]),
        (TOPIC, "u", [("segment.ms", SET, "3000")]),
        codes=(INVALID_REQUEST, INVALID_REQUEST, NONE),
    ),
    alter(
        (TOPIC, "t", [("retention.ms", SET, "zz")]),
        (TOPIC, "u", [("segment.ms", SET, "4000")]),
        codes=(INVALID_CONFIG, NONE),
    ),
    describe((TOPIC, "u", ["segment.ms"])),
    alter(codes=()),
    one(TOPIC, "t", code=NONE),
    one(
        TOPIC,
        "t",
        ("min.compaction.lag.ms", SET, "10"),
        ("max.compaction.lag.ms", SET, "5"),
        code=INVALID_CONFIG,
    ),
    one(TOPIC, "t", ("remote.storage.enable", SET, "true"), code=INVALID_CONFIG),
    one(TOPIC, "t", ("internal.segment.bytes", SET, "1000"), code=NONE),
    describe((TOPIC, "t", ["internal.segment.bytes", "segment.bytes"])),
    one(TOPIC, "t", ("internal.segment.bytes", DELETE, None), code=NONE),
    # brokers
    one(BROKER, "1", ("log.cleaner.backoff.ms", SET, "100"), code=NONE),
    one(BROKER, "", ("log.cleaner.backoff.ms", SET, "200"), code=NONE),
    one(BROKER, "", ("log.retention.ms", SET, "5000"), code=NONE),
    one(BROKER, "", ("message.max.bytes", SET, "2000000"), code=NONE),
    describe((BROKER, "1", [*BACKOFF, "log.retention.ms", "log.retention.hours"])),
    describe((BROKER, "1", ["log.retention.minutes", "message.max.bytes"])),
    describe((BROKER, "", [*BACKOFF, "log.retention.ms", "message.max.bytes"])),
    describe((TOPIC, "u", ["retention.ms", "max.message.bytes", "segment.ms"])),
    one(BROKER, "1", ("log.cleaner.backoff.ms", DELETE, None), code=NONE),
    describe((BROKER, "1", BACKOFF)),
    one(BROKER, "1", ("num.partitions", SET, "3"), code=INVALID_REQUEST),
    one(BROKER, "", ("num.partitions", SET, "3"), code=INVALID_REQUEST),
    one(BROKER, "1", ("num.partitions", DELETE, None), code=NONE),
    one(BROKER, "1", ("log.retention.hours", SET, "3"), code=INVALID_REQUEST),
    one(BROKER, "1", ("log.cleaner.backoff.ms", SET, "-3"), code=INVALID_REQUEST),
    one(BROKER, "1", ("log.cleaner.backoff.ms", SET, None), code=INVALID_REQUEST),
    one(BROKER, "1", ("log.retention.ms", SET, "0"), code=INVALID_REQUEST),
    one(BROKER, "1", ("log.cleaner.dedupe.buffer.size", SET, "5"), code=INVALID_REQUEST),
    one(BROKER, "1", ("max.connections.per.ip", SET, "0"), code=INVALID_REQUEST),
    one(BROKER, "1", ("num.io.threads", SET, "9"), code=NONE),
    describe((BROKER, "1", ["num.io.threads"])),
    one(BROKER, "1", ("num.io.threads", SET, "abc"), code=INVALID_REQUEST),
    one(BROKER, "2", ("log.cleaner.backoff.ms", SET, "3"), code=INVALID_REQUEST),
    one(BROKER, "x", ("log.cleaner.backoff.ms", SET, "3"), code=INVALID_REQUEST),
    one(BROKER, "1", ("ssl.keystore.password", SET, "x"), code=INVALID_REQUEST),
    one(BROKER, "1", ("leader.replication.throttled.rate", SET, "1000"), code=NONE),
    describe((BROKER, "1", ["leader.replication.throttled.rate"])),
    one(BROKER, "1", ("no.such", SET, "3"), code=NONE),
    describe((BROKER, "1", ["no.such"])),
    one(BROKER, "1", ("no.such", APPEND, "2"), code=INVALID_CONFIG),
    one(BROKER, "", ("log.cleanup.policy", APPEND, "compact"), code=NONE),
    one(BROKER, "", ("log.cleaner.threads", APPEND, "2"), code=INVALID_CONFIG),
    describe((BROKER, "1", ["log.cleanup.policy"])),
    describe((TOPIC, "u", POLICY)),
    replace(BROKER, "1", {"log.cleaner.backoff.ms": "300"}, NONE),
    describe((BROKER, "1", [*BACKOFF, "leader.replication.throttled.rate", "num.io.threads"])),
    replace(BROKER, "2", {}, INVALID_REQUEST),
    # the older way
    replace(TOPIC, "u", {"retention.ms": "777", "segment.ms": "888"}, NONE),
    describe((TOPIC, "u", ["retention.ms", "segment.ms", "cleanup.policy"])),
    replace(TOPIC, "u", {"retention.ms": "778"}, NONE),
    describe((TOPIC, "u", ["retention.ms", "segment.ms"])),
    replace(TOPIC, "u", {}, NONE),
    describe((TOPIC, "u", RETENTION)),
    replace(TOPIC, "u", {"no.such": "1"}, INVALID_CONFIG),
    replace(TOPIC, "u", {"retention.ms": None}, INVALID_REQUEST),
    replace(TOPIC, "u", {"retention.ms": "abc"}, INVALID_CONFIG),
    replace(TOPIC, "none", {"retention.ms": "1"}, UNKNOWN_TOPIC),
    replace(LOGGER, "1", {"root": "DEBUG"}, INVALID_REQUEST),
    replace(METRICS, "sub", {"interval.ms": "1000"}, NONE),
    replace(GROUP, "g", {"consumer.session.timeout.ms": "50000"}, NONE),
    replace(99, "x", {}, INVALID_REQUEST),
    replace(0, "x", {}, INVALID_REQUEST),
    # loggers
    one(LOGGER, "1", ("root", SET, "LOUD"), code=INVALID_CONFIG),
    one(LOGGER, "1", ("no.such.logger", SET, "DEBUG"), code=INVALID_CONFIG),
    one(LOGGER, "1", ("root", DELETE, None), code=INVALID_REQUEST),
    one(LOGGER, "1", ("root", SET, None), code=INVALID_REQUEST),
    one(LOGGER, "1", ("root", APPEND, "DEBUG"), code=INVALID_REQUEST),
    one(LOGGER, "2", ("root", SET, "DEBUG"), code=INVALID_REQUEST),
    one(LOGGER, "", ("root", SET, "DEBUG"), code=INVALID_REQUEST),
    one(LOGGER, "x", ("root", SET, "DEBUG"), code=INVALID_REQUEST),
    # subscriptions to metrics
    one(METRICS, "sub", ("interval.ms", SET, "2000"), ("metrics", SET, "a,b"), code=NONE),
    describe((METRICS, "sub", None)),
    describe((METRICS, "sub", ["match"])),
    one(METRICS, "sub", ("interval.ms", SET, "10"), code=INVALID_REQUEST),
    one(METRICS, "sub", ("x", SET, "10"), code=INVALID_REQUEST),
    one(METRICS, "sub", ("match", SET, "foo=a"), code=INVALID_CONFIG),
    one(METRICS, "sub", ("metrics", APPEND, "c"), code=INVALID_CONFIG),
    one(METRICS, "sub", ("metrics", SET, "a,a"), code=NONE),
    describe((METRICS, "sub", None)),
    one(METRICS, "", ("interval.ms", SET, "1000"), code=INVALID_REQUEST),
    # groups
    describe((GROUP, "g", ["consumer.session.timeout.ms", "share.isolation.level"])),
    one(GROUP, "g", ("consumer.session.timeout.ms", SET, "5"), code=INVALID_CONFIG),
    one(GROUP, "g", ("x", SET, "5"), code=INVALID_CONFIG),
    one(GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), code=INVALID_REQUEST),
    one(GROUP, "g", ("share.isolation.level", SET, "read_committed"), code=NONE),
    one(GROUP, "g", ("consumer.heartbeat.interval.ms", APPEND, "1"), code=INVALID_CONFIG),
    describe((GROUP, "g", None)),
    one(99, "x", ("a", SET, "b"), code=INVALID_REQUEST),
    one(3, "x", ("a", SET, "b"), code=INVALID_REQUEST),
    listing(),
    *(listing(each) for each in (METRICS, GROUP)),
    listing(version=0),
]


def codes_of(answer: Any) -> tuple[int, ...]:
    if hasattr(answer, "config_resources"):
        return (answer.error_code,)
    rows = answer.results if hasattr(answer, "results") else answer.responses
    return tuple(row.error_code for row in rows)


def comparable(answer: Any) -> object:
    """What two brokers should have in common in an answer: all but prose and order."""
    if hasattr(answer, "config_resources"):
        return sorted((each.resource_type, each.resource_name) for each in answer.config_resources)
    if hasattr(answer, "responses"):
        return [(row.error_code, row.resource_type, row.resource_name) for row in answer.responses]
    return [
        (
            result.error_code,
            result.resource_type,
            result.resource_name,
            {row.name: comparable_row(row) for row in result.configs},
        )
        for result in answer.results
    ]


def comparable_row(row: Any) -> tuple[object, ...]:
    synonyms = [(each.name, each.value, each.source) for each in row.synonyms]
    return (
        *(row.value, row.read_only, row.config_source, row.is_sensitive, row.config_type),
        *(synonyms, row.documentation),
    )
