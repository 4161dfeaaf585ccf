"""Whose data directory it is: no node may use another's, nor one of another cluster."""

from headrace.errors import HeadraceError
from headrace.ids import TopicId
from headrace.log import checkpoints
from headrace.log.checkpoints import META_PROPERTIES, MetaProperties
from headrace.log.disk import Disk
from headrace.surroundings import new_uuid


class WrongDirectory(HeadraceError):
    """A data directory that belongs to another cluster or node."""


def own(
    disk: Disk, cluster_id: str, node_id: int, directory_id: TopicId | None = None
) -> MetaProperties:
    """Read the owner of this directory, or claim it if it has none, with an id if it has one."""
    try:
        meta = checkpoints.load(disk, META_PROPERTIES, checkpoints.parse_meta_properties)
    except FileNotFoundError:
        directory_id = directory_id or TopicId(new_uuid().bytes)
        meta = MetaProperties(cluster_id, node_id, directory_id)
        checkpoints.save(disk, META_PROPERTIES, checkpoints.format_meta_properties(meta))
    if (meta.cluster_id, meta.node_id) != (cluster_id, node_id):
        raise WrongDirectory(
            f"the data directory belongs to node {meta.node_id} of cluster {meta.cluster_id}, "
            f"not to node {node_id} of cluster {cluster_id}"
        )
    return meta


def check_node(disk: Disk, node_id: int) -> None:
    """Raise WrongDirectory if the directory is another node's; before anything is opened."""
    try:
        meta = checkpoints.load(disk, META_PROPERTIES, checkpoints.parse_meta_properties)
    except FileNotFoundError:
        return
    if meta.node_id != node_id:
        raise WrongDirectory(
            f"the data directory belongs to node {meta.node_id}, not to node {node_id} (node.id)"
        )
