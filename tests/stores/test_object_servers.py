"""The tier's store against servers that check signatures: MinIO for S3, Azurite for Azure."""

import asyncio
import base64
import hmac
import os
import urllib.request
from collections.abc import AsyncIterator, Iterator
from email.utils import formatdate

import pytest
from botocore.session import get_session

from headrace.remote.object_store import open_store
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.store import ObjectStore, StoreRefused, UnfinishedUpload
from headrace.remote.store_options import StoreOptions
from headrace.wire.schema import Buffer
from tests.unit.remote.loops import on_a_loop
from tests.unit.remote.store_promises import MIB, keep_promises, listed
from tests.unit.remote.stored_segments import LOG, files, segment
from tools.object_servers import azurite, minio, missing_tool

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.timeout(1800),  # the first run builds MinIO
]

PART = 5 * MIB
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = (  # Azurite's, which everybody knows
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreOptions]:
    """MinIO with a bucket."""
    if reason := missing_tool("go"):
        pytest.skip(reason)
    with minio(tmp_path_factory.mktemp("minio"), "tester", "tester-secret") as url:
        client = get_session().create_client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="tester",
            aws_secret_access_key="tester-secret",
        )
        client.create_bucket(Bucket="bucket")
        client.close()
        yield StoreOptions(
            endpoint=url,
            access_key_id="tester",
            secret_access_key="tester-secret",
            allow_http=True,
            part_bytes=PART,
        )


@pytest.fixture(scope="module")
def azure() -> Iterator[StoreOptions]:
    """Azurite with a container."""
    if reason := missing_tool("npm"):
        pytest.skip(reason)
    with azurite() as url:
        create_container(url)
        yield StoreOptions(
            endpoint=url,
            access_key_id=ACCOUNT,
            secret_access_key=ACCOUNT_KEY,
            allow_http=True,
            part_bytes=PART,
        )


def create_container(url: str) -> None:
    date = formatdate(usegmt=True)
    version = "2023-11-03"
    signed = (
        "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n"
        f"/{ACCOUNT}/{ACCOUNT}/bucket\nrestype:container"
    )
    signature = hmac.digest(base64.b64decode(ACCOUNT_KEY), signed.encode(), "sha256")
    authorization = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
    request = urllib.request.Request(
        f"{url}/bucket?restype=container",
        method="PUT",
        headers={"x-ms-date": date, "x-ms-version": version, "authorization": authorization},
    )
    urllib.request.urlopen(request).close()


async def check_store(store: ObjectStore) -> None:
    await keep_promises(store, large_bytes=2 * PART + 7)
    objects = SegmentObjects(store)
    await objects.copy(segment(), files())
    assert bytes(await objects.fetch(segment(), 100, 200)) == LOG[100:200]
    await objects.delete(segment())
    assert await listed(store) == {}


@pytest.mark.parametrize("prefix", ["", "/a deep/pre-fix"])
@on_a_loop
async def test_minio(s3: StoreOptions, prefix: str) -> None:
    store = open_store(f"s3://bucket{prefix}", s3)
    await check_store(store)
    await store.close()


@pytest.mark.parametrize("prefix", ["", "/a deep/pre-fix"])
@on_a_loop
async def test_azurite(azure: StoreOptions, prefix: str) -> None:
    store = open_store(f"az://bucket{prefix}", azure)
    await check_store(store)
    await store.close()


@on_a_loop
async def test_minio_lists_and_aborts_unfinished_uploads(s3: StoreOptions) -> None:
    """The requests that are signed by ourselves are accepted."""
    reading = asyncio.Event()
    go_on = asyncio.Event()

    async def slow() -> AsyncIterator[Buffer]:
        for _ in range(3):
            yield os.urandom(PART)
        reading.set()
        await go_on.wait()
        raise OSError("the disk is gone")

    store = open_store("s3://bucket/a deep/pre-fix", s3)
    put = asyncio.create_task(store.put("x.log", slow(), 10 * PART))
    await reading.wait()
    for upload in await store.list_uploads():  # MinIO tells only of a prefix that is a whole name
        await store.abort_upload(upload)
    await store.abort_upload(UnfinishedUpload("nobody.log", "none", 0))
    go_on.set()
    with pytest.raises(OSError, match="disk is gone"):
        await put
    await store.close()


@on_a_loop
async def test_wrong_credentials_are_refused(s3: StoreOptions, azure: StoreOptions) -> None:
    for url, right in (("s3://bucket", s3), ("az://bucket", azure)):
        secret = base64.b64encode(b"wrong").decode()
        wrong = StoreOptions(
            endpoint=right.endpoint,
            access_key_id=right.access_key_id,
            secret_access_key=secret,
            allow_http=True,
        )
        store = open_store(url, wrong)
        for call in (
            store.put("key", b"1", 1),
            store.get("key"),
            store.delete(["key"]),
            anext(aiter(store.list_objects())),
        ):
            with pytest.raises(StoreRefused) as refusal:
                await call
            assert secret not in str(refusal.value)
        await store.close()
