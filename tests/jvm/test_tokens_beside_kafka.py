"""Delegation tokens beside those of Apache Kafka: the same requests are answered alike."""

from pathlib import Path

from headrace.testing.broker import TestBroker
from tests.broker.delegation_token_play import SETTINGS, Play, play
from tests.jvm.kafka_broker import kafka
from tools.ports import free_port


def test_tokens_are_created_shown_renewed_used_and_ended_as_by_kafka(tmp_path: Path) -> None:
    given = {**SETTINGS, "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"}
    with TestBroker(tmp_path / "headrace", given) as broker:
        ours = play(Play(*(f"127.0.0.1:{each.port}" for each in broker.node.listeners)))
    port = free_port()
    extra = {
        **SETTINGS,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT",
    }
    listeners = {"SASL_PLAINTEXT": port}
    with kafka(tmp_path / "kafka", extra=extra, more_listeners=listeners) as address:
        theirs = play(Play(address, f"127.0.0.1:{port}"))
    assert ours == theirs
