"""Quotas of users, client ids and addresses (KIP-546, KIP-612)."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.errors import raise_for
from headrace.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.wire.messages.alter_client_quotas_response import AlterClientQuotasResponse
from headrace.wire.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from headrace.wire.messages.describe_client_quotas_response import DescribeClientQuotasResponse

QUOTA_TYPES: Final = ("user", "client-id", "ip")
"""What quotas are for."""
_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


class QuotaEntity(msgspec.Struct, frozen=True):
    """Clients with one quota: names by type, None for all of a type without a quota of their own.

    A user, a client id, a user's client id, or an address: `QuotaEntity.of(user="alice")`.
    """

    names: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(
        cls, names: Mapping[str, str | None] | None = None, **named: str | None
    ) -> "QuotaEntity":
        """Return an entity; `client_id` stands for `client-id`."""
        given = {**(names or {}), **{key.replace("_", "-"): name for key, name in named.items()}}
        return cls(tuple(sorted(given.items())))

    def __str__(self) -> str:
        return ", ".join(
            f"default {kind}" if name is None else f"{kind} {name}" for kind, name in self.names
        )


async def describe_quotas(
    cluster: Cluster,
    names: Mapping[str, str | None] | None = None,
    *,
    types: Iterable[str] = (),
    is_strict: bool = False,
) -> dict[QuotaEntity, dict[str, float]]:
    """Return the quotas of entities that have these names and are of these types, or all.

    The name None is the default; `is_strict` leaves out entities that have other types, too.
    """
    components = [
        ComponentData(kind, _DEFAULT if name is None else _EXACT, name)
        for kind, name in (names or {}).items()
    ]
    components += [ComponentData(kind, _ANY, None) for kind in types]
    answer = await cluster.ask(
        DescribeClientQuotasRequest(components=components, strict=is_strict),
        DescribeClientQuotasResponse,
        code_of=lambda answer: answer.error_code,
    )
    raise_for(answer.error_code, answer.error_message, "the quotas")
    return {
        QuotaEntity.of({part.entity_type: part.entity_name for part in row.entity}): {
            limit.key: limit.value for limit in row.values
        }
        for row in answer.entries or ()
    }


async def alter_quotas(
    cluster: Cluster,
    entity: QuotaEntity,
    *,
    set: Mapping[str, float] | None = None,  # noqa: A002  as `alter_configs` has it
    remove: Iterable[str] = (),
    validate_only: bool = False,
) -> None:
    """Set and remove limits of one entity; KafkaError if any of that is refused."""
    ops = [OpData(key, float(value), remove=False) for key, value in (set or {}).items()]
    ops += [OpData(key, 0.0, remove=True) for key in remove]
    entry = EntryData([EntityData(kind, name) for kind, name in entity.names], ops)
    answer = await cluster.ask(
        AlterClientQuotasRequest(entries=[entry], validate_only=validate_only),
        AlterClientQuotasResponse,
    )
    for row in answer.entries:
        raise_for(row.error_code, row.error_message, f"the quotas of {entity}")
