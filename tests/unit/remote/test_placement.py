"""Where events go: the same partition as with Kafka, and as with crabka for import."""

import pytest

from headrace.ids import PartitionIndex, TopicId
from headrace.remote.placement import (
    Dialect,
    dialects_at,
    metadata_partition,
    siphash_1_3,
)

TOPIC_ID = TopicId(bytes(15) + b"\xca")


@pytest.mark.parametrize(
    ("index", "kafka", "crabka", "krabka"), [(0, 12, 12, 20), (1, 49, 10, 10), (7, 31, 35, 35)]
)
def test_partition_is_that_of_kafka_and_of_crabka(
    index: int, kafka: int, crabka: int, krabka: int
) -> None:
    key = TOPIC_ID, PartitionIndex(index)
    assert metadata_partition(key, 50) == kafka
    assert metadata_partition(key, 50, Dialect.CRABKA) == crabka
    assert metadata_partition(key, 50, Dialect.KRABKA) == krabka


def test_an_id_with_high_bits_and_a_large_index_have_a_partition() -> None:
    for count in (1, 3, 50):
        for dialect in Dialect:
            key = TopicId(b"\xff" * 16), PartitionIndex(2**31 - 1)
            assert 0 <= metadata_partition(key, count, dialect) < count


def test_a_few_events_tell_who_wrote_them() -> None:
    keys = [(TOPIC_ID, PartitionIndex(index)) for index in range(20)]
    for dialect in Dialect:
        found = set(Dialect)
        for key in keys:
            found &= dialects_at(key, metadata_partition(key, 50, dialect), 50)
        assert found == {dialect}


def test_siphash_is_rusts_default_hasher() -> None:
    # std::hash::DefaultHasher::new().finish() of nothing.
    assert siphash_1_3(b"") == 0xD1FBA762150C532C
