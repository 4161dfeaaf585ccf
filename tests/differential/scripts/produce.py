"""Produce: what a broker takes and how it refuses."""

import struct

from headrace.records.compression import Compression
from headrace.records.header import seal
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.differential.conversation import Conversation
from tests.differential.plain import MADE_UP_ID
from tests.differential.requests import T0, Producer, Topic, batch, fetch, from_offset, produce

_ATTRIBUTES_AT = 21
_LAST_OFFSET_DELTA_AT = 23
_COUNT_AT = 57


def produce_versions(talk: Conversation) -> None:
    topic = talk.topic("plain", partitions=2)
    talk.ask_all_versions("one batch", produce(topic, batch(b"a", b"b")))
    talk.ask_all_versions("acks=1", produce(topic, batch(b"a"), acks=1))
    unknown = Topic(talk.name("unknown"), MADE_UP_ID)
    talk.ask_all_versions("an unknown topic", produce(unknown, batch(b"a")))
    talk.ask_all_versions("an unknown partition", produce(topic, batch(b"a"), partition=9))
    corrupt = batch(b"a")[:-1] + b"?"
    talk.ask_all_versions("a wrong checksum", produce(topic, corrupt))
    talk.ask("what there is", fetch(from_offset(topic, 0)))


def produce_acks(talk: Conversation) -> None:
    topic = talk.topic("plain")
    for version in (3, 9, 13):
        talk.tell(f"acks=0 v{version}", produce(topic, batch(b"a"), acks=0), version)
    for acks in (2, -2, 3, 32767):
        for version in (7, 13):
            talk.ask(f"acks={acks} v{version}", produce(topic, batch(b"a"), acks=acks), version)
    unknown = Topic(talk.name("unknown"), MADE_UP_ID)
    strict = talk.topic("strict", min_insync_replicas="2")
    talk.ask("more replicas in sync than exist", produce(strict, batch(b"a"), acks=-1))
    talk.tell("acks=0 to an unknown topic", produce(unknown, batch(b"a"), acks=0), 12)
    talk.tell("acks=0 with a wrong checksum", produce(topic, batch(b"a")[:-1] + b"?", acks=0), 12)
    talk.tell("acks=0 with no topic", ProduceRequest(acks=0, timeout_ms=100), 12)
    talk.ask("what there is", fetch(from_offset(topic, 0)))


def produce_places(talk: Conversation) -> None:
    topic = talk.topic("plain", partitions=2)
    other = talk.topic("other")
    talk.ask("no topic", ProduceRequest(acks=-1, timeout_ms=100))
    row = TopicProduceData(name=topic.name, topic_id=topic.id)
    talk.ask("no partition", ProduceRequest(acks=-1, timeout_ms=100, topic_data=[row]))
    talk.ask("partition -1", produce(topic, batch(b"a"), partition=-1))
    talk.ask("an id of zeros", produce(Topic(topic.name), batch(b"a")))
    talk.ask("an empty name v12", produce(Topic(""), batch(b"a")), 12)
    talk.ask("an invalid name v12", produce(Topic("a b"), batch(b"a")), 12)
    talk.ask("an internal topic v12", produce(Topic("__cluster_metadata"), batch(b"a")), 12)
    rows = [
        PartitionProduceData(index=index, records=records)
        for index, records in ((0, batch(b"a")), (1, batch(b"b")), (2, batch(b"c")))
    ]
    several = TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=rows)
    once = TopicProduceData(name=other.name, topic_id=other.id, partition_data=[rows[0]])
    for version in (9, 12, 13):
        talk.ask(
            f"two topics, three partitions, one of them unknown v{version}",
            ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[several, once]),
            version,
        )
    twice = TopicProduceData(name=other.name, topic_id=other.id, partition_data=[rows[0], rows[0]])
    talk.ask("what there is", fetch(from_offset(other, 0)))
    talk.ask("a partition twice", ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[twice]))


def produce_batches(talk: Conversation) -> None:
    good = batch(b"abc", b"def")

    def ask(name: str, records: bytes, *versions: int) -> None:
        topic = talk.topic(name.replace(" ", "-"))
        talk.ask_all_versions(name, produce(topic, records), versions or (13,))
        talk.ask(f"what there is after {name}", fetch(from_offset(topic, 0)))

    plain = talk.topic("plain")
    talk.ask("null records", produce(plain, None), patience_seconds=1)
    ask("empty records", b"", 3, 8, 9, 13)
    ask("two batches", good + good, 3, 8, 9, 13)
    ask("a batch and half a batch", good + good[:30])
    ask("half a batch", good[:30])
    ask("eight bytes", good[:8])
    ask("twelve bytes", good[:12])
    ask("a batch without records", batch())
    ask("magic 0", _edited(good, 16, b"\x00"), 3, 8, 9, 13)
    ask("magic 1", _edited(good, 16, b"\x01"), 3, 13)
    ask("magic 3", _edited(good, 16, b"\x03"))
    ask("magic -1", _edited(good, 16, b"\xff"))
    ask("a length of 0", _edited(good, 8, struct.pack(">i", 0)))
    ask("a length of -1", _edited(good, 8, struct.pack(">i", -1)))
    ask("a length beyond the bytes", _edited(good, 8, struct.pack(">i", 10_000)))
    ask("a base offset other than 0", _edited(good, 0, struct.pack(">q", 42)))
    ask("a leader epoch", _edited(good, 12, struct.pack(">i", 5)))
    ask("a wrong count", _sealed(good, _COUNT_AT, struct.pack(">i", 3)))
    ask("a count of 0", _sealed(good, _COUNT_AT, struct.pack(">i", 0)))
    ask("a negative count", _sealed(good, _COUNT_AT, struct.pack(">i", -1)))
    ask("a wrong last offset delta", _sealed(good, _LAST_OFFSET_DELTA_AT, struct.pack(">i", 5)))
    ask("a negative last offset delta", _sealed(good, _LAST_OFFSET_DELTA_AT, struct.pack(">i", -1)))
    ask("a control batch", batch(b"a", is_control=True))
    ask("unknown attributes", _sealed(good, _ATTRIBUTES_AT, struct.pack(">h", 0x80)))
    ask("a delete horizon", _sealed(good, _ATTRIBUTES_AT, struct.pack(">h", 0x40)))
    ask("log append time in the attributes", _sealed(good, _ATTRIBUTES_AT, struct.pack(">h", 8)))
    ask("codec 5", _sealed(good, _ATTRIBUTES_AT, struct.pack(">h", 5)))
    ask("a record cut short", _sealed(good[:-2], 8, struct.pack(">i", len(good) - 14)))
    ask("bytes behind the last record", _sealed(good + b"zz", 8, struct.pack(">i", len(good) - 10)))


def produce_codecs(talk: Conversation) -> None:
    topic = talk.topic("plain")
    for codec in Compression:
        records = batch(b"a" * 100, b"b" * 100, codec=codec)
        for version in (3, 6, 7, 13):
            talk.ask(f"{codec.name.lower()} v{version}", produce(topic, records), version)
        wrong = _sealed(records, _COUNT_AT, struct.pack(">i", 7))
        talk.ask(f"{codec.name.lower()} with a wrong count", produce(topic, wrong))
    talk.ask("what there is", fetch(from_offset(topic, 0)))
    for codec in Compression:
        if codec:
            records = batch(b"a" * 100, b"b" * 100, codec=codec)
            broken = _sealed(records, len(records) - 20, b"\x00" * 20)
            own = talk.topic(codec.name.lower())
            talk.ask(f"{codec.name.lower()} that does not inflate", produce(own, broken))


def produce_recompressed(talk: Conversation) -> None:
    for kept in ("uncompressed", "gzip", "zstd"):
        topic = talk.topic(kept, compression_type=kept)
        for codec in (Compression.NONE, Compression.LZ4, Compression.GZIP):
            records = batch(b"a" * 50, b"b" * 50, codec=codec)
            talk.ask(f"{codec.name.lower()} into {kept}", produce(topic, records))
        talk.ask(f"what {kept} has", fetch(from_offset(topic, 0)))
        two = batch(b"a") + batch(b"b")
        talk.ask(f"two batches into {kept}", produce(topic, two))


def produce_too_large(talk: Conversation) -> None:
    topic = talk.topic("small", max_message_bytes="1000")
    talk.ask_all_versions("too large", produce(topic, batch(b"a" * 2000)))
    talk.ask("small enough", produce(topic, batch(b"a" * 500)))
    talk.ask(
        "two that are each small enough", produce(topic, batch(b"a" * 800) + batch(b"b" * 800))
    )
    fits = batch(b"a" * 2000, codec=Compression.GZIP)
    talk.ask("small enough when compressed", produce(topic, fits))
    rest = 1000 - len(batch(b"a" * 900))
    talk.ask("exactly as large as allowed", produce(topic, batch(b"a" * (900 + rest))))
    talk.ask("one byte more", produce(topic, batch(b"a" * (901 + rest))))
    default = talk.topic("default")
    talk.ask("larger than the default", produce(default, batch(b"a" * 1_048_600)))
    talk.ask("what there is", fetch(from_offset(topic, 0)))


def produce_compacted(talk: Conversation) -> None:
    topic = talk.topic("compacted", cleanup_policy="compact")
    talk.ask_all_versions("without key", produce(topic, batch(b"a", b"b", is_keyed=False)))
    talk.ask("with key", produce(topic, batch(b"a", b"b")))
    talk.ask("a tombstone", produce(topic, batch(None)))
    packed = batch(b"a", b"b", is_keyed=False, codec=Compression.GZIP)
    talk.ask("without key, compressed", produce(topic, packed))
    both = talk.topic("both", cleanup_policy="compact,delete")
    talk.ask("without key, compacted and deleted", produce(both, batch(b"a", is_keyed=False)))
    talk.ask("what there is", fetch(from_offset(topic, 0)))


def produce_times(talk: Conversation) -> None:
    topic = talk.topic("create")
    day = 24 * 60 * 60 * 1000
    talk.ask("no timestamp", produce(topic, batch(b"a", timestamp=-1)))
    talk.ask("a time of 0", produce(topic, batch(b"a", timestamp=0)))
    talk.ask("a day ahead", produce(topic, batch(b"a", timestamp=T0 + day)))
    talk.ask_all_versions(
        "two records a day ahead", produce(topic, batch(b"a", b"b", timestamp=T0 + day)), (7, 8, 13)
    )
    packed = batch(b"a", timestamp=T0 + day, codec=Compression.GZIP)
    talk.ask("a day ahead, compressed", produce(topic, packed))
    talk.ask("half an hour ahead", produce(topic, batch(b"a", timestamp=T0 + day // 48)))
    old = talk.topic("before", message_timestamp_before_max_ms="3600000")
    talk.ask("a day ago", produce(old, batch(b"a", b"b", timestamp=T0 - day)))
    talk.ask("a minute ago", produce(old, batch(b"a")))
    talk.ask("no timestamp, and a bound", produce(old, batch(b"a", timestamp=-1)))
    wrong = _sealed(batch(b"a", b"b"), 35, struct.pack(">q", T0 + 500))
    talk.ask("a wrong largest timestamp", produce(topic, wrong))
    talk.ask("what there is", fetch(from_offset(topic, 0)))


def produce_append_time(talk: Conversation) -> None:
    topic = talk.topic("append", message_timestamp_type="LogAppendTime")
    talk.ask_all_versions("one batch", produce(topic, batch(b"a", b"b")))
    talk.ask("compressed", produce(topic, batch(b"a", codec=Compression.ZSTD)))
    talk.ask("no timestamp", produce(topic, batch(b"a", timestamp=-1)))
    talk.ask("far ahead", produce(topic, batch(b"a", timestamp=T0 * 2)))
    marked = _sealed(batch(b"a", b"b"), _ATTRIBUTES_AT, struct.pack(">h", 8))
    talk.ask("already marked", produce(topic, marked))
    talk.ask("what there is", fetch(from_offset(topic, 0)), hide=["max_timestamp"])


def produce_transactional(talk: Conversation) -> None:
    """What claims to belong to a transaction that nobody has begun."""
    topic = talk.topic("plain")
    producer = Producer(talk.producer_id(), 0, 0)
    records = batch(b"a", producer=producer, is_transactional=True)
    transactional_id = talk.name("nobody")
    talk.ask(
        "a transactional batch without a transactional id",
        produce(topic, records),
    )
    talk.ask(
        "a transactional id and a plain batch",
        produce(topic, batch(b"a"), transactional_id=transactional_id),
    )
    talk.ask(
        "a transactional batch from nobody",
        produce(topic, batch(b"a", is_transactional=True), transactional_id=transactional_id),
    )


def _edited(records: bytes, position: int, replacement: bytes) -> bytes:
    return records[:position] + replacement + records[position + len(replacement) :]


def _sealed(records: bytes, position: int, replacement: bytes) -> bytes:
    """Change bytes and make the checksum right again."""
    changed = bytearray(_edited(records, position, replacement))
    seal(changed)
    return bytes(changed)


SCRIPTS = (
    produce_versions,
    produce_acks,
    produce_places,
    produce_batches,
    produce_codecs,
    produce_recompressed,
    produce_too_large,
    produce_compacted,
    produce_times,
    produce_append_time,
    produce_transactional,
)
