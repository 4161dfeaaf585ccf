"""Topics that enter and leave the tier, what an operator is refused, and what the commands show."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.tier_status import cost, status
from headrace.client.admin import Admin
from headrace.client.configs import Resource, ResourceType
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicName
from headrace.node.tiered_topics import TieredTopicsLeft
from headrace.testing.broker import TestBroker
from tests.tier.brokers import COUNT, SETTINGS, TIERED, VALUES, fill, objects, tiered_broker, until


def alter(broker: TestBroker, configs: Mapping[str, str]) -> None:
    async def work() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.alter_configs(Resource(ResourceType.TOPIC, "orders"), set=configs)

    broker.run(work())


def values(broker: TestBroker) -> list[bytes | None]:
    return [record.value for record in broker.consume("orders")]


def test_a_topic_leaves_the_tier_only_with_its_data_there(tmp_path: Path) -> None:
    with tiered_broker(tmp_path) as broker:
        fill(broker, tmp_path)
        with pytest.raises(KafkaError) as refused:
            alter(broker, {"remote.storage.enable": "false"})
        assert refused.value.code == ErrorCode.INVALID_CONFIG
        assert values(broker) == VALUES
        alter(broker, {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})
        until(lambda: not objects(tmp_path), "the deletion")
        partition = broker.node.broker.replicas.find(TopicName("orders"), 0)
        assert partition is not None
        start = partition.log.start_offset
        assert 0 < start < COUNT
        assert values(broker) == VALUES[start:]


def test_copying_stops_where_that_is_said_and_what_is_there_is_read(tmp_path: Path) -> None:
    with tiered_broker(tmp_path) as broker:
        fill(broker, tmp_path)
        stored = objects(tmp_path)
        alter(broker, {"remote.log.copy.disable": "true", "local.retention.bytes": "-2"})
        for value in VALUES:
            broker.produce("orders", value)
        assert values(broker) == VALUES * 2
        assert objects(tmp_path) == stored


def test_a_node_does_not_start_without_the_tier_that_its_topics_need(tmp_path: Path) -> None:
    with tiered_broker(tmp_path) as broker:
        broker.create_topic("orders", configs=TIERED)
    without = {name: text for name, text in SETTINGS.items() if not name.startswith("remote.")}
    with pytest.raises(TieredTopicsLeft, match="orders"):
        TestBroker(tmp_path / "data", without).start()


def test_the_commands_show_what_the_node_does(tmp_path: Path) -> None:
    from headrace.web.server import WebServer  # noqa: PLC0415  only here

    with tiered_broker(tmp_path, http_listen="127.0.0.1:0") as broker:
        fill(broker, tmp_path)
        web = WebServer(broker.node)
        http = f"127.0.0.1:{broker.run(web.start())}"

        def shown() -> dict[str, int]:
            result = CliRunner().invoke(status, ["--http", http, "--json"])
            assert result.exit_code == 0, result.output
            (row,) = json.loads(result.output)["partitions"]
            found: dict[str, int] = row
            return found

        until(lambda: shown()["remote_segments"] == len(objects(tmp_path)), "the status")
        assert shown()["end_offset"] == COUNT
        result = CliRunner().invoke(cost, ["--http", http, "--prices", "s3"])
        assert result.exit_code == 0, result.output
        assert "put" in result.output
        broker.run(web.stop())
