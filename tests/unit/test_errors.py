"""Errors with a Kafka code."""

from headrace.errors import ErrorCode, KafkaError


def test_an_error_reads_as_its_code_and_message() -> None:
    error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "orders-9: the topic has 3 partitions")
    assert str(error) == "UNKNOWN_TOPIC_OR_PARTITION: orders-9: the topic has 3 partitions"


def test_clients_retry_what_kafka_says_they_may() -> None:
    assert KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "").is_retriable
    assert not KafkaError(ErrorCode.INVALID_RECORD, "").is_retriable
