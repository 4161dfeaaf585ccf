"""What every object store promises: each implementation runs these."""

from collections.abc import AsyncIterator

import pytest

from headrace.remote.store import NoSuchObject, ObjectStore, StoreError
from headrace.wire.schema import Buffer

MIB = 1024 * 1024


async def keep_promises(store: ObjectStore, *, large_bytes: int) -> None:
    """Check the promises of the port; `large_bytes` is more than a part."""
    await whole_and_parts(store, large_bytes)
    await ranges(store)
    await creation(store)
    await listings_and_deletion(store)
    await wrong_sizes(store, large_bytes)
    assert await store.list_uploads() == []


async def whole_and_parts(store: ObjectStore, large_bytes: int) -> None:
    large = pattern(large_bytes)
    await store.put("a/small", b"small", 5)
    await store.put("a/view", memoryview(bytearray(b"abcdef"))[2:4], 2)
    await store.put("a/empty", b"", 0)
    await store.put("a/no parts", parts(b""), 0)
    await store.put("a/parts", parts(b"in parts", 3), 8)
    await store.put("large", large, large_bytes)
    await store.put("large in parts", parts(large, MIB + 1), large_bytes)
    for key, data in (
        ("a/small", b"small"),
        ("a/view", b"cd"),
        ("a/empty", b""),
        ("a/no parts", b""),
        ("a/parts", b"in parts"),
        ("large", large),
        ("large in parts", large),
    ):
        assert bytes(await store.get(key)) == data, key
    await store.put("a/small", b"again", 5)
    assert bytes(await store.get("a/small")) == b"again"
    counts = store.counts
    assert counts.puts >= 8
    assert counts.put_bytes == 5 + 2 + 8 + 2 * large_bytes + 5


async def ranges(store: ObjectStore) -> None:
    data = pattern(1000)
    await store.put("ranges", data, 1000)
    for begin, end in ((0, 1), (10, 20), (999, 1000), (0, 5000), (990, 1001), (7, None), (5, 5)):
        assert bytes(await store.get("ranges", begin, end)) == data[begin:end], (begin, end)
    for begin, end in ((1000, 1001), (2000, 3000), (1000, None)):
        assert bytes(await store.get("ranges", begin, end)) == b"", (begin, end)
    assert bytes(await store.get("a/empty", 0, 10)) == b""
    for end in (None, 5):
        with pytest.raises(NoSuchObject):
            await store.get("nobody", 0, end)


async def creation(store: ObjectStore) -> None:
    assert await store.create(".headrace/cluster.json", b"first")
    assert not await store.create(".headrace/cluster.json", b"second")
    assert bytes(await store.get(".headrace/cluster.json")) == b"first"
    await store.delete([".headrace/cluster.json"])


async def listings_and_deletion(store: ObjectStore) -> None:
    every = await listed(store)
    assert {key for key in every if key.startswith("a/")} == {
        "a/small",
        "a/view",
        "a/empty",
        "a/no parts",
        "a/parts",
    }
    assert every["ranges"] == 1000
    assert await listed(store, "a/s") == {"a/small": 5}
    assert set(await listed(store, "large")) == {"large", "large in parts"}
    assert await listed(store, "nobody/") == {}
    await store.delete([])
    await store.delete(["nobody", "a/small", "nobody/else", "a/view"])
    await store.delete(["a/small"])
    assert set(await listed(store, "a/")) == {"a/empty", "a/no parts", "a/parts"}
    await store.delete(await listed(store))
    assert await listed(store) == {}


async def wrong_sizes(store: ObjectStore, large_bytes: int) -> None:
    large = pattern(large_bytes)
    for body, size in (
        (b"12345", 4),
        (parts(b"12345"), 4),
        (parts(b"12345"), 6),
        (parts(large, MIB), large_bytes - 1),
        (parts(large, MIB), large_bytes + 1),
    ):
        with pytest.raises(StoreError):
            await store.put("wrong", body, size)

    async def failing() -> AsyncIterator[Buffer]:
        for position in range(0, large_bytes - MIB, MIB):
            yield large[position : position + MIB]
        raise FileNotFoundError("the log's file is gone")

    with pytest.raises(FileNotFoundError):  # the caller's own error, not the store's
        await store.put("wrong", failing(), large_bytes)
    with pytest.raises(NoSuchObject):
        await store.get("wrong")


async def listed(store: ObjectStore, prefix: str = "") -> dict[str, int]:
    return {
        found.key: found.size_bytes async for page in store.list_objects(prefix) for found in page
    }


async def parts(data: bytes, part_bytes: int = 3) -> AsyncIterator[Buffer]:
    for position in range(0, len(data), part_bytes):
        yield memoryview(data)[position : position + part_bytes]


def pattern(size_bytes: int) -> bytes:
    """Return bytes that differ at every place that matters."""
    return (bytes(range(251)) * (size_bytes // 251 + 1))[:size_bytes]
