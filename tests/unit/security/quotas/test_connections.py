"""How fast connections may be made."""

from headrace.loop.slices import run_whole
from headrace.security.quotas.connections import NODE, UNLIMITED, ConnectionRates
from headrace.security.quotas.rates import Windows


def rates(addresses_max: int = 100) -> ConnectionRates:
    return ConnectionRates(Windows(11, 1000), addresses_max=addresses_max)


def test_nothing_is_limited_at_first() -> None:
    made = rates()
    made.limit_listeners({NODE: UNLIMITED, "PLAINTEXT": UNLIMITED})
    assert not made.is_active
    assert made.accept("PLAINTEXT", 0) == 0
    assert made.admit("PLAINTEXT", "10.0.0.1", 0) == 0


def test_a_listener_waits_for_its_own_limit_and_for_the_nodes() -> None:
    made = rates()
    made.limit_listeners({NODE: 4, "SLOW": 1})
    assert [made.accept("SLOW", 0) for _ in range(11)] == [0] * 10 + [1000]
    assert [made.accept("FAST", 0) for _ in range(30)] == [0] * 29 + [250]


def test_an_address_has_its_own_limit_or_the_default() -> None:
    made = rates()
    made.change(None, 1.0)
    made.change("10.0.0.2", 2.0)
    assert [made.admit("L", "10.0.0.1", 0) for _ in range(11)] == [0] * 10 + [1000]
    assert [made.admit("L", "10.0.0.2", 0) for _ in range(21)] == [0] * 20 + [500]
    made.change("10.0.0.2", None)
    assert made.admit("L", "10.0.0.2", 0) == 1000
    made.change(None, None)
    assert made.admit("L", "10.0.0.1", 0) == 0


def test_what_is_not_served_counts_for_nobody() -> None:
    made = rates()
    made.limit_listeners({"L": 2})
    made.change(None, 1.0)
    for _ in range(1000):
        made.accept("L", 0)
        made.admit("L", "10.0.0.1", 0)
    assert made.accept("L", 0) == 0
    assert made.admit("L", "10.0.0.2", 0) == 0


def test_the_addresses_that_connected_last_are_remembered() -> None:
    made = rates(addresses_max=2)
    made.change(None, 1.0)
    for address in ("1", "2", "1", "3"):
        for _ in range(10):
            made.admit("L", address, 0)
    assert made.admit("L", "1", 0) > 0
    run_whole(made.expire(11_000))
    assert made.admit("L", "1", 11_000) == 0
