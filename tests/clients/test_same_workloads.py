"""The same workloads with our client, aiokafka and confluent-kafka, on Headrace and on Kafka.

What comes of each is the same, whoever wrote and whoever reads.
"""

import asyncio

import pytest

from headrace.client import Admin, TopicPartition
from headrace.client.partitioner import partition_for_key
from tests.clients.awaiting import run
from tests.clients.conftest import START_MS
from tests.clients.workloads import CLIENTS, Client, Read, Sent

PARTITIONS = 3
PAIRS = [
    ("headrace", "aiokafka"),
    ("headrace", "confluent"),
    ("aiokafka", "headrace"),
    ("confluent", "headrace"),
]
RECORDS = [
    Sent(b"key-%d" % (n % 7), b"%d" % n, START_MS + n, (("n", b"%d" % n), ("n", b""))[: n % 3])
    for n in range(60)
]


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest, any_bootstrap: str) -> tuple[Client, Client]:
    """One client that writes, and another that reads."""
    writer, reader = (CLIENTS[name](any_bootstrap) for name in request.param)
    return writer, reader


@pytest.fixture
def topic(any_bootstrap: str, new_name: str) -> str:
    async def create() -> None:
        async with Admin(any_bootstrap) as admin:
            await admin.create_topic(new_name, PARTITIONS, 1)
            await admin.create_topic(f"{new_name}-one", 1, 1)

    asyncio.run(create())
    return new_name


def placed(records: list[Sent], partitions: int) -> list[Read]:
    """Where records are to be, if nobody else writes."""
    ends = dict.fromkeys(range(partitions), 0)
    found = []
    for key, value, timestamp, headers in records:
        partition = partition_for_key(key, partitions)
        found.append(Read(partition, ends[partition], key, value, headers, timestamp))
        ends[partition] += 1
    return sorted(found)


def test_what_one_client_writes_another_reads(pair: tuple[Client, Client], topic: str) -> None:
    client, reader = pair

    async def work() -> None:
        await client.produce(topic, RECORDS)
        found = await reader.read_committed(topic, PARTITIONS)
        assert sorted(found) == placed(RECORDS, PARTITIONS)
        for partition in range(PARTITIONS):
            offsets = [row.offset for row in found if row.partition == partition]
            assert offsets == sorted(offsets), "a partition's records come in order"

    run(work())


def test_a_group_goes_on_where_another_client_left_it(
    pair: tuple[Client, Client], topic: str
) -> None:
    client, reader = pair

    async def work() -> None:
        await client.produce(topic, RECORDS)
        before = await client.read_group(topic, topic, 25)
        after = await reader.read_group(topic, topic, len(RECORDS) - 25)
        assert sorted(before + after) == placed(RECORDS, PARTITIONS)

    run(work())


def test_only_what_a_transaction_committed_is_read(pair: tuple[Client, Client], topic: str) -> None:
    client, reader = pair

    async def work() -> None:
        ends = [(RECORDS[:10], True), (RECORDS[10:20], False), (RECORDS[20:30], True)]
        await client.transact(topic, ends, f"{topic}-writer")
        wanted = sorted(each.value for each in [*RECORDS[:10], *RECORDS[20:30]])
        found: list[bytes | None] = []
        while len(found) < len(wanted):  # markers are written soon after the response
            found = [row.value for row in await reader.read_committed(topic, PARTITIONS)]
        assert sorted(filter(None, found)) == wanted

    run(work())


@pytest.mark.parametrize("name", CLIENTS)
def test_a_copy_commits_its_input_and_its_output_together(
    name: str, any_bootstrap: str, topic: str
) -> None:
    client = CLIENTS[name](any_bootstrap)
    source, target, group = f"{topic}-one", topic, f"{topic}-copier"

    async def work() -> None:
        await client.produce(source, RECORDS)
        await client.copy(source, target, group, f"{topic}-copy", 40)
        copied: list[Read] = []
        while len(copied) < 40:
            copied = await client.read_committed(target, PARTITIONS)
        assert sorted(filter(None, (row.value for row in copied))) == sorted(
            each.value for each in RECORDS[:40]
        )
        place = TopicPartition(source, 0)
        async with Admin(any_bootstrap) as admin:
            offsets = await admin.list_group_offsets(group, [place], require_stable=True)
        assert offsets[place].offset == 40
        rest = await client.read_group(source, group, 20)
        assert [row.offset for row in rest] == list(range(40, 60))

    run(work())
