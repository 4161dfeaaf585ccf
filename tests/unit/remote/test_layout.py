"""Keys: Kafka's layout, read back, and everything else foreign."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import PartitionIndex, TopicId, TopicName
from headrace.remote.layout import (
    MARKER_KEY,
    WRITE_ORDER,
    ObjectKind,
    OwnKey,
    SegmentKey,
    lease_key,
    object_key,
    parse_key,
    partition_prefix,
    segment_prefix,
    topic_key,
)
from headrace.remote.segments import SegmentId, TopicIdPartition
from tests.unit.remote.stored_segments import ORDERS, segment

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=249).map(TopicName)
PARTITIONS = st.builds(
    TopicIdPartition,
    st.binary(min_size=16, max_size=16).map(TopicId),
    TOPICS,
    st.integers(0, 2**31 - 1).map(PartitionIndex),
)


def test_keys_are_those_of_kafkas_local_tiered_storage() -> None:
    assert [object_key(segment(), kind) for kind in WRITE_ORDER] == [
        "orders-7-AAAAAAAAAAAAAAAAAAAAyg/00000000000000000011-AAAAAAAAAAAAAAAAAAAA_g" + suffix
        for suffix in (
            ".log",
            ".index",
            ".timeindex",
            ".txnindex",
            ".snapshot",
            ".leader_epoch_checkpoint",
        )
    ]


def test_leader_epochs_are_written_last() -> None:
    assert WRITE_ORDER[0] is ObjectKind.LOG
    assert WRITE_ORDER[-1] is ObjectKind.LEADER_EPOCHS


@given(
    PARTITIONS,
    st.integers(0, 2**63 - 1),
    st.binary(min_size=16, max_size=16).map(SegmentId),
    st.sampled_from(ObjectKind),
)
def test_every_key_is_read_back(
    partition: TopicIdPartition, offset: int, segment_id: SegmentId, kind: ObjectKind
) -> None:
    key = segment_prefix(partition, offset, segment_id) + kind
    assert key.startswith(partition_prefix(partition))
    assert parse_key(key) == SegmentKey(partition, offset, segment_id, kind)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "README",
        "orders-7/00000000000000000011.log",
        "orders-7-AAAAAAAAAAAAAAAAAAAAyg/",
        "orders-7-AAAAAAAAAAAAAAAAAAAAyg/11-AAAAAAAAAAAAAAAAAAAA_g.log",
        "orders-7-AAAAAAAAAAAAAAAAAAAAyg/00000000000000000011-AAAAAAAAAAAAAAAAAAAA_g.txt",
        "orders-7-AAAAAAAAAAAAAAAAAAAAyg/00000000000000000011-AAAAAAAAAAAAAAAAAAAA_g.log#1",
        "orders-7-AAAAAAAAAAAAAAAAAAAAyg/00000000000000000011-AAAAAAAAAAAAAAAAAAAA_g.log\n",
        "orders-7-AAAAAAAAAAAAAAAAAAAAyg/x/00000000000000000011-AAAAAAAAAAAAAAAAAAAA_g.log",
        "orders-07-AAAAAAAAAAAAAAAAAAAAyg/00000000000000000011-AAAAAAAAAAAAAAAAAAAA_g.log",
        "orders-9999999999-AAAAAAAAAAAAAAAAAAAAyg/00000000000000000011-AAAAAAAAAAAAAAAAAAAA_g.log",
        "orders-7-AAAAAAAAAAAAAAAAAAAAyg/99999999999999999999-AAAAAAAAAAAAAAAAAAAA_g.log",
        # The same sixteen bytes in another spelling: Kafka would not write it.
        "orders-7-AAAAAAAAAAAAAAAAAAAAyh/00000000000000000011-AAAAAAAAAAAAAAAAAAAA_g.log",
        "sp ace-7-AAAAAAAAAAAAAAAAAAAAyg/00000000000000000011-AAAAAAAAAAAAAAAAAAAA_g.log",
    ],
)
def test_other_keys_are_foreign(key: str) -> None:
    assert parse_key(key) is None


def test_our_own_objects_are_told_apart() -> None:
    assert parse_key(MARKER_KEY) == OwnKey("cluster.json")
    assert parse_key(topic_key(ORDERS.topic_id)) == OwnKey("topics/AAAAAAAAAAAAAAAAAAAAyg.json")
    assert parse_key(lease_key("1f")) == OwnKey("leases/1f.json")
