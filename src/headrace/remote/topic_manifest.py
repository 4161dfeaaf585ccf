"""The object that describes a topic, so that it can be restored from the store alone. Pure.

.headrace/topics/<topic id>.json   {"name": "orders", "partitions": 8, "configs": {...}, ...}
"""

from typing import Final

import msgspec

from headrace.ids import TopicId, TopicName, parse_topic_id, topic_id_text
from headrace.remote.segments import TierError

VERSION: Final = 1


class UnreadableManifest(TierError):
    """An object that does not describe a topic."""


class TopicManifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A topic as it was when it was described last."""

    topic_id: str
    name: TopicName
    partitions: int
    configs: dict[str, str]
    """The configs that the topic has of its own."""
    written_ms: int
    version: int = VERSION

    @property
    def id(self) -> TopicId:
        return parse_topic_id(self.topic_id)

    def says_the_same(self, other: "TopicManifest | None") -> bool:
        """Return whether both describe a topic alike, whenever that was."""
        return other is not None and self == msgspec.structs.replace(
            other, written_ms=self.written_ms
        )


def describe_topic(
    topic_id: TopicId, name: TopicName, partitions: int, configs: dict[str, str], now_ms: int
) -> TopicManifest:
    return TopicManifest(
        topic_id=topic_id_text(topic_id),
        name=name,
        partitions=partitions,
        configs=configs,
        written_ms=now_ms,
    )


def encode_manifest(manifest: TopicManifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode_manifest(data: bytes, key: str) -> TopicManifest:
    """Return what an object says; UnreadableManifest names its key if that is not a topic."""
    try:
        found = msgspec.json.decode(data, type=TopicManifest)
        parse_topic_id(found.topic_id)
    except (msgspec.DecodeError, ValueError) as error:
        raise UnreadableManifest(f"{key} does not describe a topic: {error}") from None
    if found.version != VERSION:
        raise UnreadableManifest(f"{key} has version {found.version}; only {VERSION} is read")
    return found
