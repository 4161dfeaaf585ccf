"""Metrics that clients push: what a broker remembers of a client shows in its next answer."""

from typing import Final

from headrace.errors import ErrorCode
from headrace.wire import ApiKey
from headrace.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from headrace.wire.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)
from headrace.wire.messages.push_telemetry_request import PushTelemetryRequest
from tests.differential.conversation import Conversation
from tests.differential.pairs.pair import TIMES, Pair


def order_of_telemetry(talk: Conversation) -> None:
    """A client that has asked may not ask again so soon; one that has ended may not push."""
    for turn in range(TIMES):
        client = b"\x66" * 15 + bytes([turn])
        ask = GetTelemetrySubscriptionsRequest(client_instance_id=client)
        got, refused = talk.ask_at_once(f"subscriptions {turn}", [ask, ask])
        assert isinstance(got, GetTelemetrySubscriptionsResponse)
        assert got.error_code == 0
        assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        last = PushTelemetryRequest(
            client_instance_id=client, subscription_id=got.subscription_id, terminating=True
        )
        pushed, again = talk.ask_at_once(f"pushes {turn}", [last, last])
        assert pushed.error_code == 0
        assert again.error_code == ErrorCode.INVALID_REQUEST


PAIRS: Final = (
    Pair(order_of_telemetry, (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)),
)
