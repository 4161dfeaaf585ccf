"""The port through which the tier reaches an object store.

`remote.object_store` keeps these promises with obstore, `headrace.testing.store` keeps the same
ones in memory and breaks, by seed, everything that is not promised here.

An object is written once, whole, and never changed: a put that failed may have left it or not, and
is repeated or deleted. A listing may lag behind puts and deletions. Keys are relative to the prefix
of the store, with `/`.
"""

from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from headrace.remote.segments import TierError
from headrace.wire.schema import Buffer

Body: TypeAlias = Buffer | AsyncIterator[Buffer]
"""The bytes of an object, or the parts that it consists of, in order and of any size.

They must not change afterwards: a store may send a part while it asks for the next ones.
"""


class StoreError(TierError):
    """The store did not do what it was asked for; later it may."""


class StoreRefused(StoreError):
    """The store will not do it however often it is asked: credentials, permissions, no bucket."""


class NoSuchObject(StoreError):
    """There is no object of that name."""


class DamagedObject(StoreError):
    """An object is not what was written: it is too short, or its checksum differs."""


class UploadsUnknown(StoreError):
    """Unfinished uploads may exist, and there is no way to list them with what is known."""


class StoreCounts(msgspec.Struct, gc=False):
    """What a store was asked for: requests as a provider bills them, and bytes of objects."""

    puts: int = 0
    """Objects written at once; of a multipart upload its beginning, each part and its end."""
    put_bytes: int = 0
    gets: int = 0
    get_bytes: int = 0
    deletes: int = 0
    """Requests to delete: one may name up to a thousand objects."""
    lists: int = 0
    """Pages of listings."""
    errors: int = 0
    """Calls that failed for good; an object that is not there is no failure."""


class StoredObject(NamedTuple):
    """An object, as a listing has it."""

    key: str
    size_bytes: int
    modified_ms: int


class UnfinishedUpload(NamedTuple):
    """A multipart upload that was begun and neither completed nor aborted: it costs money."""

    key: str
    upload_id: str
    began_ms: int


class ObjectStore(Protocol):
    """Objects by key. Used from the loop; nothing blocks it."""

    counts: StoreCounts

    @property
    def url(self) -> str:
        """Where it is, without a secret."""

    async def put(self, key: str, body: Body, size_bytes: int) -> None:
        """Write an object whole; it is durable on return. StoreError if it may not be there."""

    async def create(self, key: str, data: Buffer) -> bool:
        """Write a small object unless one has the name, and return whether it was written.

        False also if an earlier attempt of the same call wrote it, and its response was lost.
        """

    async def get(self, key: str, begin: int = 0, end: int | None = None) -> Buffer:
        """Read from `begin` up to, not including, `end`; less only if the object ends before.

        Raise NoSuchObject or StoreError.
        """

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are not there are fine."""

    def list_objects(self, prefix: str = "") -> AsyncIterator[list[StoredObject]]:
        """Yield the objects whose keys begin with a prefix, in pages and in no promised order."""

    async def list_uploads(self) -> list[UnfinishedUpload]:
        """Return the unfinished multipart uploads; none if the store has no such thing.

        Those that are under way are among them. Raise UploadsUnknown if they cannot be listed.
        """

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Drop an unfinished upload; one that is gone is fine."""

    async def hold(self, key: str, data: Buffer) -> None:
        """Fail from now on where an object is not there, or has other bytes: it tells the store.

        Only a folder can become another one under a running process, as something is mounted there
        or no more. It is noticed at once, and looked at again at each call.
        """

    async def close(self) -> None:
        """Release its resources, without waiting long for calls that are under way."""
