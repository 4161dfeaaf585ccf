"""DescribeCluster, versions 0 to 2, and UnregisterBroker, version 0.

KIP-700, KIP-919 (endpoint types: this listener is a broker's, controllers have none of their own),
KIP-1073 (fenced brokers, on request). Brokers are named by their address on the listener that the
request came through; those without one are left out. The controller is the leader of the metadata
log. Without an authorizer a client may do everything.

UnregisterBroker is refused while the broker is up or keeps replicas: Kafka would take a running
broker out of the metadata, and only its next start brings it back.
"""

from typing import Final

from headrace.broker.broker import Broker
from headrace.broker.handlers.operations import CLUSTER_OPERATIONS
from headrace.broker.live_brokers import broker_endpoints, controller_id
from headrace.broker.proposals import propose_each
from headrace.broker.request import Handler, Request
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.metadata.ddl import UnregisterBroker
from headrace.wire import ApiKey
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from headrace.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from headrace.wire.messages.unregister_broker_response import UnregisterBrokerResponse

BROKERS: Final = 1
CONTROLLERS: Final = 2
UNREGISTER_TIMEOUT_MS: Final = 30_000
"""The request has none of its own; this is what Kafka's clients wait for an answer."""


def handle_describe_cluster(broker: Broker, request: Request) -> DescribeClusterResponse:
    body: DescribeClusterRequest = request.body
    if body.endpoint_type != BROKERS:
        is_known = body.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE
                if is_known
                else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            ),
            error_message=(
                "this is a broker's listener: ask it for brokers (endpoint type 1)"
                if is_known
                else f"endpoint type {body.endpoint_type}: must be 1 (brokers) or 2 (controllers)"
            ),
        )
    response = DescribeClusterResponse(
        cluster_id=broker.image.state.cluster_id,
        controller_id=controller_id(broker),
        brokers=[
            DescribeClusterBroker(
                broker_id=each.broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=each.rack,
                is_fenced=each.is_fenced,
            )
            for each, endpoint in broker_endpoints(broker.image, request.peer.listener)
            if body.include_fenced_brokers or not each.is_fenced
        ],
    )
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


async def handle_unregister_broker(broker: Broker, request: Request) -> UnregisterBrokerResponse:
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


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.DESCRIBE_CLUSTER: handle_describe_cluster,
    ApiKey.UNREGISTER_BROKER: handle_unregister_broker,
}
