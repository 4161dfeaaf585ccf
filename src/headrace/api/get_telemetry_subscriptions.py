"""GetTelemetrySubscriptions: API key 71, version 0.

KIP-714: which metrics a client is to push, and how often. Subscriptions are CLIENT_METRICS configs,
matched by client id, software, address and instance id; the intervals are enforced as in Kafka.
Kafka names this API in ApiVersions only if a plugin takes the metrics; it serves it all the same.

The work is in `server.telemetry`.
"""

from headrace import config
from headrace.errors import KafkaError
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.server.telemetry import ACCEPTED_COMPRESSION, client_of
from headrace.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from headrace.wire.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)


def handle(broker: Broker, request: Request) -> GetTelemetrySubscriptionsResponse:
    body: GetTelemetrySubscriptionsRequest = request.body
    try:
        subscription = broker.telemetry.subscribe(body.client_instance_id, client_of(request))
    except KafkaError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=subscription.instance_id,
        subscription_id=subscription.subscription_id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION),
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=broker.settings[config.TELEMETRY_MAX_BYTES],
        delta_temporality=True,
        requested_metrics=list(subscription.metrics),
    )
