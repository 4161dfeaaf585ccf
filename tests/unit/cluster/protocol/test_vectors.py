"""Bytes of rivven-cluster 0.0.7 itself, which `tools/cluster_vectors` wrote."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from headrace.cluster.protocol import (
    MESSAGE_BYTES_MAX,
    PROTOCOL_VERSION,
    Acks,
    ClusterErrorCode,
    ClusterRequest,
    ClusterResponse,
    FrameReader,
    MetadataCommand,
    ProtocolError,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    frame_parts,
)
from headrace.cluster.protocol.commands import CreateTopic, TopicConfig
from headrace.cluster.protocol.messages import (
    COMMANDS,
    REQUEST_HEADERS,
    REQUESTS,
    RESPONSE_HEADERS,
    RESPONSES,
)
from headrace.cluster.protocol.postcard import Codec
from headrace.ids import TopicName
from tests.unit.cluster.protocol.values import from_serde

LINES = [
    json.loads(line)
    for line in (Path(__file__).parent / "vectors.jsonl").read_text("utf-8").splitlines()
]
CODECS: dict[str, Codec[Any]] = {
    "acks": Codec("Acks", Acks),
    "command": COMMANDS,
    "request": REQUESTS,
    "request_header": REQUEST_HEADERS,
    "response": RESPONSES,
    "response_header": RESPONSE_HEADERS,
}
MESSAGES = [
    pytest.param(line, id=f"{line['kind']} {line['name']}")
    for line in LINES
    if line["kind"] in CODECS
]
FIRST_OWN_INDEX = 64


def of_kind(kind: str) -> list[dict[str, Any]]:
    found = [line for line in LINES if line["kind"] == kind]
    assert found
    return found


@pytest.mark.parametrize("line", MESSAGES)
def test_a_peers_bytes_are_read_as_the_value_they_were_written_from(line: dict[str, Any]) -> None:
    codec = CODECS[line["kind"]]
    assert codec.decode(bytes.fromhex(line["hex"])) == from_serde(codec.plan, line["value"])


@pytest.mark.parametrize("line", MESSAGES)
def test_a_value_is_written_as_the_bytes_that_a_peer_writes(line: dict[str, Any]) -> None:
    codec = CODECS[line["kind"]]
    assert codec.encode(from_serde(codec.plan, line["value"])).hex() == line["hex"]


@pytest.mark.parametrize("line", MESSAGES)
def test_every_shorter_or_longer_form_of_a_peers_bytes_is_refused(line: dict[str, Any]) -> None:
    codec, data = CODECS[line["kind"]], bytes.fromhex(line["hex"])
    for end in {*range(min(len(data), 300)), len(data) - 1}:
        with pytest.raises(ProtocolError):
            codec.decode(data[:end])
    with pytest.raises(ProtocolError, match="1 bytes are left over"):
        codec.decode(data + b"\0")


@pytest.mark.parametrize(
    ("form", "kind"),
    [(ClusterRequest, "request"), (ClusterResponse, "response"), (MetadataCommand, "command")],
)
def test_every_variant_has_a_vector_and_its_number(form: Any, kind: str) -> None:
    written: dict[str, int] = {}
    for line in of_kind(kind):
        value = line["value"]
        name = value if isinstance(value, str) else next(iter(value))
        written[name] = bytes.fromhex(line["hex"])[0]
    ours = {each.__name__: each.__struct_config__.tag for each in get_args(form)}
    assert {name: tag for name, tag in ours.items() if tag < FIRST_OWN_INDEX} == written
    assert len(written) == {"request": 7, "response": 8, "command": 14}[kind]


def test_requests_and_responses_go_through_the_functions_of_the_package() -> None:
    for line in of_kind("request"):
        data = bytes.fromhex(line["hex"])
        index, header = decode_request_header(data)
        assert index == data[0]
        if header.version == PROTOCOL_VERSION:
            request = decode_request(data)
            assert request.header == header
            assert encode_request(request) == data
    for line in of_kind("response"):
        data = bytes.fromhex(line["hex"])
        assert encode_response(decode_response(data)) == data


def test_error_codes_have_the_numbers_of_the_peer_and_are_retried_as_there() -> None:
    theirs = {
        (line["value"], line["name"].lower(), line["is_retriable"])
        for line in of_kind("error_code")
    }
    ours = {
        (code.value, code.name.replace("_", "").lower(), code.is_retriable)
        for code in ClusterErrorCode
    }
    assert ours == theirs
    assert len(ours) == 21


def test_acks_are_kafkas_numbers() -> None:
    for line in of_kind("acks"):
        acks = CODECS["acks"].decode(bytes.fromhex(line["hex"]))
        assert line["name"] == f"{acks.name.capitalize()} is {acks.required_acks} in Kafka"
        assert Acks.of_required_acks(acks.required_acks) is acks


def test_limits_and_frames_are_the_peers() -> None:
    (limits,) = of_kind("limits")
    assert (limits["version"], limits["message_bytes_max"]) == (PROTOCOL_VERSION, MESSAGE_BYTES_MAX)
    (frame,) = of_kind("frame")
    data = bytes.fromhex(frame["hex"])
    assert FrameReader().feed(data) == [b"hello world"]
    assert b"".join(frame_parts([b"hello ", b"world"])) == data


def test_a_topic_has_the_defaults_of_the_peer() -> None:
    (line,) = (line for line in of_kind("command") if line["name"] == "create topic")
    config = TopicConfig(TopicName("orders"), 6, 3)
    assert COMMANDS.encode(CreateTopic(config, (("n1", "n2"),))).hex() == line["hex"]
