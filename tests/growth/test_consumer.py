"""What a consumer of many partitions and a leader of a large group cost."""

from headrace.client.fetched import Chunk
from headrace.client.group.assignors import MemberSubscription, assign_cooperatively
from headrace.client.readings import Readings
from headrace.client.topics import TopicPartition
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from tests.growth.steps import assert_grows_linearly, steps


def batch() -> memoryview:
    builder = BatchBuilder(Compression.NONE)
    builder.append(1000, None, b"one")
    return memoryview(bytes(builder.build(base_offset=0)))


def test_a_response_with_many_partitions_is_read_in_linear_time() -> None:
    def cost(partitions: int) -> int:
        readings, data = Readings(), batch()
        names = [TopicPartition("orders", index) for index in range(partitions)]
        readings.assign(dict.fromkeys(names, 0), {})

        def work() -> None:
            for name, reading in list(readings.hungry(is_prefetch=False)):
                readings.keep(name, reading, Chunk(name, data, 0, inflated_bytes_max=1 << 20))
            while readings.take():
                readings.is_running_out()

        return steps(work)

    assert_grows_linearly(cost, 100)


def test_a_member_that_joins_a_large_group_gets_its_share_in_linear_time() -> None:
    def cost(partitions: int) -> int:
        owned = frozenset(TopicPartition("orders", index) for index in range(partitions))
        members = {
            "old": MemberSubscription(frozenset(["orders"]), owned, 1),
            "new": MemberSubscription(frozenset(["orders"])),
        }
        return steps(lambda: assign_cooperatively(members, {"orders": partitions}))

    assert_grows_linearly(cost, 500)
