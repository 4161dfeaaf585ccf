"""An in-memory object store that keeps the port's promises and, by seed, nothing beyond them.

Faults are armed beforehand: errors before or after the effect, lost puts, a late listing, slow
calls, a store that is away or refuses the credentials, objects that somebody changed. The same seed
and the same calls have the same outcome. It waits on the running loop only, so it serves a virtual
loop, several simulated hosts at once, and ordinary tests.

    store = SimulatedStore(seed=7)
    store.fail("put", "*.log", takes_effect=True)
    store.go_away(duration_ms=3_600_000)
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random
from types import MappingProxyType
from typing import Final, Literal

from headrace.remote.store import (
    Body,
    NoSuchObject,
    StoreCounts,
    StoredObject,
    StoreError,
    StoreRefused,
    UnfinishedUpload,
)
from headrace.surroundings import clocks
from headrace.wire.schema import Buffer

Operation = Literal["put", "get", "delete", "list", "list_uploads", "abort_upload"]

ALWAYS: Final = 2**63
PAGE_OBJECTS: Final = 1000
"""Objects that a page of a listing has, and that a deletion names, at most."""


@dataclass
class _Fault:
    operation: Operation
    key_pattern: str
    times_left: int
    error: type[StoreError] | None
    """None for a call that succeeds without its effect."""
    takes_effect: bool
    leaves_upload: bool


@dataclass
class _Listed:
    """A change that listings show from some time on."""

    key: str
    listed: StoredObject | None
    visible_seconds: float


class SimulatedStore:
    """An `ObjectStore` whose faults follow from `seed`."""

    def __init__(
        self,
        seed: int = 0,
        *,
        time_ms: Callable[[], int] | None = None,
        seconds: Callable[[], float] | None = None,
    ) -> None:
        """`time_ms` is the store's wall clock, `seconds` what measures how long it is away.

        By default they are the machine's and the running loop's; the loops of simulated hosts
        differ, so a simulation gives its own.
        """
        self.counts = StoreCounts()
        self.calls: list[tuple[Operation, str]] = []
        """Every call with its key, those that failed included."""
        self.is_closed = False
        self._time_ms = time_ms or _machine_time_ms
        self._seconds = seconds or _loop_seconds
        self._random = Random(f"store/{seed}")
        self._objects: dict[str, bytes] = {}
        self._modified_ms: dict[str, int] = {}
        self._uploads: dict[str, UnfinishedUpload] = {}
        self._faults: list[_Fault] = []
        self._probability = 0.0
        self._latency_ms = (0.0, 0.0)
        self._away_until: float | None = None
        self._refusal: str | None = None
        self._listing_lag_ms = 0
        self._listed: dict[str, StoredObject] = {}
        self._unlisted: list[_Listed] = []

    # What is in it, at once and without faults

    @property
    def objects(self) -> Mapping[str, bytes]:
        """What is in the store at this instant."""
        return MappingProxyType(self._objects)

    def write(self, key: str, data: bytes) -> None:
        """Write an object, as somebody else would."""
        self._put(key, data)

    def remove(self, key: str) -> None:
        """Delete an object, as somebody else would."""
        self._delete(key)

    def corrupt(self, key: str) -> None:
        """Flip a bit of an object, by the seed."""
        data = bytearray(self._objects[key])
        position = self._random.randrange(len(data))
        data[position] ^= 1 << self._random.randrange(8)
        self._objects[key] = bytes(data)

    def truncate(self, key: str, size_bytes: int) -> None:
        """Cut an object short."""
        self._put(key, self._objects[key][:size_bytes])

    # What goes wrong

    def fail(
        self,
        operation: Operation,
        key_pattern: str = "*",
        *,
        error: type[StoreError] = StoreError,
        times: int = 1,
        takes_effect: bool = False,
        leaves_upload: bool = False,
    ) -> None:
        """Make the next `times` calls for keys that match (as `fnmatch`; `*` is any) fail.

        With `takes_effect` the call does its work and fails nevertheless. With `leaves_upload` a
        put leaves an unfinished upload behind.
        """
        self._faults.append(
            _Fault(operation, key_pattern, times, error, takes_effect, leaves_upload)
        )

    def fail_randomly(self, probability: float) -> None:
        """Make calls fail with a probability from now on, before or after their effect."""
        self._probability = probability

    def lose_puts(self, key_pattern: str = "*", *, times: int = 1) -> None:
        """Make the next puts of matching keys report success and do nothing."""
        self._faults.append(_Fault("put", key_pattern, times, None, False, False))

    def slow_down(self, least_ms: float, most_ms: float | None = None) -> None:
        """Make every call take a time in between, by the seed."""
        self._latency_ms = (least_ms, least_ms if most_ms is None else most_ms)

    def go_away(self, *, duration_ms: int | None = None) -> None:
        """Fail every call until `come_back`, or for a time on the caller's loop."""
        self._away_until = (
            float("inf") if duration_ms is None else self._seconds() + duration_ms / 1000
        )

    def come_back(self) -> None:
        self._away_until = None

    def refuse(self, reason: str = "the credentials are wrong") -> None:
        """Refuse every call until `accept`."""
        self._refusal = reason

    def accept(self) -> None:
        self._refusal = None

    def list_late(self, lag_ms: int) -> None:
        """Show changes from now on in listings only after up to `lag_ms` on the loop."""
        self._listing_lag_ms = lag_ms

    def settle(self) -> None:
        """Show in listings what is there."""
        self._show(float("inf"))

    def heal(self) -> None:
        """Disarm every fault, and settle. Lost puts stay lost."""
        self._faults.clear()
        self._probability = 0.0
        self._latency_ms = (0.0, 0.0)
        self._listing_lag_ms = 0
        self.come_back()
        self.accept()
        self.settle()

    # What the port promises

    @property
    def url(self) -> str:
        return "simulated://store"

    async def put(self, key: str, body: Body, size_bytes: int) -> None:
        data = bytes(body) if isinstance(body, Buffer) else b"".join([part async for part in body])
        if len(data) != size_bytes:
            self.counts.errors += 1
            raise StoreError(f"{key}: {size_bytes} bytes were announced and {len(data)} came")
        self.counts.puts += 1
        self.counts.put_bytes += size_bytes
        await self._call("put", key, lambda: self._put(key, data))

    async def create(self, key: str, data: Buffer) -> bool:
        was_there = False

        def put() -> None:
            nonlocal was_there
            was_there = key in self._objects
            if not was_there:
                self._put(key, bytes(data))

        self.counts.puts += 1
        await self._call("put", key, put)
        return not was_there

    async def get(self, key: str, begin: int = 0, end: int | None = None) -> Buffer:
        self.counts.gets += 1
        await self._call("get", key)
        data = self._objects.get(key)
        if data is None:
            raise NoSuchObject(f"there is no {key} in {self.url}")
        found = data[begin:end]
        self.counts.get_bytes += len(found)
        return found

    async def delete(self, keys: Iterable[str]) -> None:
        named = list(keys)
        for first in range(0, len(named), PAGE_OBJECTS):
            self.counts.deletes += 1
            for key in named[first : first + PAGE_OBJECTS]:
                await self._call("delete", key, lambda key=key: self._delete(key))  # type: ignore[misc]

    async def list_objects(self, prefix: str = "") -> AsyncIterator[list[StoredObject]]:
        await self._call("list", prefix)
        self._show(self._seconds())
        found = [listed for key, listed in self._listed.items() if key.startswith(prefix)]
        self._random.shuffle(found)
        for first in range(0, max(1, len(found)), PAGE_OBJECTS):
            self.counts.lists += 1
            yield found[first : first + PAGE_OBJECTS]

    async def list_uploads(self) -> list[UnfinishedUpload]:
        self.counts.lists += 1
        await self._call("list_uploads", "")
        return list(self._uploads.values())

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        self.counts.deletes += 1
        await self._call(
            "abort_upload", upload.key, lambda: self._uploads.pop(upload.upload_id, None)
        )

    async def hold(self, key: str, data: Buffer) -> None:
        """Do nothing: it stays what it is."""

    async def close(self) -> None:
        self.is_closed = True

    # How a call goes

    async def _call(
        self, operation: Operation, key: str, effect: Callable[[], object] | None = None
    ) -> None:
        """Wait, do the effect or not, fail or not."""
        self.calls.append((operation, key))
        least_ms, most_ms = self._latency_ms
        latency = self._random.uniform(least_ms, most_ms) / 1000
        before = self._random.random() * latency
        fault = self._due(operation, key)
        try:
            await asyncio.sleep(before)
        except asyncio.CancelledError:
            # A request that is on its way may reach the store although nobody waits for it.
            if effect is not None and self._is_there() and self._random.random() < 0.5:
                effect()
            raise
        if not self._is_there():
            self.counts.errors += 1
            if self._refusal is not None:
                raise StoreRefused(f"{self.url} refused to {operation} {key}: {self._refusal}")
            raise StoreError(f"{self.url} is away: {operation} of {key} failed")
        if fault is not None and fault.leaves_upload:
            self._leave_upload(key)
        if effect is not None and (fault is None or fault.takes_effect):
            effect()
        await asyncio.sleep(latency - before)
        if fault is not None and fault.error is not None:
            self.counts.errors += 1
            raise fault.error(f"{operation} of {key} in {self.url} failed, as a test wants it")

    def _due(self, operation: Operation, key: str) -> _Fault | None:
        for fault in self._faults:
            if fault.operation == operation and fnmatchcase(key, fault.key_pattern):
                fault.times_left -= 1
                if fault.times_left == 0:
                    self._faults.remove(fault)
                return fault
        if self._probability and self._random.random() < self._probability:
            takes_effect = self._random.random() < 0.5
            leaves_upload = operation == "put" and not takes_effect and self._random.random() < 0.3
            return _Fault(operation, key, 1, StoreError, takes_effect, leaves_upload)
        return None

    def _is_there(self) -> bool:
        if self._away_until is not None:
            if self._seconds() < self._away_until:
                return False
            self._away_until = None
        return self._refusal is None

    def _put(self, key: str, data: bytes) -> None:
        self._objects[key] = data
        self._modified_ms[key] = self._time_ms()
        self._list_later(key, StoredObject(key, len(data), self._modified_ms[key]))

    def _delete(self, key: str) -> None:
        if self._objects.pop(key, None) is not None:
            del self._modified_ms[key]
            self._list_later(key, None)

    def _leave_upload(self, key: str) -> None:
        upload_id = f"{self._random.getrandbits(64):016x}"
        self._uploads[upload_id] = UnfinishedUpload(key, upload_id, self._time_ms())

    def _list_later(self, key: str, listed: StoredObject | None) -> None:
        if self._listing_lag_ms:
            lag = self._random.uniform(0, self._listing_lag_ms) / 1000
            visible = self._seconds() + lag
        else:
            visible = float("-inf")
        self._unlisted.append(_Listed(key, listed, visible))
        if not self._listing_lag_ms:
            self._show(float("-inf"))

    def _show(self, now_seconds: float) -> None:
        """Make listings show the changes that are due; a newer one of a key hides older ones."""
        shown: set[str] = set()
        kept = []
        for change in reversed(self._unlisted):
            if change.key in shown:
                continue
            if change.visible_seconds > now_seconds:
                kept.append(change)
                continue
            shown.add(change.key)
            if change.listed is None:
                self._listed.pop(change.key, None)
            else:
                self._listed[change.key] = change.listed
        self._unlisted = kept[::-1]


def _loop_seconds() -> float:
    return asyncio.get_running_loop().time()


def _machine_time_ms() -> int:
    return clocks().time_ns() // 1_000_000
