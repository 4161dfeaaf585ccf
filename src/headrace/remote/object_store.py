"""Stores of the big providers, through obstore; `folder_store` has folders.

obstore repeats a request that failed, bounded by `StoreOptions.attempts` and its timeouts. What
still fails raises StoreError without obstore's own text, which may show a token.

Large objects are multipart uploads: a few parts are in memory, never the whole. If the body fails
or the caller is cancelled, the upload is aborted. Only a crash leaves one unfinished, and
`list_uploads` finds it on S3.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import GCSStore, S3Store

from headrace.remote.folder_store import FolderStore
from headrace.remote.part_feed import PartFeed
from headrace.remote.providers import open_native
from headrace.remote.s3_uploads import S3Uploads
from headrace.remote.store import (
    Body,
    NoSuchObject,
    ObjectStore,
    StoreCounts,
    StoredObject,
    StoreError,
    StoreRefused,
    UnfinishedUpload,
    UploadsUnknown,
)
from headrace.remote.store_failures import failure_of, is_beyond_end, is_unsupported
from headrace.remote.store_options import StoreOptions, StoreUrl, parse_store_url
from headrace.wire.schema import Buffer

PAGE_OBJECTS: Final = 1000
"""Objects in a page of a listing, and in a request to delete, at most."""
DELETES_AT_ONCE: Final = 10
ABORT_SECONDS_MAX: Final = 5.0
"""How long a put that failed, or a store that is closed, waits until uploads are aborted."""

_FAILED: Final = (BaseError, OSError, ValueError)
"""What obstore raises; FileNotFoundError is an OSError."""


def open_store(url: str, options: StoreOptions | None = None) -> ObjectStore:
    """Return the store of a URL; StoreRefused if the URL or the options cannot be meant.

    Nothing is sent yet: whether it is there shows at the first call.
    """
    options = options or StoreOptions()
    parts = parse_store_url(url, options)
    if parts.scheme == "file":
        return FolderStore(parts.path, options)
    return ObstoreStore(parts, options)


class ObstoreStore:
    """An `ObjectStore` of S3, Google, Azure or memory."""

    def __init__(self, url: StoreUrl, options: StoreOptions) -> None:
        self.counts = StoreCounts()
        self._url = url
        self._options = options
        try:
            self._native = open_native(url, options)
        except _FAILED as error:
            raise StoreRefused(
                str(failure_of(error, f"cannot open {url.text}", options.secrets))
            ) from None
        self._has_bulk_delete = url.scheme in ("s3", "az")
        self._aborting: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"ObstoreStore({self.url})"

    @property
    def url(self) -> str:
        return self._url.text

    async def put(self, key: str, body: Body, size_bytes: int) -> None:
        part_bytes = self._options.part_bytes
        if isinstance(body, Buffer):
            if len(body) != size_bytes:
                raise _wrong_size(key, size_bytes)
            if size_bytes > part_bytes:
                await self._put_parts(key, _slices(body, part_bytes), size_bytes)
                return
            whole = body
        elif size_bytes > part_bytes:
            await self._put_parts(key, body, size_bytes)
            return
        else:
            whole = await _collect(key, body, size_bytes)
        self.counts.puts += 1
        self.counts.put_bytes += size_bytes
        try:
            await obstore.put_async(self._native, key, whole, use_multipart=False)
        except _FAILED as error:
            raise self._failed(error, f"cannot write {key}", is_write=True) from None

    async def create(self, key: str, data: Buffer) -> bool:
        self.counts.puts += 1
        try:
            await obstore.put_async(self._native, key, data, mode="create")
        except AlreadyExistsError:
            return False
        except _FAILED as error:
            if is_unsupported(error):
                return await self._create_by_two_steps(key, data)
            raise self._failed(error, f"cannot create {key}", is_write=True) from None
        self.counts.put_bytes += len(data)
        return True

    async def get(self, key: str, begin: int = 0, end: int | None = None) -> Buffer:
        if end is not None and end <= begin:
            return b""
        self.counts.gets += 1
        try:
            data = memoryview(await self._get(key, begin, end))
        except _FAILED as error:
            if is_beyond_end(error):
                return b""
            raise self._failed(error, f"cannot read {key}") from None
        self.counts.get_bytes += len(data)
        return data

    async def delete(self, keys: Iterable[str]) -> None:
        named = list(keys)
        for first in range(0, len(named), PAGE_OBJECTS):
            page = named[first : first + PAGE_OBJECTS]
            try:
                if self._has_bulk_delete:
                    await self._delete_at_once(page)
                else:
                    await self._delete_each(page)
            except _FAILED as error:
                raise self._failed(error, f"cannot delete {_name(page)}") from None

    async def list_objects(self, prefix: str = "") -> AsyncIterator[list[StoredObject]]:
        # obstore's prefixes are whole steps of a path.
        folder = prefix.rpartition("/")[0]
        try:
            pages = obstore.list(self._native, folder or None, chunk_size=PAGE_OBJECTS)
            async for page in pages:
                self.counts.lists += 1
                found = [
                    StoredObject(
                        meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000)
                    )
                    for meta in page
                    if meta["path"].startswith(prefix)
                ]
                if found:
                    yield found
        except _FAILED as error:
            raise self._failed(error, f"cannot list {prefix}*", is_write=True) from None

    async def list_uploads(self) -> list[UnfinishedUpload]:
        if isinstance(self._native, S3Store):
            self.counts.lists += 1
            return await self._s3_uploads().find()
        if isinstance(self._native, GCSStore):
            raise UploadsUnknown(
                f"{self.url} cannot list its unfinished uploads: a lifecycle rule of the bucket, "
                "AbortIncompleteMultipartUpload, ends them"
            )
        return []  # Azure forgets blocks that nobody committed after a week.

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        if isinstance(self._native, S3Store):
            self.counts.deletes += 1
            await self._s3_uploads().abort(upload)

    async def hold(self, key: str, data: Buffer) -> None:
        """Do nothing: a bucket stays what it is."""

    async def close(self) -> None:
        if self._aborting:
            _, late = await asyncio.wait(self._aborting, timeout=ABORT_SECONDS_MAX)
            for task in late:
                task.cancel()

    async def _create_by_two_steps(self, key: str, data: Buffer) -> bool:
        """Do what a store cannot that knows no conditions; another one may come in between."""
        try:
            await self.get(key)
        except NoSuchObject:
            await self.put(key, data, len(data))
            return True
        return False

    async def _get(self, key: str, begin: int, end: int | None) -> Any:
        if end is not None:
            return await obstore.get_range_async(self._native, key, start=begin, end=end)
        if begin:
            found = await obstore.get_async(self._native, key, options={"range": {"offset": begin}})
        else:
            found = await obstore.get_async(self._native, key)
        return await found.bytes_async()

    async def _delete_at_once(self, keys: list[str]) -> None:
        self.counts.deletes += 1
        try:
            await obstore.delete_async(self._native, keys)
        except FileNotFoundError as error:
            # Azure tells of the first one that is not there, and not what became of the others.
            if not isinstance(self._failed(error, ""), NoSuchObject):
                raise
            await self._delete_each(keys)

    async def _delete_each(self, keys: list[str]) -> None:
        for first in range(0, len(keys), DELETES_AT_ONCE):
            some = keys[first : first + DELETES_AT_ONCE]
            self.counts.deletes += len(some)
            outcomes = await asyncio.gather(
                *(obstore.delete_async(self._native, key) for key in some), return_exceptions=True
            )
            for outcome in outcomes:
                if isinstance(outcome, FileNotFoundError) and isinstance(
                    failure_of(outcome, ""), NoSuchObject
                ):
                    continue
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _put_parts(self, key: str, body: AsyncIterator[Buffer], size_bytes: int) -> None:
        """Write a multipart upload; abort it if the body fails or the caller is cancelled."""
        feed = PartFeed()
        upload = asyncio.create_task(self._upload(key, feed))
        upload.add_done_callback(lambda _: feed.close())
        sent_bytes = 0
        try:
            async for part in body:
                sent_bytes += len(part)
                if sent_bytes > size_bytes or not await feed.put(part):
                    break
            if not feed.is_closed and sent_bytes != size_bytes:
                raise _wrong_size(key, size_bytes)
            feed.end()
            await asyncio.shield(upload)
        except asyncio.CancelledError:
            self._abort(upload, feed)  # whoever is cancelled does not wait for a store
            raise
        except Exception as error:
            if upload.done() and not upload.cancelled() and upload.exception() is error:
                raise self._failed(error, f"cannot write {key}", is_write=True) from None
            await asyncio.wait({self._abort(upload, feed)}, timeout=ABORT_SECONDS_MAX)
            raise
        self.counts.put_bytes += size_bytes
        self.counts.puts += 2 + -(-size_bytes // self._options.part_bytes)

    async def _upload(self, key: str, feed: PartFeed) -> None:
        await obstore.put_async(
            self._native,
            key,
            feed,
            use_multipart=True,
            chunk_size=self._options.part_bytes,
            max_concurrency=self._options.parts_at_once,
        )

    def _abort(self, upload: asyncio.Task[None], feed: PartFeed) -> asyncio.Task[None]:
        """Make obstore abort an upload, which it does when the body fails."""

        async def wait() -> None:
            with suppress(*_FAILED, StoreError):
                await upload

        feed.end(StoreError("the upload was given up"))
        task = asyncio.create_task(wait())
        self._aborting.add(task)
        task.add_done_callback(self._aborting.discard)
        return task

    def _failed(self, error: Exception, doing: str, *, is_write: bool = False) -> StoreError:
        failure = failure_of(error, f"{doing} in {self.url}", self._options.secrets)
        if is_write and isinstance(failure, NoSuchObject):
            # Nothing has to be there to write or to list, but for the bucket.
            failure = StoreRefused(f"{doing} in {self.url}: there is no such bucket")
        if not isinstance(failure, NoSuchObject):
            self.counts.errors += 1
        return failure

    def _s3_uploads(self) -> S3Uploads:
        assert isinstance(self._native, S3Store)
        return S3Uploads(self._url, self._options, self._native)


async def _collect(key: str, body: AsyncIterator[Buffer], size_bytes: int) -> bytes:
    collected: list[Buffer] = []
    left_bytes = size_bytes
    async for part in body:
        collected.append(part)
        left_bytes -= len(part)
        if left_bytes < 0:
            break
    if left_bytes:
        raise _wrong_size(key, size_bytes)
    return b"".join(collected)


async def _slices(data: Buffer, part_bytes: int) -> AsyncIterator[Buffer]:
    view = memoryview(data)
    for position in range(0, len(view), part_bytes):
        yield view[position : position + part_bytes]


def _wrong_size(key: str, size_bytes: int) -> StoreError:
    return StoreError(f"{key} was not written: its body does not have the {size_bytes} bytes said")


def _name(keys: list[str]) -> str:
    return keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more"
