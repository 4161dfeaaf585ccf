"""Keys go where Kafka's clients put them; records without one stay together for a while."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2

from headrace.client.partitioner import StickyPartitions, partition_for_key
from headrace.records.murmur2 import murmur2


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_are_those_of_apache_kafkas_own_tests(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


def test_keys_of_every_length_hash_as_in_another_client() -> None:
    random = Random(1)
    for length in range(70):
        key = random.randbytes(length)
        assert murmur2(key) == aiokafka_murmur2(bytearray(key)) % 2**32


def test_a_key_always_goes_to_one_partition_of_those_there_are() -> None:
    chosen = {partition_for_key(b"%d" % number, 7) for number in range(1000)}
    assert chosen == set(range(7))
    assert partition_for_key(b"one", 7) == partition_for_key(b"one", 7)


def choose(sticky: StickyPartitions, usable: Sequence[int], record_bytes: int) -> int:
    current = sticky.stay("topic", record_bytes)
    return sticky.move("topic", usable, record_bytes) if current is None else current


def test_records_without_key_change_partition_only_after_their_share() -> None:
    sticky = StickyPartitions(Random(1), sticky_bytes=100)
    chosen = [choose(sticky, range(4), 10) for _ in range(200)]
    runs = [chosen[start : start + 10] for start in range(0, 200, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(one[0] != other[0] for one, other in pairwise(runs))
    assert set(chosen) == set(range(4))


def test_only_usable_partitions_are_moved_to() -> None:
    sticky = StickyPartitions(Random(1), sticky_bytes=1)
    assert {choose(sticky, [1, 3], 1) for _ in range(50)} == {1, 3}


def test_a_topic_with_one_partition_keeps_it_beyond_its_share() -> None:
    sticky = StickyPartitions(Random(1), sticky_bytes=1)
    assert [choose(sticky, [0], 10) for _ in range(3)] == [0, 0, 0]
