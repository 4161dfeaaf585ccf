"""Backups of the metadata: the cluster as a document that people read and a cluster restores.

    document = make_backup(image.state, taken_at_ms=now_ms, software=__version__)
    data = encode_backup(document)                  # JSON, with a checksum
    document = decode_backup(data)                  # InvalidBackup if it was damaged

What proves an identity is left out: credentials, delegation tokens, join tokens, certificates, and
configs of brokers that nobody knows, which may be secrets. Records are not part of it.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from crc32c import crc32c
from msgspec import Meta, Struct

from headrace.config.registry import find_setting
from headrace.errors import HeadraceError
from headrace.ids import parse_topic_id, topic_id_text
from headrace.metadata.state import Acl, ImageState, ResourceType

FORMAT: Final = "headrace-backup"
VERSION: Final = 1
PARTITIONS_MAX: Final = 1_000_000
"""The most partitions of one topic."""


class InvalidBackup(HeadraceError):
    """A file that is not a backup, was damaged, or is for later software."""


class TopicBackup(Struct, frozen=True, forbid_unknown_fields=True):
    """A topic: its id, configs, and the nodes of each partition's replicas."""

    name: str
    id: str
    replicas: Annotated[list[list[int]], Meta(min_length=1, max_length=PARTITIONS_MAX)]
    configs: dict[str, str] = {}
    is_internal: bool = False

    @property
    def replication_factor(self) -> int:
        return len(self.replicas[0])


class ResourceConfigs(Struct, frozen=True, forbid_unknown_fields=True):
    """Configs of a broker, a group or a client metrics subscription; all brokers have no name."""

    type: str
    name: str
    configs: dict[str, str]


class QuotaBackup(Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a user, a client id or an address; None is the default of the type."""

    entity: list[tuple[str, str | None]]
    limits: dict[str, float]


class NodeBackup(Struct, frozen=True, forbid_unknown_fields=True):
    """A node as it was; a cluster that is restored has its own."""

    id: int
    address: str
    rack: str | None


class LeftOut(Struct, frozen=True, forbid_unknown_fields=True):
    """How many of what is not in a backup there were."""

    scram_credentials: int = 0
    delegation_tokens: int = 0
    join_tokens: int = 0
    ca_certificates: int = 0
    unknown_configs: int = 0
    """Configs of brokers that nobody knows: their values may be secrets."""


class Backup(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A cluster's metadata at one index of its log."""

    format: str = FORMAT
    version: int = VERSION
    cluster_id: str
    index: int
    taken_at_ms: int
    software: str
    nodes: list[NodeBackup]
    features: dict[str, int]
    topics: list[TopicBackup]
    configs: list[ResourceConfigs]
    quotas: list[QuotaBackup]
    acls: list[Acl]
    left_out: LeftOut
    crc32c: str = ""
    """The checksum of the document with this field empty, in msgspec's deterministic JSON."""


def make_backup(state: ImageState, *, taken_at_ms: int, software: str) -> Backup:
    """Return the document of a state."""
    configs = state.configs
    return Backup(
        cluster_id=state.cluster_id,
        index=state.applied_index,
        taken_at_ms=taken_at_ms,
        software=software,
        nodes=[
            NodeBackup(row.broker_id, _address(state, row.broker_id), row.rack)
            for row in state.brokers.values()
        ],
        features=dict(state.features),
        topics=[
            TopicBackup(
                topic.name,
                topic_id_text(topic.topic_id),
                [
                    # Of one that is on the move, those that it is to have.
                    [each for each in partition.replicas if each not in partition.removing]
                    for partition in topic.partitions
                ],
                dict(configs.get((ResourceType.TOPIC, topic.name), {})),
                topic.is_internal,
            )
            for topic in state.topics.values()
        ],
        configs=[
            ResourceConfigs(kind.name, name, kept)
            for (kind, name), values in configs.items()
            if kind is not ResourceType.TOPIC and (kept := _known(kind, values))
        ],
        quotas=[QuotaBackup(list(entity), dict(limits)) for entity, limits in state.quotas.items()],
        acls=[acl for acls in state.acls.values() for acl in acls],
        left_out=LeftOut(
            len(state.scram_credentials),
            len(state.delegation_tokens),
            len(state.join_tokens),
            len(state.ca_certificates),
            sum(len(each) - len(_known(kind, each)) for (kind, _), each in configs.items()),
        ),
    )


def _known(kind: ResourceType, values: Mapping[str, str]) -> dict[str, str]:
    """Return the configs of a resource that may be shown."""
    if kind is not ResourceType.BROKER:
        return dict(values)
    return {
        name: value
        for name, value in values.items()
        if (found := find_setting(name)) is not None and not found.is_sensitive
    }


def encode_backup(backup: Backup) -> bytes:
    """Write a document as JSON that people can read, with its checksum."""
    sealed = msgspec.structs.replace(backup, crc32c=_checksum(backup))
    return msgspec.json.format(msgspec.json.encode(sealed, order="deterministic"), indent=1) + b"\n"


def decode_backup(data: bytes) -> Backup:
    """Read what `encode_backup` wrote; InvalidBackup for anything else, whatever the bytes."""
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (ValueError, RecursionError) as error:
        raise InvalidBackup(f"not a backup: {error}") from None
    if head.format != FORMAT:
        raise InvalidBackup(f"not a backup: its format is {head.format!r}, not {FORMAT!r}")
    if head.version != VERSION:
        raise InvalidBackup(
            f"a backup of version {head.version}, and this software reads version {VERSION}: use "
            "later software"
        )
    try:
        backup = msgspec.json.decode(data, type=Backup)
        for topic in backup.topics:
            parse_topic_id(topic.id)
            if not all(topic.replicas):
                raise ValueError(f"topic {topic.name} has a partition without replicas")
    except (ValueError, RecursionError) as error:
        raise InvalidBackup(f"the backup cannot be read: {error}") from None
    computed = _checksum(backup)
    if computed != backup.crc32c:
        raise InvalidBackup(
            f"the backup has CRC32C {computed}, and says {backup.crc32c}: it was changed or damaged"
        )
    return backup


class _Head(Struct, frozen=True):
    format: str = ""
    version: int = 0


def _checksum(backup: Backup) -> str:
    plain = msgspec.structs.replace(backup, crc32c="")
    return f"{crc32c(msgspec.json.encode(plain, order='deterministic')):08x}"


def _address(state: ImageState, node: int) -> str:
    row = state.nodes.get(node)
    return "" if row is None else row.addr
