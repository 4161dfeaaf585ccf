"""The Java programs that other tests compare with: they run, and they answer what they promise."""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any

import pytest

from tests.message_values import MESSAGE_NAMES, versions_of
from tools.jvm import harness
from tools.jvm.oracles import BatchOracle, LogOracle, MessageOracle, OracleError, error_codes

if TYPE_CHECKING:
    from pathlib import Path

BATCH: dict[str, Any] = {
    "baseOffset": 0,
    "lastOffset": 0,
    "leaderEpoch": -1,
    "magic": 2,
    "valid": True,
    "compression": "none",
    "timestampType": "CreateTime",
    "baseTimestamp": 0,
    "maxTimestamp": 0,
    "producerId": -1,
    "producerEpoch": -1,
    "baseSequence": -1,
    "transactional": False,
    "control": False,
    "deleteHorizon": None,
    "count": 1,
    "records": [],
}
RECORD: dict[str, Any] = {"offset": 0, "timestamp": 0, "key": None, "value": None, "headers": []}


def test_every_message_has_a_class_that_serves_its_versions(messages: MessageOracle) -> None:
    for name in MESSAGE_NAMES:
        assert messages.find(name)[1] == versions_of(name), name


def test_messages_become_the_bytes_of_the_protocol(messages: MessageOracle) -> None:
    software = {"clientSoftwareName": "ab", "clientSoftwareVersion": "1"}
    assert messages.encode("ApiVersionsRequest", 0, {}) == b""
    assert messages.encode("ApiVersionsRequest", 3, software) == b"\x03ab\x021\x00"
    assert messages.decode("ApiVersionsRequest", 3, b"\x03ab\x021\x00") == software


def test_records_pass_through_json(messages: MessageOracle) -> None:
    partitions = [{"index": 0, "records": "AAEC"}, {"index": 1, "records": None}]
    topics = [{"name": "t", "partitionData": partitions}]
    request = {"transactionalId": None, "acks": 1, "timeoutMs": 5, "topicData": topics}
    data = messages.encode("ProduceRequest", 9, request)
    assert b"\x04\x00\x01\x02" in data
    assert messages.decode("ProduceRequest", 9, data) == request


@pytest.mark.parametrize("value", [0.0, -0.0, 1e16, 5e-324, math.inf, -math.inf, math.nan])
def test_floats_pass_through_json(messages: MessageOracle, value: float) -> None:
    operation = {"key": "é\u2028\U0001f600", "value": value, "remove": False}
    request = {"entries": [{"entity": [], "ops": [operation]}], "validateOnly": False}
    data = messages.encode("AlterClientQuotasRequest", 1, request)
    assert repr(messages.decode("AlterClientQuotasRequest", 1, data)) == repr(request)


def test_unknown_tagged_fields_survive_recoding(messages: MessageOracle) -> None:
    data = b"\x03ab\x021\x01\x63\x02hi"
    assert messages.recode("ApiVersionsRequest", 3, data) == data


def test_a_value_that_the_version_cannot_carry_is_refused(messages: MessageOracle) -> None:
    request = {"key": "k", "keyType": 1, "coordinatorKeys": []}
    with pytest.raises(OracleError, match="keyType") as refusal:
        messages.encode("FindCoordinatorRequest", 0, request)
    assert refusal.value.java_class.endswith(".UnsupportedVersionException")


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("find", "NoSuchMessage"),
        ("encode", "ApiVersionsRequest", "99", "{}"),
        ("encode", "ApiVersionsRequest", "3", "{"),
        ("encode", "ApiVersionsRequest", "3", "{}"),
        ("decode", "ApiVersionsRequest", "3", "ff"),
        ("decode", "ApiVersionsRequest", "0", "00"),
    ],
)
def test_an_error_leaves_the_program_running(
    messages: MessageOracle, words: tuple[str, ...]
) -> None:
    with pytest.raises(OracleError):
        messages.ask(*words)
    assert messages.encode("ApiVersionsRequest", 0, {}) == b""


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("count", [1, 10_000])
def test_batches_are_read_as_written(batches: BatchOracle, compression: str, count: int) -> None:
    headers = [{"key": "h", "value": None}, {"key": "", "value": ""}]
    value = base64.b64encode(b"v" * 20).decode()
    first = RECORD | {"offset": 7, "timestamp": 1000, "key": "", "headers": headers}
    rest = [
        RECORD | {"offset": 7 + n, "timestamp": 1000 + n, "value": value} for n in range(1, count)
    ]
    batch = BATCH | {
        "baseOffset": 7,
        "lastOffset": 6 + count,
        "leaderEpoch": 3,
        "compression": compression,
        "baseTimestamp": 1000,
        "maxTimestamp": 999 + count,
        "producerId": 9,
        "producerEpoch": 2,
        "baseSequence": 5,
        "transactional": True,
        "count": count,
        "records": [first, *rest],
    }
    assert batches.read(batches.write(batch)) == [batch]


def test_a_batch_of_no_records_keeps_its_offsets(batches: BatchOracle) -> None:
    batch = BATCH | {"baseOffset": 7, "lastOffset": 9, "baseTimestamp": -1, "count": 0}
    assert batches.read(batches.write(batch)) == [batch]


def test_append_time_and_delete_horizon_are_kept(batches: BatchOracle) -> None:
    batch = BATCH | {
        "lastOffset": 4,
        "timestampType": "LogAppendTime",
        "baseTimestamp": 99,
        "maxTimestamp": 77,
        "deleteHorizon": 99,
        "records": [RECORD | {"offset": 2, "timestamp": 77}],
    }
    assert batches.read(batches.write(batch)) == [batch]


@pytest.mark.parametrize("marker", ["COMMIT", "ABORT"])
def test_transaction_markers_are_parsed(batches: BatchOracle, marker: str) -> None:
    control = {"controlType": marker, "coordinatorEpoch": 12, "timestamp": 5}
    batch = {"control": True, "producerId": 4, "producerEpoch": 2, "records": [control]}
    (read,) = batches.read(batches.write(batch))
    assert read["transactional"]
    assert read["records"][0].items() >= control.items()


def test_leader_changes_are_parsed(batches: BatchOracle) -> None:
    message = {"version": 0, "leaderId": 3, "voters": [{"voterId": 3}], "grantingVoters": []}
    control = {"controlType": "LEADER_CHANGE", "message": message, "timestamp": 5}
    (read,) = batches.read(batches.write({"control": True, "leaderEpoch": 1, "records": [control]}))
    assert read["control"]
    assert read["records"][0].items() >= control.items()


def test_a_damaged_batch_is_not_valid(batches: BatchOracle) -> None:
    data = bytearray(batches.write({"records": [{"value": "AAAA"}]}))
    data[-2] ^= 1
    (read,) = batches.read(data)
    assert not read["valid"]
    assert read["records"] is None


def test_the_log_stores_what_it_accepts(batches: BatchOracle, log: LogOracle) -> None:
    data = batches.write({"records": [{"timestamp": 5, "key": "aw=="}]})
    config = {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"}
    appended = log.append(data, config, now_ms=60, leader_epoch=4)
    assert (appended.error, appended.stage) == ("NONE", None)
    assert appended.stored is not None
    (stored,) = batches.read(appended.stored)
    assert (stored["compression"], stored["maxTimestamp"], stored["leaderEpoch"]) == ("gzip", 60, 4)


def test_the_log_names_what_it_refuses(batches: BatchOracle, log: LogOracle) -> None:
    data = batches.write({"records": [{"key": "aw=="}, {"timestamp": 5}]})
    keyless = log.append(data, {"cleanup.policy": "compact"})
    assert (keyless.error, keyless.stage) == ("INVALID_RECORD", "log")
    assert [index for index, _ in keyless.record_errors] == [1]
    early = log.append(data, {"message.timestamp.after.max.ms": "4"})
    assert early.error == "INVALID_TIMESTAMP"
    assert log.append(data[:-1] + b"\1").error == "CORRUPT_MESSAGE"
    assert log.append(b"").stage == "request"


def test_error_codes_are_listed() -> None:
    codes = {error.code: error for error in error_codes()}
    assert codes[0].name == "NONE"
    assert codes[6] == (6, "NOT_LEADER_OR_FOLLOWER", True)
    assert codes[87] == (87, "INVALID_RECORD", False)


def test_a_program_that_dies_shows_its_errors(tmp_path: Path) -> None:
    source = tmp_path / "Dies.java"
    source.write_text(
        "class Dies { public static void main(String[] a) { throw new Error(a[0]); } }"
    )
    classes = harness.compile_java(source)
    with (
        harness.Program(classes, "Dies", "out of luck") as program,
        pytest.raises(RuntimeError, match=r"Dies ended with status 1:(.|\n)*out of luck"),
    ):
        program.ask("x")


def test_source_that_does_not_compile_shows_why(tmp_path: Path) -> None:
    source = tmp_path / "Broken.java"
    source.write_text("class Broken { nothing }")
    with pytest.raises(RuntimeError, match=r"javac ended with status 1:(.|\n)*Broken\.java:1"):
        harness.compile_java(source)


def test_a_machine_without_java_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(harness, "JARS", tmp_path / "jars")
    with pytest.raises(RuntimeError, match="need java on the PATH"):
        harness.jars()
