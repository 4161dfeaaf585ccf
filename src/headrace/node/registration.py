"""What a node says of itself to the cluster, and the first entries of a new cluster."""

from collections.abc import Iterable

from headrace import config
from headrace.config import Settings
from headrace.config.protection import read_protocol_map
from headrace.ids import BrokerId, TopicId, topic_id_text
from headrace.metadata.ddl import (
    Ddl,
    RaiseLevel,
    RegisterBroker,
    SetClusterId,
    SetFeature,
    encode_ddl,
)
from headrace.metadata.entries import Batch, CatalogDdl, ClusterVersionBump, Entry
from headrace.metadata.features import (
    BOOTSTRAP_LEVELS,
    HEADRACE_VERSION,
    METADATA_VERSION,
    SUPPORTED,
)
from headrace.metadata.quorum import MetadataQuorum
from headrace.server.listeners import Listener, advertised_endpoints
from headrace.surroundings import new_uuid


async def name_cluster(quorum: MetadataQuorum) -> None:
    """Set a new cluster's id, its version and the levels of its features."""
    if quorum.image.state.cluster_id:
        return
    cluster_id = topic_id_text(TopicId(new_uuid().bytes))
    changes: list[Ddl] = [SetClusterId(cluster_id)]
    changes += [
        RaiseLevel(level) if name == HEADRACE_VERSION else SetFeature(name, level)
        for name, level in BOOTSTRAP_LEVELS.items()
    ]
    entries: list[Entry] = [CatalogDdl(encode_ddl(each)) for each in changes]
    entries.append(ClusterVersionBump(0, BOOTSTRAP_LEVELS[METADATA_VERSION]))
    await quorum.propose(Batch(tuple(entries)))


def registration(
    node_id: BrokerId,
    incarnation_id: bytes,
    settings: Settings,
    listeners: Iterable[Listener],
    folder_id: bytes,
    *,
    node_address: str,
    node_protocol: str,
) -> RegisterBroker:
    """Return the entry for a life of a node; the controller decides whether it is fenced.

    `node_address` is that of the node port: the listener for nodes is reached at the same host.
    """
    advertised = settings[config.ADVERTISED_LISTENERS] or ()
    protocols = read_protocol_map(settings[config.LISTENER_SECURITY_PROTOCOL_MAP])
    protocols[config.NODE_LISTENER] = node_protocol
    if node_protocol == "SSL":
        advertised = (*advertised, f"{config.NODE_LISTENER}://{node_address.rpartition(':')[0]}:0")
    return RegisterBroker(
        node_id,
        incarnation_id=incarnation_id,
        endpoints=advertised_endpoints(listeners, advertised, protocols),
        rack=settings[config.BROKER_RACK],
        features=dict(SUPPORTED),
        log_dirs=(folder_id,),
    )
