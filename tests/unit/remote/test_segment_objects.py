"""Segments in a store: what is written in which order, read back, noticed and deleted."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from headrace.remote.layout import ObjectKind, SegmentKey, object_key, parse_key
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segments import RemoteSegment
from headrace.remote.store import Body, DamagedObject, NoSuchObject, StoreError
from headrace.testing.store import SimulatedStore
from headrace.testing.virtual_loop import run_virtual
from headrace.wire.schema import Buffer
from tests.unit.remote.stored_segments import LOG, files, segment

EVERY_INDEX = [kind for kind in ObjectKind if kind is not ObjectKind.LOG]


def kinds(keys: list[str]) -> list[ObjectKind]:
    parsed = [parse_key(key) for key in keys]
    return [key.kind for key in parsed if isinstance(key, SegmentKey)]


async def copied(store: SimulatedStore, *, txn_index: bytes | None = b"aborted") -> RemoteSegment:
    """Copy a segment and return its description with what the copy said."""
    metadata = await SegmentObjects(store).copy(segment(), files(txn_index=txn_index))
    return msgspec.structs.replace(segment(), custom_metadata=metadata)


def test_a_copy_is_read_back() -> None:
    async def main() -> None:
        store = SimulatedStore()
        objects = SegmentObjects(store)
        held = await copied(store)
        assert bytes(await objects.fetch(held, 0, len(LOG))) == LOG
        assert bytes(await objects.fetch(held, 10, 300)) == LOG[10:300]
        assert [bytes(await objects.fetch_index(held, kind)) for kind in EVERY_INDEX] == [
            b"offsets",
            b"",
            b"aborted",
            b"producers",
            b"0\n1\n0 11\n",
        ]

    run_virtual(main())


def test_objects_are_written_in_order_and_the_leader_epochs_last() -> None:
    async def main() -> None:
        store = SimulatedStore()
        await copied(store)
        written = [key for operation, key in store.calls if operation == "put"]
        assert kinds(written) == list(ObjectKind)

    run_virtual(main())


@pytest.mark.parametrize("kind", ObjectKind)
def test_a_copy_is_no_copy_if_the_store_has_lost_an_object_of_it(kind: ObjectKind) -> None:
    async def main() -> None:
        store = SimulatedStore()
        store.lose_puts(f"*{kind}")
        with pytest.raises(DamagedObject, match="does not have it"):
            await copied(store)

    run_virtual(main())


def test_a_copy_is_no_copy_if_the_store_has_less_than_it_took() -> None:
    async def main() -> None:
        store = SimulatedStore()
        put = store.put

        async def put_less(key: str, body: Body, size_bytes: int) -> None:
            await put(key, body, size_bytes)
            if key.endswith(".log"):
                store.truncate(key, size_bytes // 2)

        store.put = put_less  # type: ignore[method-assign]
        with pytest.raises(DamagedObject, match="another size"):
            await copied(store)

    run_virtual(main())


@pytest.mark.parametrize("kind", ObjectKind)
def test_a_copy_that_fails_has_no_leader_epochs(kind: ObjectKind) -> None:
    async def main() -> None:
        store = SimulatedStore()
        store.fail("put", f"*{kind}")
        with pytest.raises(StoreError):
            await copied(store)
        assert object_key(segment(), ObjectKind.LEADER_EPOCHS) not in store.objects
        await SegmentObjects(store).delete(segment())
        assert not store.objects

    run_virtual(main())


def test_the_parts_of_a_log_are_closed_when_the_copy_fails() -> None:
    closed = []

    async def parts() -> AsyncIterator[Buffer]:
        try:
            yield LOG[:100]
            raise OSError("the local disk failed")
        finally:
            closed.append(True)

    async def endless() -> AsyncIterator[Buffer]:
        try:
            while True:
                yield b"x"
        finally:
            closed.append(True)

    class Failing(SimulatedStore):
        async def put(self, key: str, body: object, size_bytes: int) -> None:
            assert isinstance(body, AsyncIterator)
            await anext(body)
            raise StoreError("away")

    async def main() -> None:
        with pytest.raises(OSError, match="local disk"):
            await SegmentObjects(SimulatedStore()).copy(segment(), files()._replace(log=parts))
        with pytest.raises(StoreError):
            await SegmentObjects(Failing()).copy(segment(), files()._replace(log=endless))
        assert closed == [True, True]

    run_virtual(main())


def test_a_log_of_another_size_than_announced_is_not_written() -> None:
    async def main() -> None:
        store = SimulatedStore()
        with pytest.raises(StoreError):
            await SegmentObjects(store).copy(segment(), files()._replace(log_bytes=1))
        assert not store.objects

    run_virtual(main())


def test_leader_epochs_are_deleted_first() -> None:
    async def main() -> None:
        store = SimulatedStore()
        held = await copied(store)
        store.calls.clear()
        store.fail("delete", "*.log")
        with pytest.raises(StoreError):
            await SegmentObjects(store).delete(held)
        assert object_key(held, ObjectKind.LEADER_EPOCHS) not in store.objects
        assert kinds([key for _, key in store.calls])[0] is ObjectKind.LEADER_EPOCHS
        await SegmentObjects(store).delete(held)
        assert not store.objects
        await SegmentObjects(store).delete(held)

    run_virtual(main())


def test_a_log_that_was_cut_is_damaged() -> None:
    async def main() -> None:
        store = SimulatedStore()
        held = await copied(store)
        store.truncate(object_key(held, ObjectKind.LOG), 500)
        objects = SegmentObjects(store)
        assert len(await objects.fetch(held, 0, 500)) == 500
        for begin, end in ((0, 501), (600, 700)):
            with pytest.raises(DamagedObject):
                await objects.fetch(held, begin, end)

    run_virtual(main())


@pytest.mark.parametrize("kind", [kind for kind in EVERY_INDEX if kind != ObjectKind.TIME_INDEX])
def test_an_index_that_was_changed_is_damaged(kind: ObjectKind) -> None:
    async def main() -> None:
        store = SimulatedStore()
        held = await copied(store)
        objects = SegmentObjects(store)
        store.corrupt(object_key(held, kind))
        with pytest.raises(DamagedObject):
            await objects.fetch_index(held, kind)
        store.truncate(object_key(held, kind), 2)
        with pytest.raises(DamagedObject):
            await objects.fetch_index(held, kind)
        store.remove(object_key(held, kind))
        with pytest.raises(NoSuchObject):
            await objects.fetch_index(held, kind)

    run_virtual(main())


def test_a_segment_without_aborted_transactions_needs_no_request_for_them() -> None:
    async def main() -> None:
        store = SimulatedStore()
        held = await copied(store, txn_index=None)
        assert object_key(held, ObjectKind.TXN_INDEX) not in store.objects
        store.calls.clear()
        objects = SegmentObjects(store)
        assert await objects.fetch_index(held, ObjectKind.TXN_INDEX) == b""
        told = msgspec.structs.replace(segment(), is_txn_index_empty=True)
        assert await objects.fetch_index(told, ObjectKind.TXN_INDEX) == b""
        assert not store.calls

    run_virtual(main())


def test_of_a_segment_that_kafka_copied_only_the_transactions_may_be_missing() -> None:
    async def main() -> None:
        objects = SegmentObjects(SimulatedStore())
        assert await objects.fetch_index(segment(), ObjectKind.TXN_INDEX) == b""
        for kind in EVERY_INDEX:
            if kind is not ObjectKind.TXN_INDEX:
                with pytest.raises(NoSuchObject):
                    await objects.fetch_index(segment(), kind)

    run_virtual(main())


@pytest.mark.parametrize(("begin", "end"), [(-1, 5), (5, 4), (0, len(LOG) + 1)])
def test_bytes_that_a_segment_cannot_have_are_refused(begin: int, end: int) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="bytes"):
            await SegmentObjects(SimulatedStore()).fetch(segment(), begin, end)

    run_virtual(main())


def test_requests_and_bytes_are_counted() -> None:
    async def main() -> None:
        store = SimulatedStore()
        held = await copied(store)
        objects = SegmentObjects(store)
        checked = msgspec.structs.replace(store.counts)
        assert (checked.gets, checked.get_bytes) == (6, 5)  # each is there, one is empty
        await objects.fetch(held, 0, 100)
        await objects.fetch(held, 100, 100)
        await objects.delete(held)
        counts = objects.counts
        assert (counts.puts, counts.gets, counts.get_bytes) == (6, 7, 105)
        assert counts.put_bytes == len(LOG) + len(b"offsetsabortedproducers0\n1\n0 11\n")
        assert counts.deletes == 2

    run_virtual(main())
