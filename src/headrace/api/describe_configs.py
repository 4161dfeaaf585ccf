"""DescribeConfigs: API key 32, versions 1 to 4.

KIP-133, KIP-226 (dynamic configs and synonyms), KIP-412 (loggers), KIP-569 (types and
documentation, from 3), KIP-714 (client metrics), KIP-848 (groups). Rows are sorted by name; Kafka
has no order. A request may name thousands of resources: other clients are served meanwhile.

Different from Kafka: the settings that only Kafka uses are shown, and their documentation says that
they have no effect. A resource that is named twice, with the same configs, has one result; Kafka
returns two.

The rows are made in `config_rows`.
"""

from collections.abc import Coroutine
from typing import Any, Final

from headrace.api.config_rows import ConfigRows
from headrace.errors import KafkaError
from headrace.loop.slices import Slice, Slices, in_slices
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.describe_configs_request import DescribeConfigsRequest
from headrace.wire.messages.describe_configs_response import (
    DescribeConfigsResponse,
    DescribeConfigsResult,
)


def handle(
    broker: Broker, request: Request
) -> DescribeConfigsResponse | Coroutine[Any, Any, DescribeConfigsResponse]:
    return in_slices(describe_configs(broker, request.body))


def describe_configs(
    broker: Broker, body: DescribeConfigsRequest
) -> Slices[DescribeConfigsResponse]:
    """Describe each requested resource; a duplicate gets one result."""
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
"""How many names are checked in a unit of work."""
