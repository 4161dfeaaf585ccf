"""Which limit holds for a client, who shares it, and what is remembered of clients."""

from collections.abc import Mapping

import pytest

from headrace.loop.slices import run_whole
from headrace.metadata.state import QuotaEntity
from headrace.security.quotas.entities import quota_entity
from headrace.security.quotas.limits import ClientLimits
from headrace.security.quotas.meters import IDLE_MS_MAX, LOOKS_AT_ONCE, UNLIMITED, ClientQuotas
from headrace.security.quotas.rates import Windows

PRODUCE = "producer_byte_rate"
ELEVEN = Windows(11, 1000)
LEVELS: list[list[tuple[str, str | None]]] = [
    [("user", "ann"), ("client-id", "app")],
    [("user", "ann"), ("client-id", None)],
    [("user", "ann")],
    [("user", None), ("client-id", "app")],
    [("user", None), ("client-id", None)],
    [("user", None)],
    [("client-id", "app")],
    [("client-id", None)],
]
"""Where the limit of a client may be, the most specific first."""


def quotas(clients_max: int = 100) -> ClientQuotas:
    return ClientQuotas(ELEVEN, ELEVEN, clients_max=clients_max)


def limits_of(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> ClientLimits:
    made = ClientLimits()
    for entity, limits in quotas.items():
        made.change(entity, limits)
    return made


def limit(made: ClientQuotas, user: str = "ann", client_id: str = "app") -> float | None:
    budget = made.budgets(user, client_id, 0).produce
    return None if budget is None else budget.limit


def spend(made: ClientQuotas, user: str, client_id: str, value: float, now_ms: int = 0) -> int:
    budget = made.budgets(user, client_id, now_ms).produce
    assert budget is not None
    return budget.spend(value, now_ms)


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_quota_holds(first: int) -> None:
    made = quotas()
    for position, parts in enumerate(LEVELS[first:], first):
        made.change(quota_entity(parts), {PRODUCE: position + 1.0})
    assert limit(made) == first + 1
    made.change(quota_entity(LEVELS[first]), {})
    assert limit(made) == (first + 2 if first + 1 < len(LEVELS) else None)


def test_a_quota_without_this_limit_is_passed_over() -> None:
    made = quotas()
    made.change(quota_entity([("user", "ann")]), {"request_percentage": 1.0})
    made.change(quota_entity([("client-id", None)]), {PRODUCE: 9.0})
    assert limit(made) == 9


def test_clients_of_a_limited_user_share_what_it_may_use() -> None:
    made = quotas()
    made.change(quota_entity([("user", None)]), {PRODUCE: 100.0})
    assert spend(made, "ann", "one", 1000) == 0
    assert spend(made, "ann", "two", 100) == 1000
    assert spend(made, "bob", "one", 1000) == 0


def test_a_default_of_client_ids_is_one_for_each_and_for_all_users_of_it() -> None:
    made = quotas()
    made.change(quota_entity([("client-id", None)]), {PRODUCE: 100.0})
    assert spend(made, "ann", "one", 1000) == 0
    assert spend(made, "ann", "two", 1000) == 0
    assert spend(made, "bob", "one", 100) == 1000


def test_a_client_without_an_id_has_only_its_users_limit() -> None:
    made = quotas()
    made.change(quota_entity([("client-id", None)]), {PRODUCE: 1.0})
    made.change(quota_entity([("user", "ann"), ("client-id", None)]), {PRODUCE: 2.0})
    assert made.budgets("ann", "", 0) is UNLIMITED
    made.change(quota_entity([("user", "ann")]), {PRODUCE: 3.0})
    assert limit(made, client_id="") == 3


def test_what_was_used_still_counts_when_the_limit_changes() -> None:
    made = quotas()
    ann = quota_entity([("user", "ann")])
    made.change(ann, {PRODUCE: 1000.0})
    assert spend(made, "ann", "app", 10_000) == 0
    made.change(ann, {PRODUCE: 500.0})
    assert spend(made, "ann", "app", 0) == 10_000


def test_a_request_waits_for_one_window_at_most() -> None:
    made = quotas()
    made.change(quota_entity([("user", "ann")]), {"request_percentage": 0.001})
    budget = made.budgets("ann", "app", 0).request
    assert budget is not None
    assert budget.spend(100.0, 0) == 1000


def test_meters_that_nobody_uses_are_forgotten_after_an_hour() -> None:
    made = quotas()
    made.change(quota_entity([("user", None)]), {PRODUCE: 1.0})
    spend(made, "ann", "app", 1)
    spend(made, "bob", "app", 1, IDLE_MS_MAX)
    assert run_whole(made.expire(IDLE_MS_MAX)) == 0
    assert run_whole(made.expire(IDLE_MS_MAX + 1)) == 1
    assert made.meter_count == 1
    assert spend(made, "ann", "app", 1, IDLE_MS_MAX + 1) == 0


def test_many_meters_are_looked_at_in_several_turns() -> None:
    made = quotas(clients_max=10_000)
    made.change(quota_entity([("client-id", None)]), {PRODUCE: 1.0})
    for number in range(2 * LOOKS_AT_ONCE + 1):
        spend(made, "ann", f"app-{number}", 1)
    turns = made.expire(IDLE_MS_MAX + 1)
    next(turns)
    assert made.meter_count == LOOKS_AT_ONCE + 1
    # What is used between the turns counts.
    assert spend(made, "ann", "app-0", 1000, IDLE_MS_MAX + 1) > 0
    assert run_whole(turns) == 2 * LOOKS_AT_ONCE + 1
    assert spend(made, "ann", "app-0", 1, IDLE_MS_MAX + 1) > 0


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_quotas_of_a_snapshot_hold_as_those_that_are_set(first: int) -> None:
    made = quotas()
    made.change(quota_entity([("user", "ann")]), {PRODUCE: 1.0})
    levels = {
        quota_entity(each): {PRODUCE: 10.0 + n} for n, each in enumerate(LEVELS) if n >= first
    }
    address = {quota_entity([("ip", "10.0.0.1")]): {"connection_creation_rate": 1.0}}
    made.replace(limits_of({**levels, **address}))
    assert limit(made) == 10 + first
    made.replace(limits_of({}))
    assert not made.is_active


def test_ever_new_client_ids_use_no_more_memory_and_get_around_nothing() -> None:
    made = quotas(clients_max=10)
    made.change(quota_entity([("client-id", None)]), {PRODUCE: 100.0})
    waits = [spend(made, "ann", f"app-{number}", 1000) for number in range(200)]
    assert made.meter_count <= 41
    assert waits[:10] == [0] * 10
    assert waits[-1] > 1000


def test_long_client_ids_are_told_apart_without_being_kept() -> None:
    made = quotas()
    made.change(quota_entity([("client-id", None)]), {PRODUCE: 100.0})
    one, two = "x" * 32_000 + "1", "x" * 32_000 + "2"
    made.change(quota_entity([("client-id", two)]), {PRODUCE: 7.0})
    assert limit(made, client_id=one) == 100
    assert limit(made, client_id=two) == 7
    assert all(len(part) < 100 for name in made._meters for part in name)


def test_quotas_are_on_only_while_there_is_one() -> None:
    made = quotas()
    assert not made.is_active
    made.change(quota_entity([("ip", None)]), {"connection_creation_rate": 1.0})
    assert not made.is_active
    made.replace(limits_of({quota_entity([("user", None)]): {PRODUCE: 1.0}}))
    assert made.is_active
    spend(made, "ann", "app", 1)
    made.replace(limits_of({}))
    assert not made.is_active
    assert made.budgets("ann", "app", 0) is UNLIMITED
    assert made.meter_count == 0
