"""The lease on where replicas are: at most one plan is carried out at a time (seed 004).

    held = await lease.hold(image, version=0)              # begin; refused while another holds it
    held = await lease.hold(image, held.version)           # every few seconds
    await lease.release(held.version)

Two commands that move partitions at the same time would undo each other's work. So each holds a
lease, through the node that it talks to; the version of the lease is the plan's. A decommission
takes over from a rebalance: it drains the lease, which refuses the other its renewal, and begins
when that one has released it or its time is up. Kafka's own tool knows nothing of it, and is not
kept from anything: the lease makes plans sensible, not safe. Moves are safe by themselves.

Why leases are on this, and not on topics: docs/adr/0007.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.descriptors import (
    KAFKA_TENANT,
    DescriptorId,
    DescriptorKind,
    DescriptorLease,
    Hlc,
)
from headrace.metadata.entries import (
    Batch,
    DescriptorDrainEnd,
    DescriptorDrainStart,
    DescriptorLeaseGrant,
    DescriptorLeaseRelease,
    Entry,
)
from headrace.metadata.image import Image
from headrace.metadata.leases import SCHEDULE_LEASE_MS
from headrace.metadata.quorum import MetadataQuorum

PLACEMENT: Final = DescriptorId(KAFKA_TENANT, DescriptorKind.SCHEDULE, "placement")
LEASE_MS: Final = SCHEDULE_LEASE_MS
"""How long a command that does not renew its lease keeps others waiting."""

VERSIONS_PER_MS: Final = 1024
"""A version is the time and, below it, the node: two plans that begin at once have two versions."""


class Held(NamedTuple):
    """A lease that a command has."""

    version: int
    lease_ms: int


class PlacementLease:
    """The lease, as the commands of one node have it."""

    def __init__(self, quorum: MetadataQuorum, now_ms: Callable[[], int]) -> None:
        """`now_ms` is the wall clock."""
        self._quorum = quorum
        self._now_ms = now_ms
        self._granting = asyncio.Lock()

    async def hold(self, image: Image, version: int, *, takes_over: bool = False) -> Held:
        """Begin or renew a lease; REASSIGNMENT_IN_PROGRESS while another plan has it.

        With `takes_over` the other one is told to end, and this call may be repeated until it has.
        """
        async with self._granting:  # two commands of one node would get the same version
            return await self._hold(image, version, takes_over=takes_over)

    async def _hold(self, image: Image, version: int, *, takes_over: bool) -> Held:
        now_ms = self._now_ms()
        others = [
            lease
            for lease in image.leases(PLACEMENT).values()
            if lease.version != version and lease.expires_at > Hlc.of_ms(now_ms)
        ]
        drain = image.drain(PLACEMENT)
        if drain is not None and drain.expires_at <= Hlc.of_ms(now_ms):
            drain = None
        if version and drain is not None and version <= drain.up_to_version:
            raise _busy("another command takes over from this plan: a decommission, or an --abort")
        if others:
            if takes_over and drain is None:
                last = max(lease.version for lease in others)
                await self._drain(self._new_version(now_ms, last), now_ms)
            raise _busy(_explain(others, now_ms))
        if not version and drain is not None and not takes_over:
            raise _busy("a decommission, or an --abort, is about to begin")
        changes: list[Entry] = [DescriptorDrainEnd(PLACEMENT)] if drain is not None else []
        if not version:
            version = self._new_version(now_ms, 0 if drain is None else drain.up_to_version + 1)
        node, expires = self._quorum.driver.node, Hlc.of_ms(now_ms + LEASE_MS)
        lease = DescriptorLease(PLACEMENT, version, node, expires)
        await self._quorum.propose(Batch((*changes, DescriptorLeaseGrant(lease))))
        return Held(version, LEASE_MS)

    def _new_version(self, now_ms: int, at_least: int) -> int:
        """Return a version that no other node chooses."""
        node = self._quorum.driver.node % VERSIONS_PER_MS
        version = now_ms * VERSIONS_PER_MS + node
        if version < at_least:
            version = (at_least // VERSIONS_PER_MS + 1) * VERSIONS_PER_MS + node
        return version

    async def release(self, image: Image, version: int) -> None:
        """End a lease; one that is not there is no error."""
        node = self._quorum.driver.node
        held = image.lease(PLACEMENT, node)
        if held is not None and held.version == version:
            await self._quorum.propose(DescriptorLeaseRelease(node, (PLACEMENT,)))

    async def _drain(self, up_to_version: int, now_ms: int) -> None:
        expires = Hlc.of_ms(now_ms + 2 * LEASE_MS)
        try:
            await self._quorum.propose(DescriptorDrainStart(PLACEMENT, up_to_version, expires))
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_UPDATE_VERSION:
                raise  # else another command has begun to take over at the same time


def _explain(others: list[DescriptorLease], now_ms: int) -> str:
    last = max(others, key=lambda lease: lease.expires_at)
    left_ms = last.expires_at.wall_ns // 1_000_000 - now_ms
    return (
        "another rebalance or decommission is being carried out, through node "
        f"{last.node_id}; if it is dead, its lease ends in {max(left_ms, 0) / 1000:.0f} s"
    )


def _busy(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, reason)
