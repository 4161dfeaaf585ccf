"""UnregisterBroker: API key 64, version 0.

KIP-631. Refused while the broker is up or keeps replicas. Kafka would remove a running broker from
the metadata, and only its next start would bring it back. A broker is a node here: it leaves the
cluster with its vote on the metadata log, and another one may join under its id.

The work is in `cluster.quorum_members`.
"""

from typing import Final

from headrace.errors import KafkaError
from headrace.ids import BrokerId
from headrace.server.broker import Broker
from headrace.server.change_texts import ChangeText
from headrace.server.proposals import told
from headrace.server.request import Request
from headrace.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from headrace.wire.messages.unregister_broker_response import UnregisterBrokerResponse

UNREGISTER_TIMEOUT_MS: Final = 20_000
"""The request has no timeout; clients wait 30 seconds."""


async def handle(broker: Broker, request: Request) -> UnregisterBrokerResponse:
    body: UnregisterBrokerRequest = request.body
    try:
        with told(broker, request, ChangeText("UnregisterBroker", "node", str(body.broker_id))):
            await broker.members.unregister(BrokerId(body.broker_id), UNREGISTER_TIMEOUT_MS)
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse(error_message=None)
