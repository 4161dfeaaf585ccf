"""obstore's stores: the promises in memory, and what failures of a server become."""

import asyncio
import base64
import json
import logging
import traceback
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop

from headrace.remote.object_store import ObstoreStore, open_store
from headrace.remote.store import (
    NoSuchObject,
    ObjectStore,
    StoreError,
    StoreRefused,
    UnfinishedUpload,
    UploadsUnknown,
)
from headrace.remote.store_options import StoreOptions
from headrace.wire.schema import Buffer
from tests.unit.remote.fake_s3 import Response, fake_s3
from tests.unit.remote.loops import on_a_loop
from tests.unit.remote.store_promises import MIB, keep_promises, pattern

PART = 5 * MIB
BEGUN = b"<InitiateMultipartUploadResult><UploadId>42</UploadId></InitiateMultipartUploadResult>"
KEY, SECRET, TOKEN = "AKIDSECRET1", "VERYSECRET2", "TOKENSECRET3"


def s3(endpoint: str, *, attempts: int = 1, request_timeout_ms: int = 20_000) -> ObjectStore:
    return open_store(
        "s3://bucket/pre/fix",
        StoreOptions(
            endpoint=endpoint,
            region="eu-west-1",
            access_key_id=KEY,
            secret_access_key=SECRET,
            session_token=TOKEN,
            allow_http=True,
            attempts=attempts,
            request_timeout_ms=request_timeout_ms,
            part_bytes=PART,
        ),
    )


@on_a_loop
async def test_memory_keeps_the_promises() -> None:
    store = open_store("memory:///", StoreOptions(part_bytes=PART))
    await keep_promises(store, large_bytes=2 * PART + 7)
    await store.close()


def test_it_works_on_the_loop_of_a_node() -> None:
    async def main() -> None:
        store = open_store("memory:///", StoreOptions(part_bytes=PART))
        await keep_promises(store, large_bytes=2 * PART + 7)
        await store.close()

    uvloop.run(main())


@on_a_loop
async def test_a_store_without_conditions_creates_in_two_steps() -> None:
    written = False

    def answer(method: str, _: str, headers: dict[str, str]) -> Response:
        nonlocal written
        if "if-none-match" in headers:
            return Response(501, "NotImplemented")
        if method == "PUT":
            written = True
        return Response(200) if written else Response(404, "NoSuchKey")

    async with fake_s3(answer) as fake:
        store = s3(fake.url)
        assert await store.create("key", b"1")
        assert not await store.create("key", b"2")
        await store.close()


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, "NoSuchKey", NoSuchObject),
        (404, "NoSuchBucket", StoreRefused),
        (403, "AccessDenied", StoreRefused),
        (403, "SignatureDoesNotMatch", StoreRefused),
        (401, "", StoreRefused),
        (400, "ExpiredToken", StoreRefused),
        (400, "AuthorizationHeaderMalformed", StoreRefused),
        (400, "RequestTimeout", StoreError),
        (301, "PermanentRedirect", StoreRefused),
        (500, "InternalError", StoreError),
        (503, "SlowDown", StoreError),
        (429, "TooManyRequests", StoreError),
    ],
)
@on_a_loop
async def test_errors_of_a_read(status: int, code: str, expected: type[StoreError]) -> None:
    async with fake_s3(lambda *_: Response(status, code)) as fake:
        store = s3(fake.url)
        with pytest.raises(StoreError) as failure:
            await store.get("key", 0, 10)
        assert type(failure.value) is expected
        assert store.counts.errors == (expected is not NoSuchObject)
        await store.close()


@pytest.mark.parametrize("status", [401, 403])
@on_a_loop
async def test_wrong_credentials_are_refused_whatever_is_asked_for(status: int) -> None:
    async with fake_s3(lambda *_: Response(status, "SignatureDoesNotMatch")) as fake:
        store = s3(fake.url)
        for call in (
            store.put("key", b"1", 1),
            store.put("key", pattern(PART + 1), PART + 1),
            store.create("key", b"1"),
            store.get("key"),
            store.delete(["key", "other"]),
            anext(aiter(store.list_objects())),
            store.list_uploads(),
            store.abort_upload(UnfinishedUpload("key", "42", 0)),
        ):
            with pytest.raises(StoreRefused):
                await call
        await store.close()


@on_a_loop
async def test_what_is_written_or_listed_without_a_bucket_is_refused() -> None:
    async with fake_s3(lambda *_: Response(404)) as fake:
        store = s3(fake.url)
        for call in (
            store.put("key", b"1", 1),
            store.put("key", pattern(PART + 1), PART + 1),
            store.create("key", b"1"),
            anext(aiter(store.list_objects())),
        ):
            with pytest.raises(StoreRefused):
                await call
        await store.close()


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, "BlobNotFound", NoSuchObject),
        (404, "ContainerNotFound", StoreRefused),
        (403, "AuthenticationFailed", StoreRefused),
        (503, "ServerBusy", StoreError),
    ],
)
@pytest.mark.parametrize("scheme", ["gs", "az"])
@on_a_loop
async def test_errors_of_google_and_azure(
    scheme: str, status: int, code: str, expected: type[StoreError], tmp_path: Path
) -> None:
    async with fake_s3(lambda *_: Response(status, code)) as fake:
        store = other(scheme, fake.url, tmp_path)
        with pytest.raises(StoreError) as failure:
            await store.get("key", 0, 10)
        assert type(failure.value) is expected
        with pytest.raises(StoreError) as failure:
            await store.put("key", b"1", 1)
        assert type(failure.value) is (StoreRefused if expected is NoSuchObject else expected)
        for text in (repr(store), str(failure.value)):
            assert "VERYSECRET2" not in text
        assert fake.requests[0].startswith("GET /")
        await store.close()


def other(scheme: str, endpoint: str, folder: Path) -> ObjectStore:
    """A store of Google or Azure."""
    if scheme == "az":
        options = StoreOptions(
            endpoint=f"{endpoint}/account",
            access_key_id="account",
            secret_access_key=base64.b64encode(SECRET.encode()).decode(),
            allow_http=True,
            attempts=1,
        )
    else:
        account = {
            "gcs_base_url": endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": SECRET,
            "private_key_id": "",
        }
        path = folder / "account.json"
        path.write_text(json.dumps(account))
        options = StoreOptions(secret_access_key=str(path), allow_http=True, attempts=1)
    return open_store(f"{scheme}://bucket/pre/fix", options)


@on_a_loop
async def test_googles_uploads_are_unknown_and_azures_end_by_themselves(tmp_path: Path) -> None:
    google = other("gs", "http://127.0.0.1:1", tmp_path)
    with pytest.raises(UploadsUnknown, match="AbortIncompleteMultipartUpload"):
        await google.list_uploads()
    azure = other("az", "http://127.0.0.1:1", tmp_path)
    assert await azure.list_uploads() == []


@on_a_loop
async def test_a_request_is_repeated_a_bounded_number_of_times() -> None:
    async with fake_s3(lambda *_: Response(503, "SlowDown")) as fake:
        store = s3(fake.url, attempts=3)
        with pytest.raises(StoreError, match="503"):
            await store.get("key")
        assert len(fake.requests) == 3
        await store.close()


@on_a_loop
async def test_a_request_that_fails_once_is_repeated() -> None:
    answers = [Response(503, "SlowDown"), Response(200)]
    async with fake_s3(lambda *_: answers.pop(0)) as fake:
        store = s3(fake.url, attempts=2)
        await store.put("key", b"1", 1)
        assert fake.requests == ["PUT /bucket/pre/fix/key"] * 2
        await store.close()


@on_a_loop
async def test_a_server_that_never_answers_is_given_up() -> None:
    async with fake_s3(lambda *_: None) as fake:
        store = s3(fake.url, request_timeout_ms=200)
        for call in (store.get("key"), store.put("key", b"1", 1)):
            with pytest.raises(StoreError) as failure:
                await call
            assert not isinstance(failure.value, StoreRefused)
        await store.close()


@on_a_loop
async def test_a_server_that_is_not_there_may_be_later() -> None:
    store = s3("http://127.0.0.1:1")
    with pytest.raises(StoreError) as failure:
        await store.put("key", b"1", 1)
    assert type(failure.value) is StoreError
    assert "key in s3://bucket/pre/fix" in str(failure.value)
    await store.close()


@on_a_loop
async def test_a_multipart_upload_whose_parts_fail_is_aborted() -> None:

    def answer(method: str, target: str, _: object) -> Response:
        if method == "POST" and "?uploads" in target:
            return Response(200, body=BEGUN)
        return Response(204) if method == "DELETE" else Response(503, "SlowDown")

    async with fake_s3(answer) as fake:
        store = s3(fake.url)
        with pytest.raises(StoreError, match="503"):
            await store.put("key", pattern(4 * PART), 4 * PART)
        # A part that was on its way may come after it.
        aborted = "DELETE /bucket/pre/fix/key?uploadId=42"
        assert any(request.startswith(aborted) for request in fake.requests)
        await store.close()


@on_a_loop
async def test_a_large_body_is_never_in_memory_whole() -> None:
    alive = most = 0

    class Part(bytearray):
        def __init__(self) -> None:
            nonlocal alive, most
            super().__init__(PART)
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    async def body() -> AsyncIterator[Buffer]:
        for _ in range(20):
            yield Part()

    ended = b'<CompleteMultipartUploadResult><ETag>"1"</ETag></CompleteMultipartUploadResult>'

    def answer(method: str, target: str, _: object) -> Response:
        return Response(200, body=BEGUN if "?uploads" in target else ended)

    async with fake_s3(answer) as fake:
        store = s3(fake.url)
        await store.put("key", body(), 20 * PART)
        assert sum("partNumber" in request for request in fake.requests) == 20
        await store.close()
    assert most <= 6  # two on their way, and those that are handed over


@pytest.mark.parametrize("status", [200, 403, 404, 500])
@on_a_loop
async def test_no_secret_is_shown(status: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo = Response(status, body=f"{KEY} {SECRET} {TOKEN} \n<Code>{SECRET}</Code>".encode())
    async with fake_s3(lambda *_: echo) as fake:
        store = s3(fake.url)
        texts = [repr(store), str(store), store.url]
        for call in (
            store.get(f"{SECRET}/key"),
            store.put("key", b"1", 1),
            store.delete(["key"]),
            anext(aiter(store.list_objects())),
            store.list_uploads(),
        ):
            try:
                await call
            except StoreError as error:
                texts += traceback.format_exception(error)  # all that a log line could show
        await store.close()
    for text in (*texts, caplog.text):
        assert not any(secret in text for secret in (KEY, SECRET, TOKEN))


@on_a_loop
async def test_credentials_that_cannot_be_read_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(StoreRefused):
        open_store("gs://bucket", StoreOptions(secret_access_key=str(tmp_path / "nobody.json")))
    (tmp_path / "wrong.json").write_text('{"private_key": "VERYSECRET2"}')
    with pytest.raises(StoreRefused) as refusal:
        open_store("gs://bucket", StoreOptions(secret_access_key=str(tmp_path / "wrong.json")))
    assert "VERYSECRET2" not in str(refusal.value)


@on_a_loop
async def test_uploads_that_cannot_be_listed_are_said_to_be_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "one")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "two")
    store = open_store("s3://bucket", StoreOptions(region="eu-west-1"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(UploadsUnknown, match="AbortIncompleteMultipartUpload"):
        await store.list_uploads()
    await store.close()


@on_a_loop
async def test_a_name_in_the_bucket_that_cannot_be_listed_is_said() -> None:
    page = b"""<ListBucketResult><Contents><Key>pre/fix/a/../b</Key><Size>1</Size>
    <LastModified>2026-11-18T12:00:00.000Z</LastModified></Contents></ListBucketResult>"""
    async with fake_s3(lambda *_: Response(200, body=page)) as fake:
        store = s3(fake.url)
        with pytest.raises(StoreRefused, match=r"pre/fix/a/\.\./b"):
            await anext(aiter(store.list_objects()))
        await store.close()


@on_a_loop
async def test_the_loop_runs_while_a_store_is_slow() -> None:
    """A call that waits for a server holds up nothing else."""
    async with fake_s3(lambda *_: None) as fake:
        store = s3(fake.url)
        assert isinstance(store, ObstoreStore)
        get = asyncio.create_task(store.get("key"))
        while not fake.requests:
            await asyncio.sleep(0)
        get.cancel()
        with pytest.raises(asyncio.CancelledError):
            await get
        await store.close()


@pytest.mark.parametrize("is_allowed", [False, True])
@on_a_loop
async def test_an_address_without_https_is_refused_unless_the_environment_allows_it(
    is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", str(is_allowed).lower())
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    options = StoreOptions(
        region="eu-west-1", access_key_id=KEY, secret_access_key=SECRET, attempts=1
    )
    store = open_store("s3://bucket", options)
    with pytest.raises(StoreError) as raised:
        await store.get("key")
    await store.close()
    assert isinstance(raised.value, StoreRefused) != is_allowed
    assert ("allow.http" in str(raised.value)) != is_allowed
