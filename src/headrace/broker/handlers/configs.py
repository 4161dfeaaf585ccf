"""DescribeConfigs 1 to 4, AlterConfigs 0 to 2, IncrementalAlterConfigs 0 and 1, ListConfigResources
0 and 1.

KIP-133, KIP-226 (dynamic configs and synonyms), KIP-339 (incremental), KIP-412 (loggers), KIP-569
(types and documentation), KIP-714 (client metrics), KIP-848 and KIP-1142 (groups, listing). A
resource that is refused leaves the others of its request done. AlterConfigs leaves a resource with
what it names and nothing else. Rows come in the order of their names; Kafka has no order.

Different from Kafka: the settings that only Kafka has a use for are shown, checked and kept, and
their documentation says that they have no effect. A resource that is twice in an AlterConfigs is
refused, where Kafka does not answer at all.

Left out: policies (alter.config.policy.class.name).
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from headrace import config
from headrace.broker.broker import Broker
from headrace.broker.handlers.config_changes import (
    Alteration,
    Operation,
    change_loggers,
    changes_of,
    plan_change,
    replacing,
    require_plain,
    require_type,
)
from headrace.broker.handlers.config_rows import config_rows
from headrace.broker.proposals import propose_each
from headrace.broker.request import Handler, Request
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.ddl import SetConfigs
from headrace.metadata.state import ResourceType
from headrace.wire import ApiKey
from headrace.wire.messages import (
    alter_configs_response,
    incremental_alter_configs_response,
)
from headrace.wire.messages.alter_configs_request import AlterConfigsRequest
from headrace.wire.messages.alter_configs_response import AlterConfigsResponse
from headrace.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.messages.describe_configs_response import (
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from headrace.wire.messages.incremental_alter_configs_request import (
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from headrace.wire.messages.list_config_resources_response import (
    ConfigResource,
    ListConfigResourcesResponse,
)

FIRST_LIST_WITH_TYPES: Final = 1


def handle_describe_configs(broker: Broker, request: Request) -> DescribeConfigsResponse:
    body: DescribeConfigsRequest = request.body
    return DescribeConfigsResponse(
        results=[
            _describe(
                broker,
                resource,
                has_synonyms=body.include_synonyms,
                has_documentation=body.include_documentation,
            )
            for resource in body.resources
        ]
    )


def _describe(
    broker: Broker,
    resource: DescribeConfigsResource,
    *,
    has_synonyms: bool,
    has_documentation: bool,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        rows = config_rows(broker, resource.resource_type, resource.resource_name)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    if wanted := resource.configuration_keys:
        rows = [row for row in rows if row.name in wanted]
    for row in rows:
        if not has_synonyms:
            row.synonyms = []
        if not has_documentation:
            row.documentation = None
    result.configs = rows
    return result


async def handle_alter_configs(broker: Broker, request: Request) -> AlterConfigsResponse:
    body: AlterConfigsRequest = request.body
    asked = [
        _Asked(
            each.resource_type,
            each.resource_name,
            [Alteration(config.name, Operation.SET, config.value) for config in each.configs],
        )
        for each in body.resources
    ]

    def plan(asked: _Asked) -> SetConfigs | None:
        resource_type = require_type(asked.resource_type)
        if resource_type is ResourceType.BROKER_LOGGER:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "levels of loggers are changed by IncrementalAlterConfigs",
            )
        require_plain(asked.alterations)
        wanted = {name: value for name, _, value in asked.alterations}
        changes = replacing(broker, (resource_type, asked.name), wanted)
        return plan_change(broker, resource_type, asked.name, changes)

    answers = await _alter(broker, asked, plan, is_validated_only=body.validate_only)
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


async def handle_incremental_alter_configs(
    broker: Broker, request: Request
) -> IncrementalAlterConfigsResponse:
    body: IncrementalAlterConfigsRequest = request.body
    asked = [
        _Asked(
            each.resource_type,
            each.resource_name,
            [
                Alteration(config.name, config.config_operation, config.value)
                for config in each.configs
            ],
        )
        for each in body.resources
    ]

    def plan(asked: _Asked) -> SetConfigs | None:
        resource_type = require_type(asked.resource_type)
        require_plain(asked.alterations)
        if resource_type is ResourceType.BROKER_LOGGER:
            change_loggers(
                broker, asked.name, asked.alterations, is_validated_only=body.validate_only
            )
            return None
        changes = changes_of(broker, resource_type, asked.name, asked.alterations)
        return plan_change(broker, resource_type, asked.name, changes)

    answers = await _alter(broker, asked, plan, is_validated_only=body.validate_only)
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


class _Asked(NamedTuple):
    """A resource of a request, and what it should become."""

    resource_type: int
    name: str
    alterations: list[Alteration]


async def _alter(
    broker: Broker,
    asked: list[_Asked],
    plan: Callable[[_Asked], SetConfigs | None],
    *,
    is_validated_only: bool,
) -> list[KafkaError | None]:
    """Plan each resource and propose what may be; None is success."""
    times = Counter((each.resource_type, each.name) for each in asked)
    answers: list[KafkaError | None] = [None] * len(asked)
    changes: dict[int, SetConfigs] = {}
    for position, each in enumerate(asked):
        try:
            if times[each.resource_type, each.name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{each.name} is in the request more than once"
                )
            if change := plan(each):
                changes[position] = change
        except KafkaError as error:
            answers[position] = error
    if changes and not is_validated_only:
        timeout_ms = broker.settings[config.REQUEST_TIMEOUT_MS]
        outcomes = await propose_each(broker, list(changes.values()), timeout_ms)
        for position, outcome in zip(changes, outcomes, strict=True):
            answers[position] = outcome
    return answers


def handle_list_config_resources(broker: Broker, request: Request) -> ListConfigResourcesResponse:
    body: ListConfigResourcesRequest = request.body
    if request.version < FIRST_LIST_WITH_TYPES:
        wanted = {int(ResourceType.CLIENT_METRICS)}
    else:
        wanted = set(body.resource_types) or set(map(int, ResourceType))
    if not wanted <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = broker.image
    brokers = sorted(str(each.broker_id) for each in image.brokers())
    names: dict[ResourceType, list[str]] = {
        ResourceType.TOPIC: sorted(each.name for each in image.topics()),
        ResourceType.BROKER: brokers,
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.CLIENT_METRICS: _configured(broker, ResourceType.CLIENT_METRICS),
        ResourceType.GROUP: _configured(broker, ResourceType.GROUP),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=each)
            for each in ResourceType
            if each in wanted
            for name in names[each]
        ]
    )


def _configured(broker: Broker, resource_type: ResourceType) -> list[str]:
    return sorted(name for each, name in broker.image.state.configs if each is resource_type)


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.DESCRIBE_CONFIGS: handle_describe_configs,
    ApiKey.ALTER_CONFIGS: handle_alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: handle_incremental_alter_configs,
    ApiKey.LIST_CONFIG_RESOURCES: handle_list_config_resources,
}
