import asyncio

import msgspec
import pytest

from headrace.remote import checking
from headrace.remote.checking import check_segment
from headrace.remote.layout import ObjectKind, object_key
from headrace.remote.segments import RemoteSegment
from headrace.testing.store import SimulatedStore
from tests.unit.remote.tiered import TieredLog


def checked(
    change: str = "", *, kind: ObjectKind = ObjectKind.LOG, as_kafka: bool = False
) -> str | None:
    async def scenario() -> str | None:
        store = SimulatedStore(seed=3)
        log = TieredLog()
        for number in range(50):
            log.append([b"value %d" % number] * 3)
        log.roll()
        (segment,) = await log.upload(store)
        if as_kafka:
            segment = msgspec.structs.replace(segment, custom_metadata=None)
        _change(store, object_key(segment, kind), change, segment)
        return await check_segment(store, segment)

    return asyncio.run(scenario())


def _change(store: SimulatedStore, key: str, change: str, segment: RemoteSegment) -> None:
    if change == "remove":
        store.remove(key)
    elif change == "truncate":
        store.truncate(key, segment.size_bytes - 10)
    elif change == "corrupt":
        store.corrupt(key)


@pytest.fixture(params=[100, 1000, checking.PART_BYTES], autouse=True)
def part_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "PART_BYTES", request.param)


def test_what_was_written_is_sound() -> None:
    assert checked() is None
    assert checked(as_kafka=True) is None


def test_a_flipped_bit_in_the_log_is_found() -> None:
    assert "damaged" in (checked("corrupt") or "")
    assert "damaged" in (checked("corrupt", as_kafka=True) or "")


def test_a_flipped_bit_in_an_index_is_found() -> None:
    assert "checksum" in (checked("corrupt", kind=ObjectKind.OFFSET_INDEX) or "")


def test_a_log_that_ends_early_is_found() -> None:
    assert "ends within a batch" in (checked("truncate") or "")


def test_an_object_that_is_gone_is_found() -> None:
    assert checked("remove") is not None
    assert checked("remove", kind=ObjectKind.TIME_INDEX) is not None
