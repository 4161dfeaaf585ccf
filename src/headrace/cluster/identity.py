"""Who a node is across its restarts: the id of its data folder, and a number for each life."""

from typing import Annotated, Final

import msgspec

from headrace.cluster.swim.claims import BOOT_EPOCH_MAX
from headrace.cluster.transport.hello import Identity
from headrace.ids import BrokerId, TopicId
from headrace.log import checkpoints
from headrace.log.checkpoints import META_PROPERTIES
from headrace.log.disk import Disk
from headrace.log.ownership import WrongDirectory
from headrace.surroundings import new_uuid

FILE: Final = "node-identity.json"


class _Stored(msgspec.Struct, frozen=True):
    node_id: int
    directory_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    boot_epoch: Annotated[int, msgspec.Meta(ge=1, lt=BOOT_EPOCH_MAX)]


def begin_life(disk: Disk, node_id: BrokerId, now_ms: int) -> Identity:
    """Return the identity of a node that starts now, in a life later than all before.

    The number of the life is durable on return. It follows the clock, so that it grows even if the
    folder was restored from a copy. WrongDirectory if the folder is another node's.
    """
    meta = stored = None
    if disk.exists(META_PROPERTIES):
        meta = checkpoints.load(disk, META_PROPERTIES, checkpoints.parse_meta_properties)
    if disk.exists(FILE):
        stored = _load(disk)
        if stored.node_id != node_id:
            raise WrongDirectory(
                f"the data directory belongs to node {stored.node_id}, not to node {node_id} "
                "(node.id)"
            )
    if meta is not None:
        directory_id = bytes(meta.directory_id)
    else:
        directory_id = bytes.fromhex(stored.directory_id) if stored else new_uuid().bytes
    boot_epoch = max(now_ms, stored.boot_epoch + 1 if stored else 1)
    disk.replace(FILE, msgspec.json.encode(_Stored(node_id, directory_id.hex(), boot_epoch)))
    cluster_id = meta.cluster_id if meta is not None else ""
    return Identity(node_id, TopicId(directory_id), boot_epoch, cluster_id)


def _load(disk: Disk) -> _Stored:
    try:
        return msgspec.json.decode(disk.read(FILE), type=_Stored)
    except msgspec.MsgspecError as error:
        raise WrongDirectory(
            f"{FILE} of the data directory cannot be read: {error}; restore it, or remove it if "
            "the node has not joined a cluster yet"
        ) from None
