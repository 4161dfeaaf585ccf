"""Idempotent producers: their ids, epochs and sequences."""

from headrace.wire.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from tests.differential.conversation import Conversation
from tests.differential.requests import T0, Producer, Topic, batch, fetch, from_offset, produce


def init_producer_id(talk: Conversation) -> None:
    plain = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    talk.producer_id()  # the first block of ids may take a while
    talk.ask_all_versions("a new producer", plain)

    def ask(name: str, producer_id: int, epoch: int, version: int = 5) -> None:
        request = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=60_000,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        talk.ask(name, request, version)

    for version in (3, 5):
        ask(f"an id of its own v{version}", talk.producer_id(), 0, version)
    ask("an id without an epoch", 5, -1)
    ask("an epoch without an id", -1, 5)
    ask("a negative id", -2, 0)
    ask("a negative epoch", 5, -2)
    ask("the last epoch", talk.producer_id(), 32767)
    for timeout_ms in (0, -1, 2**31 - 1):
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=timeout_ms)
        talk.ask(f"a timeout of {timeout_ms}", request)
    talk.ask("an empty transactional id", InitProducerIdRequest(transactional_id=""))
    talk.ask("an empty transactional id v0", InitProducerIdRequest(transactional_id=""), 0)


def idempotence(talk: Conversation) -> None:
    topic = talk.topic("plain")
    producer_id = talk.producer_id()

    def ask(name: str, sequence: int, *values: bytes, epoch: int = 0) -> None:
        records = batch(*values, producer=Producer(producer_id, epoch, sequence))
        talk.ask(name, produce(topic, records))

    ask("the first batch", 0, b"a", b"b")
    ask("the next", 2, b"c")
    ask("the last again", 2, b"c")
    ask("the first again", 0, b"a", b"b")
    ask("a gap", 5, b"d")
    ask("a batch that overlaps", 1, b"b", b"c")
    ask("the last again, longer", 2, b"c", b"d")
    for sequence in range(3, 9):
        ask(f"the one at {sequence}", sequence, b"e")
    ask("the fifth before the last again", 4, b"e")
    ask("one that is forgotten again", 2, b"c")
    ask("a new epoch, not from zero", 7, b"f", epoch=1)
    ask("a new epoch", 0, b"f", epoch=1)
    ask("the old epoch", 9, b"g", epoch=0)
    ask("the old epoch from zero", 0, b"g", epoch=0)
    ask("an epoch far ahead", 0, b"h", epoch=30)
    ask("the same epoch goes on", 1, b"i", epoch=30)
    talk.ask("what there is", fetch(from_offset(topic, 0)))
    talk.ask("who there is", _describe(topic, 0))


def idempotence_of_strangers(talk: Conversation) -> None:
    topic = talk.topic("plain", partitions=2)
    stranger = 987_654_321

    def ask(name: str, producer: Producer, partition: int = 0) -> None:
        talk.ask(name, produce(topic, batch(b"a", producer=producer), partition=partition))

    ask("an id that nobody gave out", Producer(stranger, 0, 0))
    ask("not from zero", Producer(stranger + 1, 0, 5))
    ask("a sequence of -1", Producer(stranger + 2, 0, -1))
    ask("an epoch of -1", Producer(stranger + 3, -1, 0))
    ask("another partition from zero", Producer(stranger, 0, 0), partition=1)
    ask("a sequence without an id", Producer(-1, -1, 3))
    two = batch(b"a", producer=Producer(stranger + 4, 0, 0))
    talk.ask("two batches of a producer", produce(topic, two + two))
    wrap = Producer(stranger + 5, 0, 2**31 - 1)
    ask("the largest sequence first", wrap)
    ask("and zero behind it", Producer(stranger + 5, 0, 0))
    talk.ask("what there is", fetch(from_offset(topic, 0)))


def describe_producers(talk: Conversation) -> None:
    topic = talk.topic("plain", partitions=2)
    talk.ask("nobody", _describe(topic, 0))
    producer_id = talk.producer_id()
    talk.append(topic, batch(b"a", b"b", producer=Producer(producer_id, 0, 0)))
    talk.append(topic, batch(b"c", producer=Producer(producer_id, 0, 2), timestamp=T0 + 7))
    talk.ask("one producer", _describe(topic, 0))
    talk.ask("two partitions", _describe(topic, 0, 1))
    talk.ask("an unknown partition", _describe(topic, 7))
    talk.ask("a known and an unknown partition", _describe(topic, 0, 7))
    talk.ask("no partition", _describe(topic))
    talk.ask("partition -1", _describe(topic, -1))
    talk.ask("an unknown topic", _describe(Topic(talk.name("unknown")), 0))
    talk.ask("an invalid name", _describe(Topic("a b"), 0))
    talk.ask("an empty name", _describe(Topic(""), 0))
    talk.ask("nothing", DescribeProducersRequest())
    append_time = talk.topic("append", message_timestamp_type="LogAppendTime")
    talk.append(append_time, batch(b"a", producer=Producer(producer_id, 0, 0)))
    talk.ask("with append time", _describe(append_time, 0), hide=["last_timestamp"])


def _describe(topic: Topic, *partitions: int) -> DescribeProducersRequest:
    row = TopicRequest(name=topic.name, partition_indexes=list(partitions))
    return DescribeProducersRequest(topics=[row])


SCRIPTS = (init_producer_id, idempotence, idempotence_of_strangers, describe_producers)
