"""The simulated store: promises kept, faults as armed, the same by seed."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headrace.remote.store import NoSuchObject, StoreError, StoreRefused
from headrace.testing.store import PAGE_OBJECTS, SimulatedStore
from headrace.testing.virtual_loop import run_virtual
from headrace.wire.schema import Buffer
from tests.unit.remote.store_promises import MIB, keep_promises


async def parts(*data: bytes) -> AsyncIterator[Buffer]:
    for part in data:
        yield part


async def listed(store: SimulatedStore, prefix: str = "") -> dict[str, int]:
    return {
        found.key: found.size_bytes async for page in store.list_objects(prefix) for found in page
    }


def test_objects_are_written_read_listed_and_deleted() -> None:
    async def main() -> None:
        store = SimulatedStore(time_ms=lambda: 77)
        await store.put("a/1", b"whole", 5)
        await store.put("a/2", parts(b"in ", b"parts"), 8)
        await store.put("b", memoryview(b""), 0)
        assert await store.get("a/2", 3) == b"parts"
        assert await store.get("a/1", 1, 3) == b"ho"
        assert await listed(store, "a/") == {"a/1": 5, "a/2": 8}
        assert [found.modified_ms async for page in store.list_objects() for found in page] == [
            77
        ] * 3
        await store.delete(["a/1", "b", "was never there"])
        assert await listed(store) == {"a/2": 8}
        with pytest.raises(NoSuchObject):
            await store.get("a/1")

    run_virtual(main())


def test_it_keeps_the_promises_of_every_store() -> None:
    run_virtual(keep_promises(SimulatedStore(), large_bytes=3 * MIB))


def test_listings_come_in_pages() -> None:
    async def main() -> None:
        store = SimulatedStore()
        for number in range(PAGE_OBJECTS + 1):
            store.write(f"{number}", b"")
        pages = [len(page) async for page in store.list_objects()]
        assert pages == [PAGE_OBJECTS, 1]

    run_virtual(main())


def test_a_body_of_another_size_is_not_written() -> None:
    async def main() -> None:
        store = SimulatedStore()
        for size in (4, 6):
            with pytest.raises(StoreError):
                await store.put("a", b"12345", size)
        assert not store.objects

    run_virtual(main())


@pytest.mark.parametrize("takes_effect", [False, True])
def test_a_call_fails_before_or_after_its_effect(takes_effect: bool) -> None:
    async def main() -> None:
        store = SimulatedStore()
        store.fail("put", "a*", takes_effect=takes_effect)
        await store.put("b", b"", 0)
        with pytest.raises(StoreError):
            await store.put("a", b"", 0)
        assert ("a" in store.objects) == takes_effect
        await store.put("a", b"", 0)
        store.fail("delete", error=StoreRefused, takes_effect=takes_effect)
        with pytest.raises(StoreRefused):
            await store.delete(["a"])
        assert ("a" not in store.objects) == takes_effect

    run_virtual(main())


def test_a_lost_put_reports_success() -> None:
    async def main() -> None:
        store = SimulatedStore()
        store.lose_puts("a", times=2)
        await store.put("a", b"", 0)
        assert await store.create("a", b"")
        assert not store.objects
        await store.put("a", b"", 0)
        assert "a" in store.objects

    run_virtual(main())


def test_a_put_that_fails_can_leave_an_upload() -> None:
    async def main() -> None:
        store = SimulatedStore(time_ms=lambda: 9)
        store.fail("put", leaves_upload=True)
        with pytest.raises(StoreError):
            await store.put("a", b"", 0)
        (upload,) = await store.list_uploads()
        assert (upload.key, upload.began_ms) == ("a", 9)
        await store.abort_upload(upload)
        await store.abort_upload(upload)
        assert await store.list_uploads() == []

    run_virtual(main())


def test_listings_are_late_and_catch_up() -> None:
    async def main() -> None:
        store = SimulatedStore(seed=3)
        store.list_late(1000)
        await store.put("a", b"", 0)
        assert await listed(store) == {}
        assert await store.get("a") == b""
        await asyncio.sleep(1)
        assert await listed(store) == {"a": 0}
        await store.delete(["a"])
        assert await listed(store) == {"a": 0}
        await store.put("a", b"new", 3)
        store.settle()
        assert await listed(store) == {"a": 3}

    run_virtual(main())


def test_it_is_away_for_a_time() -> None:
    async def main() -> None:
        store = SimulatedStore()
        store.go_away(duration_ms=3_600_000)
        with pytest.raises(StoreError):
            await store.put("a", b"", 0)
        await asyncio.sleep(3599)
        with pytest.raises(StoreError):
            await listed(store)
        await asyncio.sleep(1)
        await store.put("a", b"", 0)
        store.go_away()
        with pytest.raises(StoreError):
            await store.get("a")
        store.come_back()
        assert await store.get("a") == b""

    run_virtual(main())


def test_wrong_credentials_are_refused_until_they_are_right() -> None:
    async def main() -> None:
        store = SimulatedStore()
        store.refuse()
        with pytest.raises(StoreRefused):
            await store.list_uploads()
        store.accept()
        assert await store.list_uploads() == []

    run_virtual(main())


def test_slow_calls_take_their_time() -> None:
    async def main() -> None:
        store = SimulatedStore()
        store.slow_down(20)
        await store.put("a", b"", 0)
        await store.get("a")
        assert asyncio.get_running_loop().time() == pytest.approx(0.04)

    run_virtual(main())


def test_a_cancelled_put_takes_effect_or_not_by_the_seed() -> None:
    async def outcome(seed: int) -> bool:
        store = SimulatedStore(seed)
        store.slow_down(1000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await store.put("a", b"", 0)
        return "a" in store.objects

    assert {run_virtual(outcome(seed)) for seed in range(20)} == {False, True}
    assert run_virtual(outcome(5)) == run_virtual(outcome(5))


def test_objects_can_be_changed() -> None:
    async def main() -> None:
        store = SimulatedStore()
        store.write("a", b"1234")
        store.corrupt("a")
        changed = store.objects["a"]
        assert len(changed) == 4
        assert changed != b"1234"
        store.truncate("a", 2)
        assert store.objects["a"] == changed[:2]
        store.remove("a")
        assert await listed(store) == {}

    run_virtual(main())


def test_random_faults_follow_from_the_seed_and_heal() -> None:
    async def main(seed: int) -> list[str]:
        store = SimulatedStore(seed)
        store.fail_randomly(0.5)
        outcomes = []
        for number in range(40):
            try:
                await store.put(str(number), b"", 0)
                outcomes.append("done")
            except StoreError:
                outcomes.append("effect" if str(number) in store.objects else "failed")
        uploads = len(store._uploads)
        store.heal()
        for number in range(40):
            await store.get(str(number)) if str(number) in store.objects else None
        return [*outcomes, str(uploads)]

    first = run_virtual(main(1))
    assert first == run_virtual(main(1)) != run_virtual(main(2))
    assert {"done", "effect", "failed"} <= set(first)
    assert first[-1] != "0"
