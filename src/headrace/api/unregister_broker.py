"""UnregisterBroker: API key 64, version 0.

KIP-631. Refused while the broker is up or keeps replicas. Kafka would remove a running broker from
the metadata, and only its next start would bring it back.
"""

from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.metadata.ddl import UnregisterBroker
from headrace.server.broker import Broker
from headrace.server.proposals import propose_each
from headrace.server.request import Request
from headrace.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from headrace.wire.messages.unregister_broker_response import UnregisterBrokerResponse

UNREGISTER_TIMEOUT_MS: Final = 30_000
"""The request has no timeout; this is the request timeout of Kafka's clients."""


async def handle(broker: Broker, request: Request) -> UnregisterBrokerResponse:
    body: UnregisterBrokerRequest = request.body
    registered = broker.image.broker(BrokerId(body.broker_id))
    error: KafkaError | None
    if registered is None:
        error = KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {body.broker_id} is not registered"
        )
    elif not registered.is_fenced:
        error = KafkaError(
            ErrorCode.INVALID_REQUEST, f"broker {body.broker_id} is up: stop it first"
        )
    else:
        change = UnregisterBroker(registered.broker_id)
        (error,) = await propose_each(broker, [change], UNREGISTER_TIMEOUT_MS)
    if error is None:
        return UnregisterBrokerResponse(error_message=None)
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
