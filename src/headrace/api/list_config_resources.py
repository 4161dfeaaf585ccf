"""ListConfigResources: API key 74, versions 0 and 1.

KIP-714 (client metrics resources), KIP-1142 (every type of resource, from 1).
"""

from collections.abc import Coroutine
from typing import Any, Final

from headrace.errors import ErrorCode
from headrace.loop.slices import Slice, Slices, in_slices
from headrace.metadata.state import ResourceType
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from headrace.wire.messages.list_config_resources_response import (
    ConfigResource,
    ListConfigResourcesResponse,
)

FIRST_LIST_WITH_TYPES: Final = 1


def handle(
    broker: Broker, request: Request
) -> ListConfigResourcesResponse | Coroutine[Any, Any, ListConfigResourcesResponse]:
    return in_slices(list_config_resources(broker, request))


def list_config_resources(broker: Broker, request: Request) -> Slices[ListConfigResourcesResponse]:
    """List what can be described, by type and name."""
    body: ListConfigResourcesRequest = request.body
    if request.version < FIRST_LIST_WITH_TYPES:
        wanted = {int(ResourceType.CLIENT_METRICS)}
    else:
        wanted = set(body.resource_types) or set(map(int, ResourceType))
    if not wanted <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    response = ListConfigResourcesResponse(config_resources=[])
    current = Slice()
    for resource_type in ResourceType:
        if resource_type not in wanted:
            continue
        for name in _names_of(broker, resource_type):
            response.config_resources.append(
                ConfigResource(resource_name=name, resource_type=resource_type)
            )
            if current.spend():
                yield
    return response


def _names_of(broker: Broker, resource_type: ResourceType) -> list[str]:
    image = broker.image
    if resource_type is ResourceType.TOPIC:
        return sorted(each.name for each in image.topics())
    if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return sorted(str(each.broker_id) for each in image.brokers())
    return sorted(name for each, name in image.state.configs if each is resource_type)
