"""Quotas of very many clients and addresses: what taking and showing them costs the loop."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.api.alter_client_quotas import _changes_of, _plan, _rows
from headrace.api.describe_client_quotas import _entries
from headrace.errors import ErrorCode
from headrace.loop.slices import run_whole
from headrace.metadata.image import Image
from headrace.metadata.state import QuotaEntity
from headrace.security.quotas.connections import ConnectionRates
from headrace.security.quotas.filters import ANY, Component, QuotaFilter
from headrace.security.quotas.rates import Windows
from headrace.wire.messages.alter_client_quotas_request import EntityData, EntryData, OpData
from tests.growth.slices import assert_slices_are_short, total_steps
from tests.growth.steps import assert_grows_linearly
from tests.unit.harness import Harness

MANY = 4000


def entities(kind: str, count: int) -> Iterator[QuotaEntity]:
    for number in range(count):
        match kind:
            case "both":
                yield (("client-id", f"app-{number}"), ("user", f"ann-{number}"))
            case "ip":
                yield (("ip", f"2001:db8::{number:x}"),)
            case _:
                yield ((kind, f"name-{number}"),)


def limits_of(kind: str) -> dict[str, float]:
    if kind == "ip":
        return {"connection_creation_rate": 7.0}
    return {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6, "request_percentage": 50.0}


def holding(kind: str, count: int) -> Image:
    image = Image()
    image.state.quotas = {entity: limits_of(kind) for entity in entities(kind, count)}
    return image


KINDS = pytest.mark.parametrize("kind", ["user", "client-id", "both", "ip"])


@KINDS
def test_quotas_of_a_snapshot_do_not_hold_the_loop(harness: Harness, kind: str) -> None:
    quotas = harness.node.quotas
    image = holding(kind, MANY)
    assert_slices_are_short(quotas._take(image))
    assert (quotas.clients.is_active, quotas.connections.is_active) == (kind != "ip", kind == "ip")


@KINDS
def test_nor_does_what_has_changed_meanwhile(harness: Harness, kind: str) -> None:
    quotas = harness.node.quotas
    image = holding(kind, MANY)
    work = quotas._take(image)
    next(work)
    for entity in tuple(image.state.quotas):
        quotas.note(image, entity)
    assert_slices_are_short(work)


@KINDS
def test_quotas_cost_the_same_however_many_there_are(harness: Harness, kind: str) -> None:
    def take(count: int) -> int:
        return total_steps(harness.node.quotas._take(holding(kind, count)))

    assert_grows_linearly(take, 500)


@pytest.mark.parametrize("wanted", ["all", "none"])
def test_no_description_holds_the_loop(wanted: str) -> None:
    broker: Any = SimpleNamespace(image=holding("user", MANY))
    kind = "user" if wanted == "all" else "client-id"
    components = [Component(kind, ANY, None)]
    rows = assert_slices_are_short(_entries(broker, QuotaFilter.of(components, is_strict=False)))
    assert len(rows) == (MANY if wanted == "all" else 0)


def test_no_change_of_very_many_holds_the_loop() -> None:
    broker: Any = SimpleNamespace(image=holding("user", MANY))
    ops = [OpData(key, 5.0, False) for key in limits_of("user")]
    entries = [
        EntryData([EntityData(*part) for part in entity], ops) for entity in entities("user", MANY)
    ]
    planned, refused = assert_slices_are_short(_plan(broker, entries))
    assert not refused
    changes = assert_slices_are_short(_changes_of(planned))
    rows = assert_slices_are_short(_rows(planned, changes, [None] * len(changes)))
    assert (len(changes), len(rows)) == (3 * MANY, MANY)


def test_no_entity_of_very_many_parts_holds_the_loop() -> None:
    broker: Any = SimpleNamespace(image=Image())
    parts = [EntityData(f"type-{number}", "name") for number in range(10 * MANY)]
    planned, refused = assert_slices_are_short(_plan(broker, [EntryData(parts, [])]))
    assert not planned
    assert [(row.error_code, len(row.entity)) for row in refused] == [
        (ErrorCode.INVALID_REQUEST, len(parts))
    ]


def test_no_entity_of_very_many_limits_holds_the_loop() -> None:
    broker: Any = SimpleNamespace(image=Image())
    ops = [OpData(f"rate-{number}", 5.0, True) for number in range(10 * MANY)]
    planned, _ = assert_slices_are_short(
        _plan(broker, [EntryData([EntityData("user", "ann")], ops)])
    )
    assert planned == {(("user", "ann"),): []}


def test_addresses_that_are_forgotten_do_not_hold_the_loop() -> None:
    rates = ConnectionRates(Windows(11, 1000), addresses_max=10 * MANY)
    rates.change(None, 1.0)
    for number in range(MANY):
        rates.admit("PLAINTEXT", f"10.0.{number >> 8}.{number & 255}", 0)
    assert_slices_are_short(rates.expire(100_000))
    assert run_whole(rates.expire(100_000)) is None
