"""DescribeCluster: API key 60, versions 0 to 2.

KIP-700, KIP-919 (endpoint types, from 1: this listener is a broker's, controllers have none of
their own), KIP-1073 (fenced brokers on request, from 2). Brokers are named by their address on the
listener that the request came through; brokers without one are left out. The controller is the
leader of the metadata log. Without an authorizer a client may do everything.
"""

from typing import Final

from headrace.errors import ErrorCode
from headrace.server.broker import Broker
from headrace.server.operations import CLUSTER_OPERATIONS
from headrace.server.reach import broker_endpoints, controller_id
from headrace.server.request import Request
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(broker: Broker, request: Request) -> DescribeClusterResponse:
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
