"""Metrics that clients push (KIP-714)."""

from headrace.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from headrace.wire.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)
from headrace.wire.messages.push_telemetry_request import PushTelemetryRequest
from tests.differential.conversation import Conversation


def subscriptions(talk: Conversation) -> None:
    first = talk.ask("a client without an id", GetTelemetrySubscriptionsRequest())
    assert isinstance(first, GetTelemetrySubscriptionsResponse)
    client = first.client_instance_id
    talk.ask("the same client at once", GetTelemetrySubscriptionsRequest(client_instance_id=client))

    def push(name: str, subscription: int, **fields: object) -> None:
        request = PushTelemetryRequest(client_instance_id=client, subscription_id=subscription)
        for field, value in fields.items():
            setattr(request, field, value)
        talk.ask(name, request)

    push("a push of nothing", first.subscription_id)
    push("a push at once again", first.subscription_id)
    push("an unknown subscription", first.subscription_id + 1)
    push("an unknown codec", first.subscription_id, compression_type=9)
    push("the last push", first.subscription_id, terminating=True)
    push("a push after the last", first.subscription_id, terminating=True)
    talk.ask("a push without an id", PushTelemetryRequest(subscription_id=first.subscription_id))
    talk.ask("a push of a stranger", PushTelemetryRequest(client_instance_id=b"\x55" * 16))


SCRIPTS = (subscriptions,)
