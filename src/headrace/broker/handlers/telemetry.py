"""GetTelemetrySubscriptions and PushTelemetry, version 0 each.

KIP-714. What clients are asked for are CLIENT_METRICS configs, matched by client id, software,
address and instance id; how often they may ask and push is enforced as Kafka does it. See
`headrace.broker.telemetry` for the state. Kafka names these two in ApiVersions only if somebody
takes the metrics; it serves them all the same.

Left out: what is pushed is checked and counted, not read.
"""

from typing import Final

from headrace import config
from headrace.broker.broker import Broker
from headrace.broker.request import Handler, Request
from headrace.broker.telemetry import ACCEPTED_COMPRESSION, TelemetryClient
from headrace.errors import KafkaError
from headrace.wire import ApiKey
from headrace.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from headrace.wire.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)
from headrace.wire.messages.push_telemetry_request import PushTelemetryRequest
from headrace.wire.messages.push_telemetry_response import PushTelemetryResponse

UNKNOWN_SOFTWARE: Final = "unknown"
"""What a client is taken for that did not say what it is."""


def handle_get_telemetry_subscriptions(
    broker: Broker, request: Request
) -> GetTelemetrySubscriptionsResponse:
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


async def handle_push_telemetry(broker: Broker, request: Request) -> PushTelemetryResponse:
    body: PushTelemetryRequest = request.body
    telemetry = broker.telemetry
    telemetry.max_bytes = broker.settings[config.TELEMETRY_MAX_BYTES]
    try:
        await telemetry.push(
            (body.client_instance_id, body.subscription_id),
            client_of(request),
            body.metrics,
            body.compression_type,
            is_terminating=body.terminating,
        )
    except KafkaError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()


def client_of(request: Request) -> TelemetryClient:
    """Say who sent a request, in the words that subscriptions match."""
    name, _, version = request.peer.client_software.rpartition(" ")
    address, _, port = request.peer.address.rpartition(":")
    return TelemetryClient(
        client_id=request.client_id or "",
        software_name=name or UNKNOWN_SOFTWARE,
        software_version=version or UNKNOWN_SOFTWARE,
        source_address=address,
        source_port=port,
    )


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: handle_get_telemetry_subscriptions,
    ApiKey.PUSH_TELEMETRY: handle_push_telemetry,
}
