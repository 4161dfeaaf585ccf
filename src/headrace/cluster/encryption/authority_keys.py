"""The keys of the cluster's CAs that a node has: durable before anybody is told of a CA.

Threads write them, one after the other, so that none is lost where two come at once.
"""

import asyncio
from collections.abc import Iterable
from functools import partial

from headrace.cluster.encryption.key_files import (
    in_thread,
    load_authorities,
    store_authorities,
)
from headrace.log.disk import Disk
from headrace.security.node_certificates import Authority, fingerprint, in_order


class AuthorityKeys:
    """Those of one node; a node that has never voted has none."""

    def __init__(self, disk: Disk) -> None:
        """KeyFileUnreadable if what is stored is damaged."""
        self._disk = disk
        self._held = {each.fingerprint: each for each in load_authorities(disk)}
        self._turn = asyncio.Lock()

    @property
    def fingerprints(self) -> tuple[bytes, ...]:
        return tuple(sorted(self._held))

    def find(self, which: bytes) -> Authority | None:
        return self._held.get(which)

    def any_of(self, certificates: Iterable[bytes], *, newest: bool) -> Authority | None:
        """Return a CA among these whose key is here: the newest, or the one that was first."""
        ordered = in_order(certificates)
        for each in reversed(ordered) if newest else ordered:
            if (held := self._held.get(fingerprint(each))) is not None:
                return held
        return None

    def newest(self) -> Authority | None:
        """Return the newest of all whose keys are here, trusted or not."""
        return self.any_of([each.certificate for each in self._held.values()], newest=True)

    async def add(self, authority: Authority) -> None:
        """Keep a key; it is durable on return."""
        async with self._turn:
            await self._take({**self._held, authority.fingerprint: authority})

    async def keep_only(self, fingerprints: Iterable[bytes]) -> None:
        """Forget the keys of CAs that nobody trusts any more."""
        wanted = frozenset(fingerprints)
        async with self._turn:
            if not self._held.keys() <= wanted:
                await self._take({key: each for key, each in self._held.items() if key in wanted})

    async def _take(self, held: dict[bytes, Authority]) -> None:
        """Replace the keys; after an OSError the former ones are kept."""
        await in_thread(partial(store_authorities, self._disk, tuple(held.values())))
        self._held = held
