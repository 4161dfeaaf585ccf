"""PushTelemetry: API key 72, version 0.

KIP-714: metrics of a client.

Left out: what is pushed is checked and counted, not read.
The work is in `server.telemetry`.
"""

from headrace import config
from headrace.errors import KafkaError
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.server.telemetry import client_of
from headrace.wire.messages.push_telemetry_request import PushTelemetryRequest
from headrace.wire.messages.push_telemetry_response import PushTelemetryResponse


async def handle(broker: Broker, request: Request) -> PushTelemetryResponse:
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
