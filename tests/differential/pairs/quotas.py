"""Quotas: a description shows what was set or removed before it."""

from typing import Final

from headrace.wire import ApiKey
from headrace.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.wire.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tests.differential.conversation import Conversation
from tests.differential.pairs.pair import BEHIND, TIMES, Pair

KEY: Final = "producer_byte_rate"


def order_of_client_quotas(talk: Conversation) -> None:
    """A quota is described once set, and not once removed."""
    for turn in range(TIMES):
        entity = [EntityData("user", f"limited-{turn}")]
        describe = DescribeClientQuotasRequest([ComponentData("user", 0, f"limited-{turn}")])
        put, take = OpData(KEY, 7.0, remove=False), OpData(KEY, 0.0, remove=True)
        _, shown, _, gone = talk.ask_at_once(
            f"quotas {turn}",
            [
                AlterClientQuotasRequest([EntryData(entity, [put])]),
                describe,
                AlterClientQuotasRequest([EntryData(entity, [take])]),
                describe,
            ],
        )
        assert [limit.value for limit in shown.entries[0].values] == [7.0]
        assert gone.entries == []


PAIRS: Final = (Pair(order_of_client_quotas, (ApiKey.ALTER_CLIENT_QUOTAS,), BEHIND),)
