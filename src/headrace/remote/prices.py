"""What a tier costs, by a provider's list prices. Pure.

The prices are about those of the cheapest class for data in use, in US dollars, for a region in the
eastern US. They differ by region and change: a bill is reckoned with a table of one's own, which
can be given. Traffic within a region is free, which is where brokers should be.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from headrace.remote.tier_status import TierStatus, leaders_first

GB: Final = 10**9
MONTH_MS: Final = 30 * 24 * 3600 * 1000


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars per thousand requests, per gigabyte and month, and per gigabyte out."""

    put_per_1000: float
    get_per_1000: float
    delete_per_1000: float
    list_per_1000: float
    storage_per_gb_month: float
    egress_per_gb: float = 0.0


PRICES: Final[Mapping[str, Prices]] = {
    "s3": Prices(0.005, 0.0004, 0.0, 0.005, 0.023),
    "gs": Prices(0.005, 0.0004, 0.0, 0.005, 0.020),
    "az": Prices(0.0065, 0.0005, 0.0, 0.0065, 0.0184),
    "free": Prices(0.0, 0.0, 0.0, 0.0, 0.0),
}


class CostRow(NamedTuple):
    """Something that is paid for."""

    what: str
    amount: float
    unit: str
    so_far: float | None
    """Dollars since the nodes started; None for storage, which is paid by time."""
    per_month: float
    """Dollars, if it goes on like that."""


def cost_of(statuses: Iterable[TierStatus], prices: Prices) -> list[CostRow]:
    """Return what the nodes of a cluster cost together."""
    statuses = list(statuses)
    stored = sum(row.remote_bytes for _, row in leaders_first(statuses))
    rows = [
        _requests("put", [(each.puts, each) for each in statuses], prices.put_per_1000),
        _requests("get", [(each.gets, each) for each in statuses], prices.get_per_1000),
        _requests("delete", [(each.deletes, each) for each in statuses], prices.delete_per_1000),
        _requests("list", [(each.lists, each) for each in statuses], prices.list_per_1000),
    ]
    read_gb = [(each.get_bytes / GB, each) for each in statuses]
    rows.append(_traffic("read", read_gb, prices.egress_per_gb))
    storage = stored / GB
    rows.append(CostRow("storage", storage, "GB", None, storage * prices.storage_per_gb_month))
    return rows


def _requests(what: str, counts: list[tuple[int, TierStatus]], per_1000: float) -> CostRow:
    amounts = [(count / 1000, status) for count, status in counts]
    row = _traffic(what, amounts, per_1000)
    return row._replace(amount=sum(count for count, _ in counts), unit="requests")


def _traffic(what: str, amounts: list[tuple[float, TierStatus]], price: float) -> CostRow:
    so_far = sum(amount * price for amount, _ in amounts)
    per_month = sum(
        amount * price * MONTH_MS / max(status.uptime_ms, 1) for amount, status in amounts
    )
    return CostRow(what, sum(amount for amount, _ in amounts), "GB", so_far, per_month)
