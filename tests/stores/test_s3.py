"""S3, as moto serves it: the promises, multipart uploads, and those that were left unfinished."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Iterator
from xml.etree import ElementTree

import pytest
from moto.server import ThreadedMotoServer

from headrace.remote.object_store import open_store
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.store import ObjectStore, StoreRefused
from headrace.remote.store_options import StoreOptions
from headrace.wire.schema import Buffer
from tests.unit.remote.loops import on_a_loop
from tests.unit.remote.store_promises import MIB, keep_promises, listed, pattern
from tests.unit.remote.stored_segments import LOG, files, segment

PART = 5 * MIB


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server with a bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    send("PUT", f"{url}/bucket")
    yield url
    server.stop()


def send(method: str, url: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, method=method)) as response:
        return bytes(response.read())


def opened(endpoint: str, prefix: str, bucket: str = "bucket") -> ObjectStore:
    return open_store(
        f"s3://{bucket}/{prefix}",
        StoreOptions(
            endpoint=endpoint,
            region="eu-west-1",
            access_key_id="access",
            secret_access_key="secret",
            allow_http=True,
            part_bytes=PART,
        ),
    )


def begin_upload(endpoint: str, key: str) -> str:
    """Begin a multipart upload and leave it, as a crash does."""
    response = ElementTree.fromstring(send("POST", f"{endpoint}/bucket/{key}?uploads"))
    return response.findtext("{*}UploadId", "")


@pytest.mark.parametrize("prefix", ["promises", "promises/of a deep/prefix", ""])
@on_a_loop
async def test_it_keeps_the_promises(endpoint: str, prefix: str) -> None:
    store = opened(endpoint, prefix)
    await keep_promises(store, large_bytes=2 * PART + 7)
    await store.close()


@on_a_loop
async def test_a_segment_is_copied_read_and_deleted(endpoint: str) -> None:
    store = opened(endpoint, "segments")
    objects = SegmentObjects(store)
    await objects.copy(segment(), files())
    assert bytes(await objects.fetch(segment(), 100, 200)) == LOG[100:200]
    assert len(await listed(store)) == 6
    await objects.delete(segment())
    assert await listed(store) == {}
    await store.close()


@on_a_loop
async def test_requests_of_a_multipart_upload_are_counted(endpoint: str) -> None:
    store = opened(endpoint, "counts")
    await store.put("large", pattern(2 * PART + 1), 2 * PART + 1)
    assert store.counts.puts == 3 + 2
    await store.close()


@on_a_loop
async def test_a_cancelled_upload_is_aborted(endpoint: str) -> None:
    reading = asyncio.Event()
    is_closed = False

    async def stuck() -> AsyncIterator[Buffer]:
        nonlocal is_closed
        try:
            for _ in range(3):
                yield bytes(PART)
            reading.set()
            await asyncio.Event().wait()
        finally:
            is_closed = True

    store = opened(endpoint, "cancelled")
    body = stuck()
    put = asyncio.create_task(store.put("large", body, 10 * PART))
    await reading.wait()
    assert [upload.key for upload in await store.list_uploads()] == ["large"]
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put
    assert is_closed
    await store.close()
    assert await store.list_uploads() == []
    assert await listed(store) == {}


@on_a_loop
async def test_uploads_that_a_crash_left_are_found_and_aborted(endpoint: str) -> None:
    store = opened(endpoint, "left over")
    ids = {
        key: begin_upload(endpoint, f"left%20over/{key.replace(' ', '%20')}")
        for key in ("a/1.log", "a/2 +&.log")
    }
    begin_upload(endpoint, "another/1.log")
    begin_upload(endpoint, "left%20over2/1.log")
    found = await store.list_uploads()
    assert {upload.key: upload.upload_id for upload in found} == ids
    for upload in found:
        await store.abort_upload(upload)
        await store.abort_upload(upload)
    assert await store.list_uploads() == []
    everything = opened(endpoint, "")
    assert {upload.key for upload in await everything.list_uploads()} == {
        "another/1.log",
        "left over2/1.log",
    }
    for upload in await everything.list_uploads():
        await everything.abort_upload(upload)
    await store.close()
    await everything.close()


@on_a_loop
async def test_a_bucket_that_is_not_there_is_refused(endpoint: str) -> None:
    store = opened(endpoint, "", bucket="nobody")
    for call in (
        store.put("key", b"1", 1),
        store.get("key"),
        store.delete(["key", "other"]),
        anext(aiter(store.list_objects())),
        store.list_uploads(),
    ):
        with pytest.raises(StoreRefused):
            await call
    await store.close()
