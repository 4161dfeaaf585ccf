"""Registration of a node: a new cluster gets its id, and the node its entry."""

from collections.abc import Iterable
from typing import Final

from headrace import config
from headrace.config import Settings
from headrace.config.protection import read_protocol_map
from headrace.ids import BrokerId, TopicId, topic_id_text
from headrace.log.folder import LogFolder
from headrace.metadata.ddl import (
    ChangeBroker,
    ChangePartition,
    Ddl,
    RegisterBroker,
    SetClusterId,
    SetFeature,
    encode_ddl,
)
from headrace.metadata.entries import Batch, CatalogDdl
from headrace.metadata.features import BOOTSTRAP_LEVELS, SUPPORTED
from headrace.metadata.image import Image
from headrace.metadata.quorum import MetadataQuorum
from headrace.server.listeners import Listener, advertised_endpoints
from headrace.surroundings import new_uuid

ENTRIES_AT_ONCE_MAX: Final = 1000
"""The most changes in one entry of the metadata log."""


async def name_cluster(quorum: MetadataQuorum) -> None:
    """Set a new cluster's id and the levels of its features."""
    if quorum.image.state.cluster_id:
        return
    cluster_id = topic_id_text(TopicId(new_uuid().bytes))
    features = [SetFeature(name, level) for name, level in BOOTSTRAP_LEVELS.items()]
    await _propose_all(quorum, [SetClusterId(cluster_id), *features])


async def register(
    node_id: BrokerId,
    settings: Settings,
    quorum: MetadataQuorum,
    folder: LogFolder,
    listeners: Iterable[Listener],
) -> None:
    """Register a node and its listeners, and fence its previous incarnation."""
    changes: list[Ddl] = []
    former = quorum.image.broker(node_id)
    if former is not None and not former.is_fenced:
        changes.append(ChangeBroker(node_id, former.broker_epoch, is_fenced=True))
    advertised = settings[config.ADVERTISED_LISTENERS] or ()
    protocols = read_protocol_map(settings[config.LISTENER_SECURITY_PROTOCOL_MAP])
    changes.append(
        RegisterBroker(
            node_id,
            incarnation_id=new_uuid().bytes,
            endpoints=advertised_endpoints(listeners, advertised, protocols),
            rack=settings[config.BROKER_RACK],
            features=dict(SUPPORTED),
            is_fenced=False,
            log_dirs=(folder.meta.directory_id,),
        )
    )
    if not folder.was_clean:
        changes += _new_epochs(quorum.image, folder, node_id)
    await _propose_all(quorum, changes)


async def _propose_all(quorum: MetadataQuorum, changes: list[Ddl]) -> None:
    for first in range(0, len(changes), ENTRIES_AT_ONCE_MAX):
        entries = [CatalogDdl(encode_ddl(each)) for each in changes[first:][:ENTRIES_AT_ONCE_MAX]]
        await quorum.propose(Batch(tuple(entries)))


def _new_epochs(image: Image, folder: LogFolder, node_id: BrokerId) -> list[Ddl]:
    """Start a new leader epoch for each partition whose log may have lost its end.

    Clients that read the lost records learn of the loss from the epoch, and do not mistake other
    records at the same offsets for them.
    """
    return [
        ChangePartition(topic.topic_id, index, leader=node_id)
        for topic, index in image.partitions_of(node_id)
        if topic.partitions[index].leader == node_id and (topic.name, index) in folder.logs
    ]
