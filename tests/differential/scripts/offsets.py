"""Offsets by time and by epoch, and the deletion of what lies before one."""

from headrace.records.compression import Compression
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.list_offsets_request import ListOffsetsRequest
from headrace.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.differential.conversation import Conversation
from tests.differential.requests import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    T0,
    TIMEOUT_MS,
    Topic,
    batch,
    fetch,
    from_offset,
    list_offsets,
)

SPECIAL = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "the largest timestamp": MAX_TIMESTAMP,
    "earliest local": EARLIEST_LOCAL,
    "latest tiered": LATEST_TIERED,
    "earliest pending upload": EARLIEST_PENDING_UPLOAD,
    "-7": -7,
}


def list_offsets_special(talk: Conversation) -> None:
    topic, empty = talk.topic("plain"), talk.topic("empty")
    talk.append(topic, batch(b"a", b"b"), batch(b"c", timestamp=T0 + 50), batch(b"d"))
    for name, timestamp in SPECIAL.items():
        talk.ask_all_versions(name, list_offsets(topic, (0, timestamp)))
        talk.ask(f"{name} of nothing", list_offsets(empty, (0, timestamp)))
        committed = list_offsets(topic, (0, timestamp), isolation_level=1)
        talk.ask(f"{name}, committed", committed)


def list_offsets_by_time(talk: Conversation) -> None:
    topic = talk.topic("plain")
    talk.append(
        topic,
        batch(b"a", b"b", b"c"),
        batch(b"d", b"e", timestamp=T0 + 100, codec=Compression.GZIP),
        batch(b"f", timestamp=T0 + 50),
        batch(b"g", timestamp=T0 + 200),
    )
    for delta in (-1, 0, 1, 2, 3, 50, 100, 101, 102, 150, 200, 201):
        talk.ask(f"at {delta}", list_offsets(topic, (0, T0 + delta)))
    talk.ask("at 0 since 1970", list_offsets(topic, (0, 0)))
    talk.ask("at the end of time", list_offsets(topic, (0, 2**63 - 1)))
    talk.ask_all_versions("inside a batch", list_offsets(topic, (0, T0 + 1)))
    untimed = talk.topic("untimed")
    talk.append(untimed, batch(b"a", timestamp=-1), batch(b"b"))
    for name, timestamp in (("0", 0), ("T0", T0), ("the largest", MAX_TIMESTAMP)):
        talk.ask(f"{name} where one has no time", list_offsets(untimed, (0, timestamp)))


def list_offsets_of_append_time(talk: Conversation) -> None:
    topic = talk.topic("append", message_timestamp_type="LogAppendTime")
    talk.append(topic, batch(b"a", b"b"))
    for name, timestamp in (("0", 0), ("the largest", MAX_TIMESTAMP), ("the future", T0 * 2)):
        talk.ask(name, list_offsets(topic, (0, timestamp)), hide=["timestamp"])


def list_offsets_places(talk: Conversation) -> None:
    topic = talk.topic("plain", partitions=2)
    unknown = Topic(talk.name("unknown"))
    talk.ask_all_versions("an unknown topic", list_offsets(unknown, (0, LATEST)))
    talk.ask_all_versions("an unknown partition", list_offsets(topic, (5, LATEST)))
    talk.ask("two partitions", list_offsets(topic, (0, LATEST), (1, EARLIEST)))
    talk.ask("a partition twice", list_offsets(topic, (0, LATEST), (0, EARLIEST)))
    talk.ask("a partition three times", list_offsets(topic, (0, -1), (0, -1), (1, -1), (0, -1)))
    talk.ask("no partition", list_offsets(topic))
    talk.ask("partition -1", list_offsets(topic, (-1, LATEST)))
    talk.ask("an empty name", list_offsets(Topic(""), (0, LATEST)))
    talk.ask("an invalid name", list_offsets(Topic("a b"), (0, LATEST)))
    talk.ask("nothing", ListOffsetsRequest(replica_id=-1))
    for epoch in (-2, 0, 1, 99):
        for version in (4, 11):
            request = list_offsets(topic, (0, LATEST), leader_epoch=epoch)
            talk.ask(f"epoch {epoch} v{version}", request, version)
    for replica in (-3, -2, 1, 99):
        request = list_offsets(topic, (0, LATEST))
        request.replica_id = replica
        talk.ask(f"as replica {replica}", request)
    for level in (1, 2):
        request = list_offsets(topic, (0, LATEST), isolation_level=level)
        talk.ask(f"isolation level {level}", request)


def offset_for_leader_epoch(talk: Conversation) -> None:
    topic, empty = talk.topic("plain"), talk.topic("empty")
    talk.append(topic, batch(b"a", b"b"))

    def request(
        topic: Topic, partition: int, epoch: int, current: int = -1
    ) -> OffsetForLeaderEpochRequest:
        row = OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch, current_leader_epoch=current
        )
        return OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[row])]
        )

    for epoch in (-2, -1, 0, 1, 99):
        talk.ask_all_versions(f"the end of epoch {epoch}", request(topic, 0, epoch))
        talk.ask(f"the end of epoch {epoch} in nothing", request(empty, 0, epoch))
    for current in (-2, 0, 1, 99):
        talk.ask(f"when the leader's epoch is {current}", request(topic, 0, 0, current))
    talk.ask("an unknown partition", request(topic, 9, 0))
    talk.ask("partition -1", request(topic, -1, 0))
    talk.ask("an unknown topic", request(Topic(talk.name("unknown")), 0, 0))
    talk.ask("an invalid name", request(Topic("a b"), 0, 0))
    talk.ask("nothing", OffsetForLeaderEpochRequest(replica_id=-1))
    old = request(topic, 0, 0)
    old.replica_id = -2
    talk.ask("as a debugger", old, 3)


def delete_records(talk: Conversation) -> None:
    topic = talk.topic("plain", partitions=2)
    talk.append(topic, batch(b"a", b"b", b"c"), batch(b"d", b"e"))

    def ask(
        name: str, offset: int, partition: int = 0, version: int = 2, topic: Topic = topic
    ) -> None:
        row = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic.name, partitions=[row])], timeout_ms=TIMEOUT_MS
        )
        talk.ask(name, request, version)

    for version in range(3):
        ask(f"before 1 v{version}", 1, version=version)
    ask("before 2, inside a batch", 2)
    ask("before 1, which is gone", 1)
    ask("before 0", 0)
    ask("before -2", -2)
    ask("beyond the end", 6)
    talk.ask("what there is", fetch(from_offset(topic, 2)))
    talk.ask("the first", list_offsets(topic, (0, EARLIEST)))
    talk.ask("by a time that is gone", list_offsets(topic, (0, T0)))
    ask("all", -1)
    ask("all again", -1)
    ask("the end", 5)
    talk.ask("nothing is left", fetch(from_offset(topic, 5)))
    ask("of an empty partition", -1, partition=1)
    ask("0 of an empty partition", 0, partition=1)
    ask("1 of an empty partition", 1, partition=1)
    ask("an unknown partition", 1, partition=9)
    ask("partition -1", 1, partition=-1)
    ask("an unknown topic", 1, topic=Topic(talk.name("unknown")))
    ask("an invalid name", 1, topic=Topic("a b"))
    talk.ask("nothing", DeleteRecordsRequest(timeout_ms=TIMEOUT_MS))
    rows = [DeleteRecordsPartition(partition_index=p, offset=0) for p in (0, 1, 9)]
    several = DeleteRecordsTopic(name=topic.name, partitions=rows)
    talk.ask("three partitions", DeleteRecordsRequest(topics=[several], timeout_ms=TIMEOUT_MS))
    compacted = talk.topic("compacted", cleanup_policy="compact")
    talk.append(compacted, batch(b"a", b"b"))
    ask("of a compacted topic", 1, topic=compacted)
    both = talk.topic("both", cleanup_policy="compact,delete")
    talk.append(both, batch(b"a", b"b"))
    ask("of a topic with both policies", 1, topic=both)


SCRIPTS = (
    list_offsets_special,
    list_offsets_by_time,
    list_offsets_of_append_time,
    list_offsets_places,
    offset_for_leader_epoch,
    delete_records,
)
