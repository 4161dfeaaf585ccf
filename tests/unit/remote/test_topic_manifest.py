"""The description of a topic in the store."""

import pytest

from headrace.ids import TopicId, TopicName
from headrace.remote.topic_manifest import (
    TopicManifest,
    UnreadableManifest,
    decode_manifest,
    describe_topic,
    encode_manifest,
)

ID = TopicId(bytes(range(16)))


def described(**changes: int) -> TopicManifest:
    partitions, now_ms = changes.get("partitions", 3), changes.get("now_ms", 5)
    return describe_topic(ID, TopicName("orders"), partitions, {"a": "b"}, now_ms)


def test_what_is_written_is_read() -> None:
    data = encode_manifest(described())
    assert decode_manifest(data, "key") == described()
    assert decode_manifest(data, "key").id == ID
    assert b'"topicId": "AAECAwQFBgcICQoLDA0ODw"' in data


def test_two_say_the_same_whenever_they_were_written() -> None:
    assert described().says_the_same(described(now_ms=99))
    assert not described().says_the_same(described(partitions=4))
    assert not described().says_the_same(None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[1]",
        encode_manifest(described()).replace(b"AAEC", b"!!!!"),
        encode_manifest(described()).replace(b'"version": 1', b'"version": 2'),
    ],
)
def test_what_is_no_description_is_named(data: bytes) -> None:
    with pytest.raises(UnreadableManifest, match="some-key"):
        decode_manifest(data, "some-key")
