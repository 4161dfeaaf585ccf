"""The page about a node's tier."""

from pathlib import Path

import msgspec
import pytest

from headrace.client.node_pages import NoPage, get_page, pages_at
from headrace.remote.tier_status import PATH, TierStatus
from headrace.testing.broker import TestBroker
from headrace.web.server import WebServer

TIER = {
    "remote.log.storage.system.enable": "true",
    "headrace.tier.store": "memory://",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "http.listen": "127.0.0.1:0",
}


def read_page(broker: TestBroker) -> bytes:
    web = WebServer(broker.node)

    async def start() -> int:
        return await web.start()

    port = broker.run(start())
    try:
        return get_page(pages_at(f"127.0.0.1:{port}"), PATH)
    finally:
        broker.run(web.stop())


def test_a_node_says_what_its_tier_does(tmp_path: Path) -> None:
    with TestBroker(tmp_path, settings=TIER) as broker:
        broker.create_topic("orders", configs={"remote.storage.enable": "true"})
        broker.produce("orders", "one")
        status = msgspec.json.decode(read_page(broker), type=TierStatus)
        assert [(row.topic, row.end_offset) for row in status.partitions] == [("orders", 1)]
        assert status.node == 1
        assert status.store.startswith("memory://")


def test_a_node_without_a_tier_says_so(tmp_path: Path) -> None:
    with (
        TestBroker(tmp_path, settings={"http.listen": "127.0.0.1:0"}) as broker,
        pytest.raises(NoPage, match=r"remote\.log\.storage\.system\.enable"),
    ):
        read_page(broker)
