import asyncio

import pytest

from headrace.ids import PartitionIndex, TopicId
from headrace.remote.layout import lease_key
from headrace.remote.leases import (
    LEASE_MS,
    SKEW_MS,
    Lease,
    Leases,
    check_lease,
    decode_lease,
    encode_lease,
    end_lease,
    finish_part,
    partitions_of,
    read_leases,
    renew_lease,
    whole_topic,
    write_lease,
)
from headrace.testing.store import SimulatedStore

ORDERS, BILLS = TopicId(b"o" * 16), TopicId(b"b" * 16)
P0, P1 = PartitionIndex(0), PartitionIndex(1)
NOW = 1_000_000


def lease(**values: object) -> Lease:
    fields: dict[str, object] = {
        "id": "one",
        "holder": "a test",
        "expires_ms": NOW + LEASE_MS,
        "topics": (partitions_of(ORDERS, "orders", [(P0, 100, 200)]),),
    }
    return Lease(**(fields | values))  # type: ignore[arg-type]


def test_a_lease_protects_the_offsets_it_names() -> None:
    held = lease()
    assert held.covers((ORDERS, P0), 0, 101)
    assert held.covers((ORDERS, P0), 199, 300)
    assert not held.covers((ORDERS, P0), 0, 100)
    assert not held.covers((ORDERS, P0), 200, 300)
    assert not held.covers((ORDERS, P1), 100, 200)
    assert not held.covers((BILLS, P0), 100, 200)


def test_a_lease_on_a_topic_protects_every_partition() -> None:
    held = lease(topics=(whole_topic(ORDERS, "orders"),))
    assert held.covers((ORDERS, P1), 0, 1)
    assert not held.covers((BILLS, P1), 0, 1)
    leases = Leases([held], NOW)
    assert leases.protect_topic(ORDERS)
    assert not leases.protect_topic(BILLS)


def test_a_range_without_an_end_protects_what_is_still_to_come() -> None:
    held = lease(topics=(partitions_of(ORDERS, "orders", [(P0, 100, None)]),))
    assert held.covers((ORDERS, P0), 10**9, 10**9 + 1)


def test_a_lease_ends_when_it_expired_on_every_clock() -> None:
    held = lease()
    assert not held.is_over(held.expires_ms + SKEW_MS)
    assert held.is_over(held.expires_ms + SKEW_MS + 1)
    assert Leases([held], held.expires_ms).protecting((ORDERS, P0), 150, 151) == held
    late = Leases([held], held.expires_ms + SKEW_MS + 1)
    assert late.protecting((ORDERS, P0), 150, 151) is None


def test_a_renewal_never_shortens_a_lease() -> None:
    held = lease()
    assert held.renewed(NOW + 5).expires_ms == NOW + 5 + LEASE_MS
    assert held.renewed(0).expires_ms == held.expires_ms


def test_what_was_written_is_read_again() -> None:
    held = lease()
    assert decode_lease(encode_lease(held), "key") == held


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{}",
        encode_lease(lease(version=2)),
        encode_lease(lease()).replace(b"b29vb29vb29vb29vb29vbw", b"short"),
    ],
)
def test_a_lease_that_is_not_understood_is_refused_by_name(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="some key"):
        decode_lease(damaged, "some key")


def test_leases_live_in_the_store_until_they_end() -> None:
    async def scenario() -> None:
        store = SimulatedStore()
        held, over = lease(), lease(id="two", expires_ms=NOW - SKEW_MS - 1)
        await write_lease(store, held)
        await write_lease(store, over)
        assert (await read_leases(store, NOW)).current == [held]
        listed = [each.key async for page in store.list_objects() for each in page]
        assert listed == [lease_key("one")]
        await end_lease(store, "one")
        assert (await read_leases(store, NOW)).current == []

    asyncio.run(scenario())


def test_the_first_of_many_tasks_renews_a_lease() -> None:
    async def scenario() -> None:
        store = SimulatedStore()
        held = lease()
        await write_lease(store, held)
        assert await renew_lease(store, held, NOW + 1, LEASE_MS) is held
        later = NOW + LEASE_MS // 2
        renewed = await renew_lease(store, held, later, LEASE_MS)
        assert renewed.expires_ms == later + LEASE_MS
        puts = store.counts.puts
        assert await renew_lease(store, held, later + 1, LEASE_MS) == renewed
        assert store.counts.puts == puts
        await end_lease(store, held.id)
        again = await renew_lease(store, held, later + 2, LEASE_MS)
        assert (await read_leases(store, later)).current == [again]

    asyncio.run(scenario())


def test_the_last_part_of_a_reader_ends_its_lease() -> None:
    async def scenario() -> None:
        store = SimulatedStore()
        held = lease()
        await write_lease(store, held)
        assert not await finish_part(store, held.id, 1, 3)
        assert not await finish_part(store, held.id, 1, 3)
        assert not await finish_part(store, held.id, 0, 3)
        assert (await read_leases(store, NOW)).current == [held]
        assert await finish_part(store, held.id, 2, 3)
        assert not store.objects

    asyncio.run(scenario())


def test_a_query_that_runs_again_takes_its_lease_again() -> None:
    async def scenario() -> None:
        store = SimulatedStore()
        held = lease()
        await write_lease(store, held)
        assert await check_lease(store, held, NOW, LEASE_MS) is held
        await finish_part(store, held.id, 0, 1)
        again = await check_lease(store, held, NOW + 5, LEASE_MS)
        assert (await read_leases(store, NOW)).current == [again]

    asyncio.run(scenario())


def test_parts_of_a_lease_that_is_over_are_removed() -> None:
    async def scenario() -> None:
        store = SimulatedStore()
        await write_lease(store, lease())
        await finish_part(store, "one", 0, 2)
        await read_leases(store, NOW)
        assert len(store.objects) == 2
        await read_leases(store, NOW + 2 * LEASE_MS)
        assert not store.objects

    asyncio.run(scenario())
