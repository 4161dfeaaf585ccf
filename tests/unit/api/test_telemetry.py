"""GetTelemetrySubscriptions and PushTelemetry: what goes over the wire. The rules have tests of
their own, beside those of `broker.telemetry`."""

from typing import Any

from headrace.errors import ErrorCode
from headrace.metadata.ddl import SetConfigs
from headrace.metadata.state import ResourceType
from headrace.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from headrace.wire.messages.push_telemetry_request import PushTelemetryRequest
from tests.unit.harness import Harness

ZSTD, LZ4, GZIP, SNAPPY = 4, 3, 1, 2


def configure(harness: Harness, **values: str) -> None:
    named: dict[str, str | None] = {name.replace("_", "."): value for name, value in values.items()}
    change = SetConfigs(ResourceType.CLIENT_METRICS, "all", named)
    harness.run(harness.broker.quorum.propose(change))


def subscribe(harness: Harness, instance_id: bytes = bytes(16)) -> Any:
    return harness.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


def push(harness: Harness, subscription: Any, metrics: bytes = b"otlp", **fields: Any) -> int:
    request = PushTelemetryRequest(
        client_instance_id=subscription.client_instance_id,
        subscription_id=subscription.subscription_id,
        metrics=metrics,
        **fields,
    )
    code: int = harness.ask(request, 0).error_code
    return code


def test_a_client_learns_what_to_push(harness: Harness) -> None:
    configure(harness, metrics="org.apache.kafka.producer.", interval_ms="60000")
    answer = subscribe(harness)
    assert answer.error_code == 0
    assert answer.client_instance_id != bytes(16)
    assert answer.accepted_compression_types == [ZSTD, LZ4, GZIP, SNAPPY]
    assert answer.push_interval_ms == 60_000
    assert answer.telemetry_max_bytes == 1024 * 1024
    assert answer.delta_temporality
    assert answer.requested_metrics == ["org.apache.kafka.producer."]


def test_software_that_was_named_is_matched(harness: Harness) -> None:
    match = "client_software_name=apache-kafka-java,client_software_version=4.3.1,client_id=test"
    configure(harness, metrics="m", match=match)
    assert subscribe(harness).requested_metrics == []
    harness.peer.client_software = "apache-kafka-java 4.3.1"
    assert subscribe(harness).requested_metrics == ["m"]


def test_software_that_was_not_named_is_unknown(harness: Harness) -> None:
    configure(harness, metrics="m", match="client_software_name=unknown")
    assert subscribe(harness).requested_metrics == ["m"]


def test_a_client_that_asks_too_often_gets_nothing_but_the_error(harness: Harness) -> None:
    instance_id = subscribe(harness).client_instance_id
    answer = subscribe(harness, instance_id)
    assert answer.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answer.client_instance_id == bytes(16)
    assert answer.telemetry_max_bytes == 0


def test_what_is_pushed_is_counted(harness: Harness) -> None:
    assert push(harness, subscribe(harness), b"12345") == 0
    assert harness.broker.telemetry.by_client_id["test"].pushed_bytes == 5


def test_time_lets_a_client_push_again(harness: Harness) -> None:
    subscription = subscribe(harness)
    assert push(harness, subscription) == 0
    assert push(harness, subscription) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    harness.clock.advance(300_000)
    assert push(harness, subscription) == 0


def test_a_client_that_leaves_pushes_once_more(harness: Harness) -> None:
    subscription = subscribe(harness)
    assert push(harness, subscription) == 0
    assert push(harness, subscription, terminating=True) == 0
    assert push(harness, subscription) == ErrorCode.INVALID_REQUEST
