"""AlterClientQuotas: API key 49, versions 0 and 1.

KIP-546, KIP-612 (addresses). Each entity is changed as a whole or not at all, and has one row in
the response. An entity, or a key of one, that comes twice is refused, and nothing of it is done.
Removing a limit that is not there does nothing. A change holds on a node as soon as it is applied
there.

Different from Kafka: of an entity that comes twice, Kafka makes the first change and reports an
error; an address has to be one, where Kafka looks up names of hosts; a limit cannot be infinite.
The work is in `security.quotas.entities` and `metadata.rights`.
"""

from collections.abc import Mapping
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.ddl import SetQuota
from headrace.metadata.state import QuotaEntity
from headrace.security.quotas.entities import (
    TYPES,
    check_entity,
    check_limit,
    describe,
    quota_entity,
)
from headrace.server.broker import Broker
from headrace.server.proposals import propose_each
from headrace.server.request import Request
from headrace.wire.messages.alter_client_quotas_request import AlterClientQuotasRequest, OpData
from headrace.wire.messages.alter_client_quotas_request import EntityData as Part
from headrace.wire.messages.alter_client_quotas_request import EntryData as Alteration
from headrace.wire.messages.alter_client_quotas_response import (
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
)

TIMEOUT_MS: Final = 30_000
"""How long changes may take; the request does not say."""
ENTRY_UNITS: Final = 4
"""What an entity costs to be checked, in units of a slice; each of its limits is two more."""
PARTS_MAX: Final = 16
"""The most parts of an entity: a type may come again, and its last name holds."""
ROW_UNITS: Final = 2


async def handle(broker: Broker, request: Request) -> AlterClientQuotasResponse:
    body: AlterClientQuotasRequest = request.body
    planned, refused = await finish(_plan(broker, body.entries))
    outcomes: list[KafkaError | None] = []
    changes: list[SetQuota] = []
    if not body.validate_only:
        changes = await finish(_changes_of(planned))
        outcomes = await propose_each(broker, changes, TIMEOUT_MS, request)
    rows = await finish(_rows(planned, changes, outcomes))
    return AlterClientQuotasResponse(entries=rows + refused)


def _changes_of(
    planned: Mapping[QuotaEntity, list[SetQuota] | KafkaError],
) -> Slices[list[SetQuota]]:
    changes: list[SetQuota] = []
    current = Slice()
    for rows in planned.values():
        if isinstance(rows, list):
            changes += rows
        if current.spend():
            yield
    return changes


def _rows(
    planned: Mapping[QuotaEntity, list[SetQuota] | KafkaError],
    changes: list[SetQuota],
    outcomes: list[KafkaError | None],
) -> Slices[list[EntryData]]:
    """Return a row for each entity, with its first problem if it has any."""
    problems: dict[QuotaEntity, KafkaError] = {}
    rows: list[EntryData] = []
    current = Slice()
    for change, outcome in zip(changes, outcomes, strict=True):
        if outcome is not None:
            problems.setdefault(change.entity, outcome)
        if current.spend():
            yield
    for entity, wanted in planned.items():
        problem = wanted if isinstance(wanted, KafkaError) else problems.get(entity)
        rows.append(_row(entity, problem))
        if current.spend(ROW_UNITS):
            yield
    return rows


def _plan(
    broker: Broker, entries: list[Alteration]
) -> Slices[tuple[dict[QuotaEntity, list[SetQuota] | KafkaError], list[EntryData]]]:
    """Return the changes of each entity, or why there are none, and rows of what is no entity."""
    planned: dict[QuotaEntity, list[SetQuota] | KafkaError] = {}
    refused: list[EntryData] = []
    current = Slice()
    for entry in entries:
        if len(entry.entity) > PARTS_MAX:
            refused.append((yield from _refused(entry.entity, current)))
            continue
        entity = quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
        if entity in planned:
            planned[entity] = KafkaError(
                ErrorCode.INVALID_REQUEST, f"{describe(entity)} is in the request twice"
            )
        else:
            try:
                planned[entity] = yield from _changes(broker, entity, entry.ops, current)
            except KafkaError as error:
                planned[entity] = error
        if current.spend(ENTRY_UNITS):
            yield
    return planned, refused


def _refused(parts: list[Part], current: Slice) -> Slices[EntryData]:
    """Return the row of what has more parts than an entity can have."""
    rows: list[EntityData] = []
    for part in parts:
        rows.append(EntityData(part.entity_type, part.entity_name))
        if current.spend():
            yield
    return EntryData(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"an entity has at most {len(TYPES)} parts, this one has {len(parts)}",
        entity=rows,
    )


def _changes(
    broker: Broker, entity: QuotaEntity, ops: list[OpData], current: Slice
) -> Slices[list[SetQuota]]:
    keys: set[str] = set()
    for op in ops:
        if op.key in keys:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{op.key} of {describe(entity)} is in the request twice"
            )
        keys.add(op.key)
        if current.spend():
            yield
    check_entity(entity)
    present = broker.image.quotas(entity)
    changes = []
    for op in ops:
        if current.spend():
            yield
        if op.remove:
            if op.key in present:
                changes.append(SetQuota(entity, op.key, None))
            continue
        check_limit(entity, op.key, op.value)
        if present.get(op.key) != op.value:
            changes.append(SetQuota(entity, op.key, op.value))
    return changes


def _row(entity: QuotaEntity, problem: KafkaError | None) -> EntryData:
    return EntryData(
        error_code=ErrorCode.NONE if problem is None else problem.code,
        error_message=None if problem is None else problem.message,
        entity=[EntityData(kind, name) for kind, name in entity],
    )
