"""DescribeClientQuotas: API key 48, versions 0 and 1.

KIP-546, KIP-612 (addresses). Lists the quotas of entities that a filter matches: those of these
names, of defaults, or of these types at all; a strict filter takes no entity with other types. An
invalid filter is answered with its error and without entries.

The work is in `security.quotas.filters`.
"""

from typing import Final

from headrace.errors import KafkaError
from headrace.loop.slices import Slice, Slices, finish
from headrace.security.quotas.filters import Component, QuotaFilter
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from headrace.wire.messages.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

ROW_UNITS: Final = 4
"""What an entity that is described costs, in units of a slice."""


async def handle(broker: Broker, request: Request) -> DescribeClientQuotasResponse:
    body: DescribeClientQuotasRequest = request.body
    try:
        wanted = QuotaFilter.of(
            (Component(row.entity_type, row.match_type, row.match) for row in body.components),
            is_strict=body.strict,
        )
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    entries = await finish(_entries(broker, wanted))
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _entries(broker: Broker, wanted: QuotaFilter) -> Slices[list[EntryData]]:
    entries: list[EntryData] = []
    current = Slice()
    quotas = broker.image.state.quotas
    only = wanted.only
    # Entities may come and go between the slices.
    found = quotas if only is None else {only: quotas[only]} if only in quotas else {}
    for entity, limits in tuple(found.items()):
        if wanted.matches(entity):
            entries.append(
                EntryData(
                    entity=[EntityData(kind, name) for kind, name in entity],
                    values=[ValueData(key, value) for key, value in limits.items()],
                )
            )
            units = ROW_UNITS
        else:
            units = 1
        if current.spend(units):
            yield
    return entries
