"""One writer per table: who it is, since when, and how the next one takes over.

    .headrace/tables/<name>/writer-<epoch>.json
    .headrace/tables/<name>/job-<epoch>.json            of replays and backfills, the same way
    .headrace/tables/<name>/compaction-<epoch>.json     of compactions

A writer claims an epoch by creating its file, which only one can, and renews its claim by writing
the file again. A claim ends when it is released, when its process is known to be gone, or when it
was not renewed for as long as it says, by the clock of the store: those of hosts differ. A writer
that was taken over finds the next file, and stops. This keeps two writers from doing the same work;
that none of it counts twice is up to `commits`.
"""

import os
import socket
from collections.abc import Coroutine
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from headrace.errors import HeadraceError
from headrace.remote.layout import OWN_PREFIX
from headrace.remote.store import NoSuchObject, ObjectStore
from headrace.spark.tables.commits import Superseded
from headrace.surroundings import clocks, new_uuid

T = TypeVar("T")

CLAIM_MS: Final = 60_000
"""How long a claim lasts unless it is renewed."""
RENEW_MS: Final = 15_000
CLAIMS_KEPT: Final = 5
"""How many old claims stay, for people."""
CLAIM_BYTES_MAX: Final = 64 * 1024


class Role(StrEnum):
    """What a claim is for: a table has one writer, one job that moves its rows or letters, and one
    compaction. Whoever drops it has all three."""

    WRITER = "writer"
    JOB = "job"
    COMPACTION = "compaction"


_DOING: Final = {
    Role.WRITER: "written",
    Role.JOB: "replayed or backfilled",
    Role.COMPACTION: "compacted",
}


class HeldByAnother(HeadraceError):
    """Somebody else works on the table."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The writer of a table."""

    epoch: int
    host: str
    pid: int
    process_start: str
    """Tells a process from a later one with the same id; empty where that is unknown."""
    since_ms: int
    renewed_ms: int
    lasts_ms: int = CLAIM_MS
    is_released: bool = False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (epoch {self.epoch})"


class Blocking(Protocol):
    """A store that can be waited for; see `spark.tier.stores`."""

    store: ObjectStore

    def run(self, work: Coroutine[Any, Any, T]) -> T: ...


class WriterLease:
    """The claims on one table."""

    def __init__(self, blocking: Blocking, table: str, role: Role = Role.WRITER) -> None:
        self._blocking = blocking
        self._table = table
        self._doing = _DOING[role]
        self._prefix = claim_prefix(table, role)
        self._mine: Claim | None = None

    @property
    def epoch(self) -> int:
        assert self._mine is not None
        return self._mine.epoch

    def latest(self) -> Claim | None:
        """Return the newest claim, whoever has it."""
        return self._blocking.run(self._latest())

    def claim(self, least_epoch: int = 0) -> int:
        """Take the table; return the epoch, above `least_epoch`. HeldByAnother says who has it."""
        return self._blocking.run(self._claim(least_epoch))

    def renew(self, *, is_forced: bool = False) -> None:
        """Renew the claim if it is time to; Superseded if somebody has taken over."""
        assert self._mine is not None
        now_ms = clocks().time_ns() // 1_000_000
        if is_forced or now_ms - self._mine.renewed_ms >= RENEW_MS:
            self._blocking.run(self._renew(now_ms))

    def release(self) -> None:
        """Leave the table to others."""
        if self._mine is not None:
            released = msgspec.structs.replace(self._mine, is_released=True)
            self._mine = None
            self._blocking.run(self._write(released))

    async def _claim(self, least_epoch: int) -> int:
        now_ms = clocks().time_ns() // 1_000_000
        latest = await self._latest()
        if latest is not None and not is_over(latest, await self._age_ms(latest)):
            raise HeldByAnother(
                f"table {self._table!r} is {self._doing} by {latest}, since "
                f"{(now_ms - latest.since_ms) // 1000} s, last heard of "
                f"{(now_ms - latest.renewed_ms) // 1000} s ago: stop it first, or wait "
                f"{latest.lasts_ms // 1000} s if it is gone"
            )
        epoch = max(least_epoch, 0 if latest is None else latest.epoch) + 1
        mine = Claim(
            epoch=epoch,
            host=socket.gethostname(),
            pid=os.getpid(),
            process_start=process_start(os.getpid()),
            since_ms=now_ms,
            renewed_ms=now_ms,
        )
        data = msgspec.json.encode(mine)
        if not await self._blocking.store.create(self._key(epoch), data):
            stored = await self._read(epoch)
            if stored != mine:
                raise HeldByAnother(f"table {self._table!r} was just taken by {stored}")
        self._mine = mine
        await self._forget_old(epoch)
        return epoch

    async def _renew(self, now_ms: int) -> None:
        assert self._mine is not None
        latest = await self._latest()
        if latest is not None and latest.epoch > self._mine.epoch:
            raise Superseded(
                f"table {self._table!r} was taken over by {latest}: this writer stops, nothing is "
                "lost"
            )
        self._mine = msgspec.structs.replace(self._mine, renewed_ms=now_ms)
        await self._write(self._mine)

    async def _write(self, claim: Claim) -> None:
        data = msgspec.json.encode(claim)
        await self._blocking.store.put(self._key(claim.epoch), data, len(data))

    async def _latest(self) -> Claim | None:
        epochs = await self._epochs()
        for epoch in reversed(epochs):
            found = await self._read(epoch)
            if found is not None:
                return found
        return None

    async def _read(self, epoch: int) -> Claim | None:
        try:
            data = await self._blocking.store.get(self._key(epoch), 0, CLAIM_BYTES_MAX)
            return msgspec.json.decode(bytes(data), type=Claim)
        except NoSuchObject:
            return None
        except msgspec.DecodeError as error:
            raise HeldByAnother(
                f"{self._key(epoch)} in {self._blocking.store.url} cannot be read ({error}), so "
                "nobody knows who writes the table: remove it if no writer runs"
            ) from None

    async def _age_ms(self, claim: Claim) -> int:
        """Return for how long a claim was not renewed, as the store's clock says."""
        if claim.is_released or is_here(claim):
            return 0
        store = self._blocking.store
        probe = f"{self._prefix}clock-{new_uuid()}"
        await store.put(probe, b"", 0)
        try:
            times: dict[str, int] = {}
            async for page in store.list_objects(self._prefix):
                times |= {each.key: each.modified_ms for each in page}
        finally:
            await store.delete([probe])
        # What a listing does not show yet is new.
        return times.get(probe, 0) - times.get(self._key(claim.epoch), 0) if probe in times else 0

    async def _epochs(self) -> list[int]:
        found = []
        async for page in self._blocking.store.list_objects(self._prefix):
            for each in page:
                number = each.key.removeprefix(self._prefix).removesuffix(".json")
                if number.isdigit():
                    found.append(int(number))
        return sorted(found)

    async def _forget_old(self, epoch: int) -> None:
        old = [each for each in await self._epochs() if each <= epoch - CLAIMS_KEPT]
        await self._blocking.store.delete([self._key(each) for each in old])

    def _key(self, epoch: int) -> str:
        return f"{self._prefix}{epoch:012}.json"


def claim_prefix(table: str, role: Role) -> str:
    """Return how the keys of a table's claims begin."""
    return f"{OWN_PREFIX}tables/{table}/{role}-"


def is_over(claim: Claim, age_ms: int) -> bool:
    """Return whether a claim that was renewed so long ago binds nobody any more."""
    if claim.is_released:
        return True
    if is_here(claim):
        return process_start(claim.pid) != claim.process_start
    return age_ms > claim.lasts_ms


def is_here(claim: Claim) -> bool:
    """Return whether a claim is of this host, which knows its processes."""
    return claim.host == socket.gethostname() and bool(claim.process_start)


def process_start(pid: int) -> str:
    """Return when a process began, as the kernel counts; empty if there is none, or no /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if stat[0] == "Z" else f"{boot}/{stat[19]}"
