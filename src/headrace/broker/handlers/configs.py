"""DescribeConfigs 1 to 4, AlterConfigs 0 to 2, IncrementalAlterConfigs 0 and 1, ListConfigResources
0 and 1.

KIP-133, KIP-226 (dynamic configs and synonyms), KIP-339 (incremental), KIP-412 (loggers), KIP-569
(types and documentation), KIP-714 (client metrics), KIP-848 and KIP-1142 (groups, listing). A
resource that is refused leaves the others of its request done. AlterConfigs leaves a resource with
what it names and nothing else. Rows come in the order of their names; Kafka has no order.

A request may name thousands of resources: others are served meanwhile.

Different from Kafka: the settings that only Kafka has a use for are shown, checked and kept, and
their documentation says that they have no effect. A resource that is twice in an AlterConfigs is
refused, where Kafka does not answer at all. One that is twice in a DescribeConfigs, with the same
configs, has one result; Kafka has two.

Left out: policies (alter.config.policy.class.name).
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple

from headrace import config
from headrace.broker.broker import Broker
from headrace.broker.handlers.config_changes import (
    CONFIGS_PER_RESOURCE_MAX,
    Alteration,
    Operation,
    change_loggers,
    changes_of,
    plan_change,
    replacing,
    require_plain,
    require_type,
)
from headrace.broker.handlers.config_rows import ConfigRows
from headrace.broker.proposals import propose_each
from headrace.broker.request import Handler, Request
from headrace.broker.slices import Slice, Slices, finish, in_slices
from headrace.config.values import shorten
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
from headrace.wire.messages.describe_configs_request import DescribeConfigsRequest
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


def handle_describe_configs(
    broker: Broker, request: Request
) -> DescribeConfigsResponse | Coroutine[Any, Any, DescribeConfigsResponse]:
    return in_slices(describe_configs(broker, request.body))


def describe_configs(
    broker: Broker, body: DescribeConfigsRequest
) -> Slices[DescribeConfigsResponse]:
    """Describe each resource that is asked for; what is asked twice is answered once."""
    current = Slice()
    asked: set[object] = set()
    rows = ConfigRows(
        broker, has_synonyms=body.include_synonyms, has_documentation=body.include_documentation
    )
    response = DescribeConfigsResponse(results=[])
    for each in body.resources:
        resource_type, name = each.resource_type, each.resource_name
        wanted = frozenset(each.configuration_keys or ())
        if current.spend(3 + len(wanted) // _NAMES_PER_UNIT):
            yield
        if (key := (resource_type, name, wanted)) in asked:
            continue
        asked.add(key)
        result = DescribeConfigsResult(resource_type=resource_type, resource_name=name)
        response.results.append(result)
        try:
            found = rows.of(resource_type, name)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        result.configs = [row for row in found if row.name in wanted] if wanted else found
        if current.spend(rows.take_cost() + len(found) // _NAMES_PER_UNIT):
            yield
    return response


_NAMES_PER_UNIT: Final = 6
"""How many names are looked at in a unit of work."""


async def handle_alter_configs(broker: Broker, request: Request) -> AlterConfigsResponse:
    body: AlterConfigsRequest = request.body
    asked = await finish(
        _read_asked(
            body.resources, lambda config: Alteration(config.name, Operation.SET, config.value)
        )
    )

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
    asked = await finish(
        _read_asked(
            body.resources,
            lambda config: Alteration(config.name, config.config_operation, config.value),
        )
    )

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


def _read_asked(
    resources: Iterable[Any], read: Callable[[Any], Alteration]
) -> Slices[list[_Asked]]:
    """Read the resources of a request; `read` reads one line of its kind."""
    current, found = Slice(), []
    for each in resources:
        # One more than is allowed is enough to refuse it.
        lines = [read(config) for config in each.configs[: CONFIGS_PER_RESOURCE_MAX + 1]]
        found.append(_Asked(each.resource_type, each.resource_name, lines))
        if current.spend(1 + len(lines) // 2):
            yield
    return found


async def _alter(
    broker: Broker,
    asked: list[_Asked],
    plan: Callable[[_Asked], SetConfigs | None],
    *,
    is_validated_only: bool,
) -> list[KafkaError | None]:
    """Plan each resource and propose what may be; None is success."""
    answers: list[KafkaError | None] = [None] * len(asked)
    changes = await finish(_plan_each(broker, asked, plan, answers))
    if changes and not is_validated_only:
        timeout_ms = broker.settings[config.REQUEST_TIMEOUT_MS]
        outcomes = await propose_each(broker, list(changes.values()), timeout_ms)
        for position, outcome in zip(changes, outcomes, strict=True):
            answers[position] = outcome
    return answers


def _plan_each(
    broker: Broker,
    asked: list[_Asked],
    plan: Callable[[_Asked], SetConfigs | None],
    answers: list[KafkaError | None],
) -> Slices[dict[int, SetConfigs]]:
    """Return the changes by position; what is refused is put among the answers."""
    times = Counter((each.resource_type, each.name) for each in asked)
    changes: dict[int, SetConfigs] = {}
    current = Slice()
    image = broker.image
    dynamic = (image.configs(ResourceType.BROKER, name) for name in ("", str(broker.node_id)))
    inherited = sum(map(len, dynamic))
    for position, each in enumerate(asked):
        try:
            if times[each.resource_type, each.name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"{shorten(each.name)} is in the request more than once",
                )
            if change := plan(each):
                changes[position] = change
        except KafkaError as error:
            answers[position] = error
        if current.spend(_PLAN_UNITS + inherited + 2 * len(each.alterations)):
            yield
    return changes


_PLAN_UNITS: Final = 50
"""What it takes to see whether a resource may change: configs are checked with those they join."""


def handle_list_config_resources(
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


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.DESCRIBE_CONFIGS: handle_describe_configs,
    ApiKey.ALTER_CONFIGS: handle_alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: handle_incremental_alter_configs,
    ApiKey.LIST_CONFIG_RESOURCES: handle_list_config_resources,
}
