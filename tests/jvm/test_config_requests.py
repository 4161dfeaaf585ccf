"""The script of config requests, played to Apache Kafka and to a node of ours."""

import socket
import struct
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from headrace import config
from headrace.wire import ApiKey, read_response, request_parts
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.describe_configs_request import DescribeConfigsRequest
from headrace.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from headrace.wire.messages.request_header import RequestHeader
from headrace.wire.schema import Message
from tests.config_requests import STEPS, Step, codes_of, comparable, comparable_row, describe
from tests.jvm.kafka_broker import kafka
from tests.unit.harness import Harness

pytestmark = pytest.mark.jvm

ANSWER_SECONDS_MAX = 30
VISIBLE_SECONDS_MAX = 3
OF_ELR = "min.insync.replicas"
"""With eligible leader replicas, a feature of new clusters, Kafka sets it for all brokers."""
OWN_PREFIXES = ("headrace.", "errors.deadletterqueue.")
"""What groups can be told here beyond Kafka's configs."""
FIXED_HERE = {
    *("listeners", "listener.security.protocol.map"),
    *(each.name for each in (*config.TLS, *config.SASL, *config.MECHANISM)),
}
"""What Kafka changes while it runs, and a node reads when it starts."""
SOCKET_BUFFERS = {"socket.send.buffer.bytes", "socket.receive.buffer.bytes"}
"""Left to the kernel here."""
ADDRESSES = {"log.dir", "log.dirs", "node.id", "controller.listener.names", "process.roles"}
"""What the two were started with, or not."""


class KafkaClient:
    """One connection, one request at a time."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(":")
        self._socket = socket.create_connection((host, int(port)), ANSWER_SECONDS_MAX)

    def ask(self, body: Message, version: int) -> Any:
        header = RequestHeader(body.API_KEY, version, 1, "test")
        self._socket.sendall(b"".join(request_parts(header, body)))
        (size,) = struct.unpack(">i", self._read(4))
        return read_response(self._read(size), ApiKey(body.API_KEY), version)[1]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            assert chunk, "Kafka closed the connection"
            data += chunk
        return data

    def close(self) -> None:
        self._socket.close()


@pytest.mark.slow
def test_answers_to_config_requests_are_those_of_kafka(tmp_path: Path) -> None:
    ours = Harness(tmp_path / "ours", KAFKA_STARTED_WITH)
    try:
        with kafka(tmp_path / "theirs") as bootstrap, ExitStack() as stack:
            theirs = stack.enter_context(closing(KafkaClient(bootstrap)))
            topics = [CreatableTopic(name, 1, 1) for name in ("t", "u")]
            theirs.ask(CreateTopicsRequest(topics, ANSWER_SECONDS_MAX * 1000), 7)
            for topic in topics:
                ours.create_topic(topic.name)
            differences = []
            for step in STEPS:
                found = _plain(ours.ask(step.body, step.version))
                expected = _expected(theirs, step, found)
                if found != expected:
                    differences.append((str(step), found, expected))
            assert not differences, "\n".join(map(str, differences))
            every = describe((4, "1", None))
            found_rows = _broker_rows(ours.ask(every.body, 4))
            expected_rows = _broker_rows(theirs.ask(every.body, 4))
            assert {name: found_rows.get(name) for name in expected_rows} == expected_rows
    finally:
        ours.close()


def _expected(theirs: KafkaClient, step: Step, found: object) -> object:
    """What Kafka answers: asked again for a while, as it takes time until a change is seen."""
    deadline = time.monotonic() + VISIBLE_SECONDS_MAX
    while True:
        answer = theirs.ask(step.body, step.version)
        assert codes_of(answer) == step.codes, str(step)
        expected = _plain(answer)
        is_change = not isinstance(step.body, DescribeConfigsRequest | ListConfigResourcesRequest)
        if expected == found or is_change or time.monotonic() > deadline:
            return expected


KAFKA_STARTED_WITH = {
    "node.id": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


def _plain(answer: Any) -> object:
    for result in getattr(answer, "results", ()):
        result.configs = [
            row
            for row in result.configs
            if row.name != OF_ELR and not row.name.startswith(OWN_PREFIXES)
        ]
    return comparable(answer)


def _broker_rows(answer: Any) -> dict[str, object]:
    (result,) = answer.results
    left_out = {OF_ELR, *FIXED_HERE, *ADDRESSES, *SOCKET_BUFFERS}
    return {
        row.name: comparable_row(row)
        for row in result.configs
        if row.name not in left_out
        and not row.name.startswith(("advertised.", "controller.quorum."))
    }
