"""Requests that are well formed and wrong get the error that Kafka has for them."""

from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from headrace.records.builder import BatchBuilder
from headrace.records.header import seal
from headrace.testing.broker import TestBroker
from headrace.wire import encode
from headrace.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.create_topics_response import CreateTopicsResponse
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.produce_response import ProduceResponse
from headrace.wire.schema import Buffer
from tests.broker.peers import MIB, ask, is_served
from tests.differential.connection import Connection, Ending

TOPIC_RESOURCE = 2
REQUEST_HEADER = b"\x00\x2c\x00\x01\x00\x00\x00\x01\xff\xff\x00"
"""Of an IncrementalAlterConfigs, version 1, without a client id."""
MAGIC_AT = 16
COUNT_AT = 57


def produce(broker: TestBroker, topic: str, records: Buffer) -> int:
    """The error code that a batch gets."""
    data = [PartitionProduceData(index=0, records=records)]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    answer = ask(broker.bootstrap, ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def batch(magic: int = 2, count: int | None = None) -> bytearray:
    """A batch of two records with a header that may lie."""
    builder = BatchBuilder()
    for value in (b"one", b"two"):
        builder.append(1_700_000_000_000, None, value)
    built = builder.build()
    built[MAGIC_AT] = magic
    if count is not None:
        built[COUNT_AT : COUNT_AT + 4] = count.to_bytes(4)
    seal(built)
    return built


@pytest.mark.parametrize("name", ["../x", "..", "/etc/passwd", "a\0b", "x" * 250, ""])
def test_a_topic_with_an_impossible_name_is_refused_and_touches_no_file(
    name: str, headrace_module: TestBroker
) -> None:
    broker = headrace_module
    outside = sorted(broker.folder.parent.glob("x*"))
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    answer = ask(broker.bootstrap, CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert produce(broker, name, batch()) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert sorted(broker.folder.parent.glob("x*")) == outside


def test_a_config_of_a_megabyte_ends_the_connection_and_nothing_is_kept(
    headrace_module: TestBroker,
) -> None:
    broker = headrace_module
    broker.create_topic("configured")
    before = metadata_bytes(broker.folder)
    change = AlterableConfig(name="compression.type", config_operation=0, value="v" * 100)
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name="configured", configs=[change]
    )
    body = bytes(encode(IncrementalAlterConfigsRequest(resources=[resource]), 1))
    # No client can write it: the longest string of a request has 32767 bytes.
    longer = unsigned_varint(MIB + 1) + b"v" * MIB
    frame = REQUEST_HEADER + body.replace(unsigned_varint(101) + b"v" * 100, longer)
    with Connection(broker.bootstrap) as connection:
        connection.send_frame(frame)
        assert connection.receive() is Ending.CLOSED
    assert metadata_bytes(broker.folder) - before < MIB / 10


@pytest.mark.parametrize("length", [100, 32767])
def test_a_config_of_nonsense_is_refused(length: int, headrace_module: TestBroker) -> None:
    configs = [CreatableTopicConfig(name="compression.type", value="v" * length)]
    topic = CreatableTopic(name="bad", num_partitions=1, replication_factor=1, configs=configs)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
    answer = ask(headrace_module.bootstrap, request, 7)
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.INVALID_CONFIG
    assert len(answer.topics[0].error_message or "") < 1000


def unsigned_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(0x80 | number & 0x7F)
        number >>= 7
    return bytes((*encoded, number))


def metadata_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / "__cluster_metadata").iterdir())


def test_a_batch_with_a_wrong_checksum_is_refused(headrace_module: TestBroker) -> None:
    headrace_module.create_topic("checksum")
    wrong = batch()
    wrong[-1] ^= 1
    assert produce(headrace_module, "checksum", wrong) == ErrorCode.CORRUPT_MESSAGE
    assert headrace_module.consume("checksum") == []


@pytest.mark.parametrize("count", [1, 3, 2**31 - 1, 2**32 - 1])
def test_a_batch_with_a_wrong_count_is_refused(count: int, headrace_module: TestBroker) -> None:
    topic = headrace_module.create_topic(f"count-{count}")
    assert produce(headrace_module, topic, batch(count=count)) == ErrorCode.INVALID_RECORD
    assert headrace_module.consume(topic) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_of_an_old_format_is_refused(magic: int, headrace_module: TestBroker) -> None:
    topic = headrace_module.create_topic(f"magic-{magic}")
    assert produce(headrace_module, topic, batch(magic=magic)) == ErrorCode.INVALID_RECORD
    assert headrace_module.consume(topic) == []


def test_after_all_of_them_a_good_batch_is_taken(headrace_module: TestBroker) -> None:
    topic = headrace_module.create_topic("good")
    assert produce(headrace_module, topic, b"no batch at all" * 10) != ErrorCode.NONE
    assert produce(headrace_module, topic, batch()) == ErrorCode.NONE
    assert [record.value for record in headrace_module.consume(topic)] == [b"one", b"two"]
    assert is_served(headrace_module.bootstrap, topic)
