"""Requests to S3 that are signed here: the same signature as Amazon's own library, and pages."""

from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from headrace.remote.object_store import open_store
from headrace.remote.s3_uploads import _Bucket, _signed_headers
from headrace.remote.store import StoreError
from headrace.remote.store_options import StoreOptions
from tests.unit.remote.fake_s3 import Response, fake_s3
from tests.unit.remote.loops import on_a_loop

PAGE = """<ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
<IsTruncated>{more}</IsTruncated><NextKeyMarker>k 1</NextKeyMarker>
<NextUploadIdMarker>u/1</NextUploadIdMarker>
<Upload><Key>pre/{key}</Key><UploadId>{key}!</UploadId>
<Initiated>2026-11-18T12:00:00.000Z</Initiated></Upload></ListMultipartUploadsResult>"""


@pytest.mark.parametrize("token", [None, "token/with+signs="])
@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", "/bucket", "prefix=pre%2Ffix%2F&uploads="),
        ("GET", "/", "prefix=&uploads="),
        ("DELETE", "/bucket/pre/a%20b.log", "uploadId=4%2B2"),
    ],
)
def test_signatures_are_those_of_botocore(
    method: str, path: str, query: str, token: str | None
) -> None:
    class Fixed(S3SigV4Auth):  # type: ignore[misc, unused-ignore]
        def add_auth(self, request: AWSRequest) -> None:
            request.context["timestamp"] = "20261118T120000Z"
            self._modify_request_before_signing(request)
            canonical = self.canonical_request(request)
            signature = self.signature(self.string_to_sign(request, canonical), request)
            self._inject_signature_to_request(request, signature)

    request = AWSRequest(method=method, url=f"https://s3.test{path}?{query}")
    Fixed(Credentials("AKID", "secret", token), "s3", "eu-west-1").add_auth(request)
    bucket = _Bucket("https://s3.test", "s3.test", "/bucket", "eu-west-1", "AKID", "secret", token)
    now = datetime(2026, 11, 18, 12, tzinfo=UTC)
    ours = _signed_headers(method, bucket, path, query, now)
    assert ours["authorization"] == request.headers["Authorization"]


def opened(endpoint: str) -> StoreOptions:
    return StoreOptions(
        endpoint=endpoint,
        access_key_id="access",
        secret_access_key="secret",
        session_token="token",
        allow_http=True,
        attempts=1,
    )


@on_a_loop
async def test_all_pages_are_read_with_the_session_token() -> None:
    seen: list[dict[str, list[str]]] = []

    def answer(method: str, target: str, headers: dict[str, str]) -> Response:
        seen.append(parse_qs(urlsplit(target).query, keep_blank_values=True))
        assert headers["x-amz-security-token"] == "token"
        is_first = "key-marker" not in seen[-1]
        page = PAGE.format(more=str(is_first).lower(), key="a" if is_first else "b")
        return Response(200, body=page.encode())

    async with fake_s3(answer) as fake:
        store = open_store("s3://bucket/pre", opened(fake.url))
        found = await store.list_uploads()
        await store.close()
    assert [(upload.key, upload.upload_id) for upload in found] == [("a", "a!"), ("b", "b!")]
    assert found[0].began_ms == 1_795_003_200_000
    assert seen == [
        {"prefix": ["pre/"], "uploads": [""]},
        {
            "prefix": ["pre/"],
            "uploads": [""],
            "key-marker": ["k 1"],
            "upload-id-marker": ["u/1"],
        },
    ]


@pytest.mark.parametrize("body", [b"", b"no xml", b"<a><Upload><Key>pre/x</Key></Upload></a>"])
@on_a_loop
async def test_a_list_that_cannot_be_read_is_an_error(body: bytes) -> None:
    async with fake_s3(lambda *_: Response(200, body=body)) as fake:
        store = open_store("s3://bucket/pre", opened(fake.url))
        with pytest.raises(StoreError):
            await store.list_uploads()
        await store.close()
