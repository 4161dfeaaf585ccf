"""Codes of Kafka's in the codes of seed 002, and what a response says of a refusal."""

import pytest

from headrace.cluster.protocol import RETRIABLE, ClusterErrorCode, ProtocolError, encode_response
from headrace.errors import RETRIABLE as KAFKA_RETRIABLE
from headrace.errors import ErrorCode, KafkaError
from headrace.server.interchange.refusals import Refusal, code_of, error_response


@pytest.mark.parametrize(
    "name",
    [
        "NONE",
        "CORRUPT_MESSAGE",
        "LEADER_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "INVALID_REQUIRED_ACKS",
        "NOT_CONTROLLER",
        "INVALID_REQUEST",
        "UNSUPPORTED_VERSION",
        "TOPIC_ALREADY_EXISTS",
        "INVALID_REPLICATION_FACTOR",
        "INELIGIBLE_REPLICA",
        "OFFSET_OUT_OF_RANGE",
        "GROUP_AUTHORIZATION_FAILED",
        "UNKNOWN_MEMBER_ID",
    ],
)
def test_codes_of_the_same_name_mean_the_same(name: str) -> None:
    assert code_of(ErrorCode[name]) == ClusterErrorCode[name]


@pytest.mark.parametrize("code", ErrorCode)
def test_what_kafka_s_clients_must_not_repeat_is_not_retriable_here(code: ErrorCode) -> None:
    given_up = {ErrorCode.INVALID_UPDATE_VERSION}  # the proposer reads the partition again
    if code_of(code) in RETRIABLE - {ClusterErrorCode.UNKNOWN_TOPIC}:
        assert code in KAFKA_RETRIABLE | given_up


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "x"), ClusterErrorCode.TOPIC_ALREADY_EXISTS),
        (Refusal(ClusterErrorCode.INVALID_PARTITION, "x"), ClusterErrorCode.INVALID_PARTITION),
        (ProtocolError("x", message="y"), ClusterErrorCode.CORRUPT_MESSAGE),
        (ValueError("a secret"), ClusterErrorCode.UNKNOWN),
        (KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "x"), ClusterErrorCode.UNKNOWN),
    ],
)
def test_an_error_has_its_code_and_a_message(error: Exception, code: ClusterErrorCode) -> None:
    header = error_response(7, error).header
    assert (header.correlation_id, header.error_code) == (7, code)
    assert header.error_message
    assert "secret" not in header.error_message


def test_a_message_of_megabytes_is_cut() -> None:
    error = Refusal(ClusterErrorCode.UNKNOWN_TOPIC, "x" * (1 << 24))
    assert len(encode_response(error_response(7, error))) < 1000
