"""Whose a store is."""

import asyncio

import pytest

from headrace.remote.layout import MARKER_KEY
from headrace.remote.marker import Marker, OtherCluster, check, claim, read_marker
from headrace.remote.store import StoreError, StoreRefused
from headrace.testing.store import SimulatedStore
from headrace.testing.virtual_loop import run_virtual


def test_the_first_cluster_has_the_store_and_another_is_refused_by_name() -> None:
    async def main() -> None:
        store = SimulatedStore()
        with pytest.raises(StoreRefused):
            await check(store, "mine")
        await claim(store, "mine", 5)
        await claim(store, "mine", 6)
        await check(store, "mine")
        assert await read_marker(store) == Marker("mine", 5)
        for refused in (claim(store, "yours", 7), check(store, "yours")):
            with pytest.raises(OtherCluster, match=r"cluster mine.*yours"):
                await refused

    run_virtual(main())


@pytest.mark.parametrize("seed", range(10))
def test_of_two_that_claim_at_once_one_succeeds(seed: int) -> None:
    async def main() -> None:
        store = SimulatedStore(seed)
        store.slow_down(1, 100)
        outcomes = await asyncio.gather(
            claim(store, "mine", 1), claim(store, "yours", 1), return_exceptions=True
        )
        assert [outcome is None for outcome in outcomes].count(True) == 1

    run_virtual(main())


def test_a_claim_whose_response_was_lost_is_repeated() -> None:
    async def main() -> None:
        store = SimulatedStore()
        store.fail("put", takes_effect=True)
        with pytest.raises(StoreError):
            await claim(store, "mine", 1)
        await claim(store, "mine", 2)

    run_virtual(main())


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"cluster_id": 5, "created_ms": 0}'])
def test_a_marker_that_cannot_be_read_is_refused(data: bytes) -> None:
    async def main() -> None:
        store = SimulatedStore()
        store.write(MARKER_KEY, data)
        with pytest.raises(StoreRefused, match="cannot be read"):
            await claim(store, "mine", 1)

    run_virtual(main())
