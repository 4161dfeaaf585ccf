"""Leases on descriptors, and the drains that keep new ones from being granted (seed 004).

A change of a descriptor begins with `DescriptorDrainStart`, waits until `holders` is empty, and
ends with `DescriptorDrainEnd`. Whether a lease has ended is a question with a time in it: the image
does not know the time and keeps leases until they are released, or an `Expire` says how late it is.
"""

from typing import Final

from headrace.errors import ErrorCode
from headrace.metadata.descriptors import (
    NANOSECONDS_PER_MS,
    DescriptorId,
    DescriptorKind,
    DescriptorLease,
    Hlc,
)
from headrace.metadata.entries import (
    DescriptorDrainEnd,
    DescriptorDrainStart,
    DescriptorLeaseGrant,
    DescriptorLeaseRelease,
)
from headrace.metadata.errors import refuse
from headrace.metadata.events import DrainEnded, DrainStarted, Event, LeaseEnded, LeaseGranted
from headrace.metadata.image import Image
from headrace.metadata.state import Drain

ANY_VERSION: Final = 2**64 - 1
SCHEDULE_LEASE_MS: Final = 15_000
"""How long a lease on a schedule lasts. Never changed: every node has to decide alike."""


def holders(
    image: Image, descriptor_id: DescriptorId, up_to_version: int, now_ms: int
) -> list[int]:
    """Return the nodes whose lease on a version up to this one is valid at `now_ms`."""
    now = Hlc.of_ms(now_ms)
    return [
        lease.node_id
        for lease in image.leases(descriptor_id).values()
        if lease.version <= up_to_version and lease.expires_at > now
    ]


def grant(image: Image, entry: DescriptorLeaseGrant) -> list[Event]:
    """Grant or renew a node's lease; refused during a drain of its version, and on a schedule
    while a lease on another version of it is valid.

    A node has one lease on a descriptor, and its version never goes back.
    """
    lease = entry.lease
    descriptor_id, node_id = lease.descriptor_id, lease.node_id
    drain = image.drain(descriptor_id)
    if drain is not None and lease.version <= drain.up_to_version:
        raise refuse(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{descriptor_id.name} is drained up to version {drain.up_to_version}: no lease on "
            f"version {lease.version} for node {node_id}; wait for the next version",
        )
    if descriptor_id.kind is DescriptorKind.SCHEDULE:
        _require_alone(image, lease)
    held = image.lease(descriptor_id, node_id)
    if held is not None and lease.version < held.version:
        raise refuse(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"node {node_id} has a lease on version {held.version} of {descriptor_id.name}, newer "
            f"than {lease.version}",
        )
    image.state.leases.setdefault(descriptor_id, {})[node_id] = lease
    return [LeaseGranted(descriptor_id, node_id)]


def _require_alone(image: Image, lease: DescriptorLease) -> None:
    """Refuse a lease on a schedule, of which one version is carried out at a time, for a second.

    Decided here, where all that is asked for has an order: two that look first both see nobody. The
    image does not know the time, but when a lease ends says when it was asked for.
    """
    asked_ns = lease.expires_at.wall_ns - SCHEDULE_LEASE_MS * NANOSECONDS_PER_MS
    for other in image.leases(lease.descriptor_id).values():
        if other.version != lease.version and other.expires_at.wall_ns > asked_ns:
            raise refuse(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"{lease.descriptor_id.name} is being carried out through node {other.node_id}",
            )


def release(image: Image, entry: DescriptorLeaseRelease) -> list[Event]:
    """Release leases of a node; those that it does not have are ignored."""
    events: list[Event] = []
    for descriptor_id in entry.descriptor_ids:
        events += _end_lease(image, descriptor_id, entry.node_id)
    return events


def release_all(image: Image, node_id: int) -> list[Event]:
    """Release all leases of a node that is gone."""
    held = [each for each, leases in image.state.leases.items() if node_id in leases]
    return [event for descriptor_id in held for event in _end_lease(image, descriptor_id, node_id)]


def start_drain(image: Image, entry: DescriptorDrainStart) -> list[Event]:
    """Start a drain, or widen or prolong the one there is; refused if it were narrowed."""
    drain = image.drain(entry.descriptor_id)
    if drain is not None and entry.up_to_version < drain.up_to_version:
        raise refuse(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{entry.descriptor_id.name} is drained up to version {drain.up_to_version} already, "
            f"further than {entry.up_to_version}",
        )
    image.state.drains[entry.descriptor_id] = Drain(entry.up_to_version, entry.expires_at)
    return [DrainStarted(entry.descriptor_id, entry.up_to_version)]


def end_drain(image: Image, entry: DescriptorDrainEnd) -> list[Event]:
    """End a drain; that there is none is no error, as it may have expired."""
    if image.state.drains.pop(entry.descriptor_id, None) is None:
        return []
    return [DrainEnded(entry.descriptor_id)]


def end_leases(image: Image, descriptor_id: DescriptorId) -> list[Event]:
    """Forget leases and drain of a descriptor that is gone."""
    leases = image.state.leases.pop(descriptor_id, {})
    events: list[Event] = [LeaseEnded(descriptor_id, node_id) for node_id in leases]
    if image.state.drains.pop(descriptor_id, None) is not None:
        events.append(DrainEnded(descriptor_id))
    return events


def expire_leases(image: Image, now_ms: int) -> list[Event]:
    """Drop leases and drains that have ended by then."""
    now = Hlc.of_ms(now_ms)
    ended = [
        (descriptor_id, node_id)
        for descriptor_id, leases in image.state.leases.items()
        for node_id, lease in leases.items()
        if lease.expires_at <= now
    ]
    events: list[Event] = []
    for descriptor_id, node_id in ended:
        events += _end_lease(image, descriptor_id, node_id)
    over = [each for each, drain in image.state.drains.items() if drain.expires_at <= now]
    for descriptor_id in over:
        events += end_drain(image, DescriptorDrainEnd(descriptor_id))
    return events


def _end_lease(image: Image, descriptor_id: DescriptorId, node_id: int) -> list[Event]:
    leases = image.state.leases.get(descriptor_id, {})
    if leases.pop(node_id, None) is None:
        return []
    if not leases:
        del image.state.leases[descriptor_id]
    return [LeaseEnded(descriptor_id, node_id)]
