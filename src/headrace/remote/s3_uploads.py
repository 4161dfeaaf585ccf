"""Unfinished multipart uploads of S3: listed and aborted, which obstore cannot.

A request of obstore's own, signed and never sent, says where the bucket is, which region and which
access key obstore uses. With the secret of that key the two requests are signed here (AWS
Signature Version 4). Where obstore has its credentials from elsewhere than settings or the
environment variables, such as the role of a machine, nobody but obstore knows the secret:
UploadsUnknown says so, and a lifecycle rule of the bucket (AbortIncompleteMultipartUpload) is the
way out.
"""

import asyncio
import hashlib
import hmac
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from urllib.parse import parse_qs, quote, urlsplit
from xml.etree import ElementTree

import obstore
from obstore.store import S3Store

from headrace.remote.store import (
    StoreError,
    StoreRefused,
    UnfinishedUpload,
    UploadsUnknown,
)
from headrace.remote.store_failures import hide
from headrace.remote.store_options import StoreOptions, StoreUrl
from headrace.surroundings import clocks

PAGES_MAX: Final = 1000
RESPONSE_BYTES_MAX: Final = 16 * 1024 * 1024

_EMPTY_HASH: Final = hashlib.sha256(b"").hexdigest()
_PROBE: Final = "probe"


class _Bucket(NamedTuple):
    """Where a bucket is, and what requests to it are signed with."""

    base: str
    """Scheme and host."""
    host: str
    path: str
    region: str
    access_key_id: str
    secret: str
    token: str | None


class S3Uploads:
    """The unfinished uploads below the prefix of a store."""

    def __init__(self, url: StoreUrl, options: StoreOptions, store: S3Store) -> None:
        self._url = url
        self._options = options
        self._store = store
        self._prefix = f"{url.path}/" if url.path else ""

    async def find(self) -> list[UnfinishedUpload]:
        """Return all of them. The work is done in a thread."""
        bucket = await self._bucket()
        return await asyncio.to_thread(self._find, bucket)

    async def abort(self, upload: UnfinishedUpload) -> None:
        """Drop one; if it is gone, that is fine."""
        bucket = await self._bucket()
        key = quote(self._prefix + upload.key, safe="/-_.~")
        await asyncio.to_thread(
            self._send, "DELETE", bucket, f"/{key}", {"uploadId": upload.upload_id}
        )

    def _find(self, bucket: _Bucket) -> list[UnfinishedUpload]:
        found: list[UnfinishedUpload] = []
        query = {"prefix": self._prefix, "uploads": ""}
        for _ in range(PAGES_MAX):
            page = _parse(self._send("GET", bucket, "", query))
            found += [
                upload._replace(key=upload.key.removeprefix(self._prefix))
                for upload in page.uploads
                if upload.key.startswith(self._prefix)
            ]
            if page.next is None:
                return found
            query = {"prefix": self._prefix, "uploads": "", **page.next}
        raise StoreError(f"{self._url.text} has more than {PAGES_MAX} pages of unfinished uploads")

    async def _bucket(self) -> _Bucket:
        """Return what obstore would use; UploadsUnknown without the secret of its key."""
        try:
            signed = await obstore.sign_async(
                self._store, "GET", _PROBE, timedelta(milliseconds=60_000)
            )
        except Exception:  # obstore found no credentials
            raise UploadsUnknown(_cannot(self._url)) from None
        parts = urlsplit(signed)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        access_key_id, _, region, *_ = query["X-Amz-Credential"].split("/")
        secret = self._secret(access_key_id)
        probe = f"/{quote(self._prefix)}{_PROBE}"
        if secret is None or not parts.path.endswith(probe):
            raise UploadsUnknown(_cannot(self._url))
        return _Bucket(
            f"{parts.scheme}://{parts.netloc}",
            parts.netloc,
            parts.path.removesuffix(probe),
            region,
            access_key_id,
            secret,
            query.get("X-Amz-Security-Token"),
        )

    def _secret(self, access_key_id: str) -> str | None:
        if self._options.access_key_id == access_key_id:
            return self._options.secret_access_key
        if os.environ.get("AWS_ACCESS_KEY_ID") == access_key_id:
            return os.environ.get("AWS_SECRET_ACCESS_KEY")
        return None

    def _send(self, method: str, bucket: _Bucket, path: str, query: Mapping[str, str]) -> bytes:
        text = "&".join(
            f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
            for name, value in sorted(query.items())
        )
        now = datetime.fromtimestamp(clocks().time_ns() / 1e9, UTC)
        full_path = (bucket.path + path) or "/"
        request = urllib.request.Request(
            f"{bucket.base}{full_path}?{text}",
            method=method,
            headers=_signed_headers(method, bucket, full_path, text, now),
        )
        doing = f"cannot {'list' if method == 'GET' else 'abort'} uploads in {self._url.text}"
        try:
            with urllib.request.urlopen(
                request, timeout=self._options.request_timeout_ms / 1000
            ) as response:
                return bytes(response.read(RESPONSE_BYTES_MAX))
        except urllib.error.HTTPError as error:
            error.close()
            if method == "DELETE" and error.code == 404:
                return b""
            refused = error.code in (301, 307, 400, 401, 403, 404, 405, 501)
            raise (StoreRefused if refused else StoreError)(f"{doing}: {error.code}") from None
        except (OSError, ValueError) as error:
            reason = hide(str(error), (*self._options.secrets, bucket.secret))
            raise StoreError(f"{doing}: {reason}") from None


class _Page(NamedTuple):
    uploads: list[UnfinishedUpload]
    next: dict[str, str] | None
    """What the next page is asked for with."""


def _parse(response: bytes) -> _Page:
    try:
        root = ElementTree.fromstring(response)
        uploads = [
            UnfinishedUpload(
                upload.findtext("{*}Key", ""),
                upload.findtext("{*}UploadId", ""),
                int(datetime.fromisoformat(upload.findtext("{*}Initiated", "")).timestamp() * 1000),
            )
            for upload in root.iterfind("{*}Upload")
        ]
    except (ElementTree.ParseError, ValueError):
        raise StoreError("the store's list of unfinished uploads cannot be read") from None
    if root.findtext("{*}IsTruncated", "") != "true":
        return _Page(uploads, None)
    return _Page(
        uploads,
        {
            "key-marker": root.findtext("{*}NextKeyMarker", ""),
            "upload-id-marker": root.findtext("{*}NextUploadIdMarker", ""),
        },
    )


def _signed_headers(
    method: str, bucket: _Bucket, path: str, query: str, now: datetime
) -> dict[str, str]:
    """Return the headers of a request without a body, by AWS Signature Version 4."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": bucket.host, "x-amz-content-sha256": _EMPTY_HASH, "x-amz-date": stamp}
    if bucket.token is not None:
        headers["x-amz-security-token"] = bucket.token
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{_EMPTY_HASH}"
    scope = f"{stamp[:8]}/{bucket.region}/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{bucket.secret}".encode()
    for step in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"):
        key = hmac.digest(key, step.encode(), "sha256")
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={bucket.access_key_id}/{scope}, "
        f"SignedHeaders={names}, Signature={key.hex()}"
    )
    return headers


def _cannot(url: StoreUrl) -> str:
    return (
        f"the unfinished uploads of {url.text} cannot be listed without the access key in "
        "headrace.tier.store.access.key.id or AWS_ACCESS_KEY_ID; a lifecycle rule of the bucket, "
        "AbortIncompleteMultipartUpload, ends them"
    )
