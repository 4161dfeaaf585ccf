"""The object that says whose a store is: two clusters must never write to one.

.headrace/cluster.json   {"cluster_id": "...", "created_ms": ...}
"""

import msgspec

from headrace.remote.layout import MARKER_KEY
from headrace.remote.store import NoSuchObject, ObjectStore, StoreRefused
from headrace.wire.schema import Buffer


class OtherCluster(StoreRefused):
    """The store belongs to another cluster."""


class Marker(msgspec.Struct, frozen=True):
    """The cluster that a store belongs to, and since when."""

    cluster_id: str
    created_ms: int


async def read_marker(store: ObjectStore) -> Marker | None:
    """Return whose a store is, None if it is nobody's; StoreRefused if the marker is unreadable."""
    data = await _read(store)
    return None if data is None else _decode(store, data)


async def _read(store: ObjectStore) -> Buffer | None:
    try:
        return await store.get(MARKER_KEY)
    except NoSuchObject:
        return None


def _decode(store: ObjectStore, data: Buffer) -> Marker:
    try:
        return msgspec.json.decode(data, type=Marker)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise StoreRefused(
            f"{MARKER_KEY} in {store.url} cannot be read, so nobody knows whose the store is; "
            "if no other cluster uses it, delete that object"
        ) from None


async def claim(store: ObjectStore, cluster_id: str, now_ms: int) -> None:
    """Make a store this cluster's if it is nobody's; OtherCluster if it is another one's.

    Of several clusters that claim a store at the same time one succeeds.
    """
    if await read_marker(store) is None:
        await store.create(MARKER_KEY, msgspec.json.encode(Marker(cluster_id, now_ms)))
    await check(store, cluster_id)


async def check(store: ObjectStore, cluster_id: str) -> None:
    """Raise OtherCluster unless the store is this cluster's.

    A store without a marker is refused too: a folder that is not mounted looks like that. From then
    on the store fails when its marker is not there, or another one.
    """
    data = await _read(store)
    if data is None:
        raise StoreRefused(f"{store.url} has no {MARKER_KEY}: it is not the store of this cluster")
    marker = _decode(store, data)
    if marker.cluster_id != cluster_id:
        raise OtherCluster(
            f"{store.url} belongs to cluster {marker.cluster_id}, this is {cluster_id}: use "
            f"another prefix, or delete {MARKER_KEY} if that cluster is gone"
        )
    await store.hold(MARKER_KEY, data)
