"""Produce, DeleteRecords and fetch sessions, and the requests that show what they did."""

from typing import Final

from headrace.errors import ErrorCode
from headrace.wire import ApiKey
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from headrace.wire.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.messages.fetch_response import FetchResponse
from headrace.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.schema import Message
from tests.differential.conversation import Conversation
from tests.differential.pairs.pair import TIMES, Pair
from tests.differential.requests import (
    EARLIEST,
    LATEST,
    TIMEOUT_MS,
    Producer,
    Topic,
    batch,
    fetch,
    from_offset,
    list_offsets,
    produce,
)

BURST: Final = 20
"""How many produces an idempotent producer sends in one write."""
WAIT_MS: Final = 100


def order_of_produce(talk: Conversation) -> None:
    for acks in (-1, 1, 0):
        topic = talk.topic(f"acks{acks}")
        for offset in range(TIMES):
            _, listed, fetched = talk.ask_at_once(
                f"acks={acks}, offset {offset}",
                [
                    produce(topic, batch(b"%d" % offset), acks=acks),
                    list_offsets(topic, (0, LATEST)),
                    fetch(from_offset(topic, offset)),
                ],
            )
            assert offset_of(listed) == offset + 1
            assert fetched.responses[0].partitions[0].high_watermark == offset + 1
            assert fetched.responses[0].partitions[0].records


def order_of_idempotent_produces(talk: Conversation) -> None:
    """Sequences follow each other, though no produce waits for the one before it."""
    topic = talk.topic("plain")
    producers = DescribeProducersRequest(
        topics=[TopicRequest(name=topic.name, partition_indexes=[0])]
    )
    for turn in range(TIMES):
        producer_id = talk.producer_id()
        requests: list[Message] = [
            produce(topic, batch(b"x", producer=Producer(producer_id, 0, sequence)))
            for sequence in range(BURST)
        ]
        asked = [*requests, list_offsets(topic, (0, LATEST)), producers]
        *produced, listed, described = talk.ask_at_once(
            f"turn {turn}", asked, hide=["last_timestamp"]
        )
        rows = [answer.responses[0].partition_responses[0] for answer in produced]
        assert [row.error_code for row in rows] == [0] * BURST
        first = turn * BURST
        assert [row.base_offset for row in rows] == list(range(first, first + BURST))
        assert offset_of(listed) == first + BURST
        active = described.topics[0].partitions[0].active_producers
        assert BURST - 1 in {row.last_sequence for row in active if row.producer_id == producer_id}


def order_of_delete_records(talk: Conversation) -> None:
    topic = talk.topic("plain")
    for turn in range(TIMES):
        first = turn * 3
        produced, before, deleted, after, fetched = talk.ask_at_once(
            f"turn {turn}",
            [
                produce(topic, batch(b"a", b"b", b"c")),
                list_offsets(topic, (0, EARLIEST)),
                delete_records(topic, first + 2),
                list_offsets(topic, (0, EARLIEST)),
                fetch(from_offset(topic, first + 1)),
            ],
        )
        assert produced.responses[0].partition_responses[0].base_offset == first
        assert offset_of(before) == max(0, first - 1)
        assert deleted.topics[0].partitions[0].low_watermark == first + 2
        assert offset_of(after) == first + 2
        assert fetched.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def order_of_fetch_sessions(talk: Conversation) -> None:
    """A fetch adds a partition to a session; the next one, which names none, reads it."""
    topic = talk.topic("plain", partitions=TIMES + 1)
    opened = talk.quietly(fetch(from_offset(topic, 0), session=(0, 0)), FetchResponse)
    session, epoch = opened.session_id, 1
    talk.plain(opened)  # numbers its id, whatever the next answers say
    for partition in range(1, TIMES + 1):
        added, _, fetched = talk.ask_at_once(
            f"partition {partition}",
            [
                fetch(from_offset(topic, 0, partition=partition), session=(session, epoch)),
                produce(topic, batch(b"a"), partition=partition),
                fetch(session=(session, epoch + 1)),
            ],
        )
        assert added.error_code == fetched.error_code == 0
        rows = {row.partition_index: row for row in fetched.responses[0].partitions}
        assert rows[partition].records
        epoch += 2


def order_of_waiting_fetches(talk: Conversation) -> None:
    """A fetch that waits does not see a produce behind it."""
    topic = talk.topic("plain")
    for offset in range(TIMES):
        fetched, produced, again = talk.ask_at_once(
            f"offset {offset}",
            [
                fetch(from_offset(topic, offset), max_wait_ms=WAIT_MS, min_bytes=1),
                produce(topic, batch(b"a")),
                fetch(from_offset(topic, offset), max_wait_ms=WAIT_MS, min_bytes=1),
            ],
        )
        assert not fetched.responses[0].partitions[0].records
        assert produced.responses[0].partition_responses[0].base_offset == offset
        assert again.responses[0].partitions[0].records


def order_of_sizes_and_epochs(talk: Conversation) -> None:
    """What a produce has appended counts for the size of the log, and for where an epoch ends."""
    topic = talk.topic("plain")
    sizes = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic.name, [0])])
    epochs = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[OffsetForLeaderTopic(topic.name, [OffsetForLeaderPartition(0, -1, 0)])],
    )
    last_bytes = -1
    for offset in range(TIMES):
        before, produced, after, ends = talk.quietly_at_once(
            [sizes, produce(topic, batch(b"a")), sizes, epochs]
        )
        found = [answer.results[0].topics[0].partitions[0] for answer in (before, after)]
        assert last_bytes <= found[0].partition_size < found[1].partition_size
        last_bytes = found[1].partition_size
        assert produced.responses[0].partition_responses[0].base_offset == offset
        assert ends.topics[0].partitions[0].end_offset == offset + 1


def delete_records(topic: Topic, offset: int) -> DeleteRecordsRequest:
    row = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic.name, partitions=[row])], timeout_ms=TIMEOUT_MS
    )


def offset_of(listed: Message) -> int:
    """Return the one offset in an answer of ListOffsets."""
    offset: int = listed.topics[0].partitions[0].offset  # type: ignore[attr-defined]
    return offset


PAIRS: Final = (
    Pair(order_of_produce, (ApiKey.PRODUCE,)),
    Pair(order_of_idempotent_produces, (ApiKey.PRODUCE,)),
    Pair(order_of_delete_records, (ApiKey.DELETE_RECORDS,)),
    Pair(order_of_fetch_sessions, (ApiKey.FETCH,)),
    Pair(order_of_waiting_fetches, (ApiKey.PRODUCE,)),
    Pair(order_of_sizes_and_epochs, (ApiKey.PRODUCE,)),
)
