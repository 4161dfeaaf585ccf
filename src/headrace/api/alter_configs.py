"""AlterConfigs: API key 33, versions 0 to 2.

KIP-133. Leaves a resource with the configs that the request names and nothing else. A resource that
is refused does not keep the others from being changed. A request may name thousands of resources:
other clients are served meanwhile.

Different from Kafka: the settings that only Kafka uses are checked and kept. A resource that is
named twice is refused; Kafka does not respond at all.

Left out: policies (alter.config.policy.class.name).
The work is in `config_changes`.
"""

from headrace.api.config_changes import (
    Alteration,
    Operation,
    guarded_whole,
    plan_change,
    replacing,
    require_plain,
    require_type,
)
from headrace.api.config_requests import AskedResource, alter_resources, read_resources
from headrace.errors import ErrorCode, KafkaError
from headrace.loop.slices import finish
from headrace.metadata.ddl import SetConfigs, SetConfigsIf
from headrace.metadata.state import ResourceType
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages import (
    alter_configs_response,
)
from headrace.wire.messages.alter_configs_request import AlterConfigsRequest
from headrace.wire.messages.alter_configs_response import AlterConfigsResponse


async def handle(broker: Broker, request: Request) -> AlterConfigsResponse:
    body: AlterConfigsRequest = request.body
    asked = await finish(
        read_resources(
            body.resources, lambda config: Alteration(config.name, Operation.SET, config.value)
        )
    )

    def plan(asked: AskedResource) -> SetConfigs | SetConfigsIf | None:
        resource_type = require_type(asked.resource_type)
        if resource_type is ResourceType.BROKER_LOGGER:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "levels of loggers are changed by IncrementalAlterConfigs",
            )
        require_plain(asked.alterations)
        wanted = {name: value for name, _, value in asked.alterations}
        changes = replacing(broker, (resource_type, asked.name), wanted)
        return guarded_whole(broker, plan_change(broker, resource_type, asked.name, changes))

    answers = await alter_resources(
        broker, asked, plan, is_validated_only=body.validate_only, by=request
    )
    return AlterConfigsResponse(
        responses=[
            alter_configs_response.AlterConfigsResourceResponse(
                error_code=error.code if error else ErrorCode.NONE,
                error_message=error.message if error else None,
                resource_type=each.resource_type,
                resource_name=each.name,
            )
            for each, error in zip(asked, answers, strict=True)
        ]
    )
