"""IncrementalAlterConfigs: API key 44, versions 0 and 1.

KIP-339 (set, delete, append, subtract), KIP-412 (loggers), KIP-714 (client metrics), KIP-848
(groups). A resource that is refused does not keep the others from being changed. A request may name
thousands of resources: other clients are served meanwhile.

Different from Kafka: the settings that only Kafka uses are checked and kept.

Left out: policies (alter.config.policy.class.name).
The work is in `config_changes`.
"""

from headrace.api.config_changes import (
    Alteration,
    change_loggers,
    changes_of,
    guarded,
    plan_change,
    require_plain,
    require_type,
)
from headrace.api.config_requests import AskedResource, alter_resources, read_resources
from headrace.errors import ErrorCode
from headrace.loop.slices import finish
from headrace.metadata.ddl import SetConfigs, SetConfigsIf
from headrace.metadata.state import ResourceType
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages import (
    incremental_alter_configs_response,
)
from headrace.wire.messages.incremental_alter_configs_request import (
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)


async def handle(broker: Broker, request: Request) -> IncrementalAlterConfigsResponse:
    body: IncrementalAlterConfigsRequest = request.body
    asked = await finish(
        read_resources(
            body.resources,
            lambda config: Alteration(config.name, config.config_operation, config.value),
        )
    )

    def plan(asked: AskedResource) -> SetConfigs | SetConfigsIf | None:
        resource_type = require_type(asked.resource_type)
        require_plain(asked.alterations)
        if resource_type is ResourceType.BROKER_LOGGER:
            change_loggers(
                broker, asked.name, asked.alterations, is_validated_only=body.validate_only
            )
            return None
        changes = changes_of(broker, resource_type, asked.name, asked.alterations)
        change = plan_change(broker, resource_type, asked.name, changes)
        return guarded(broker, change, asked.alterations)

    answers = await alter_resources(
        broker, asked, plan, is_validated_only=body.validate_only, by=request
    )
    return IncrementalAlterConfigsResponse(
        responses=[
            incremental_alter_configs_response.AlterConfigsResourceResponse(
                error_code=error.code if error else ErrorCode.NONE,
                error_message=error.message if error else None,
                resource_type=each.resource_type,
                resource_name=each.name,
            )
            for each, error in zip(asked, answers, strict=True)
        ]
    )
