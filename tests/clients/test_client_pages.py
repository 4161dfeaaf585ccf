"""What docs/client.md and docs/queues.md show works, with what they leave to their readers."""

import asyncio
import logging
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from headrace import client
from headrace.client import Admin, Producer
from headrace.testing.broker import TestBroker
from tests.clients.awaiting import run

DOCS = Path(__file__).parents[2] / "docs"
SECURED = "kafka.example"


def examples() -> "list[Any]":
    return [
        pytest.param(block, id=f"{page}-{number}")
        for page in ("client", "queues")
        for number, block in enumerate(
            re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), flags=re.DOTALL)
        )
        if SECURED not in block  # tests/clients/test_secured_clients.py has such settings
    ]


class Reader:
    """What an example calls that its reader has to write; `is_over` once it was called twice."""

    def __init__(self) -> None:
        self.is_over = asyncio.Event()
        self._calls = 0

    def note(self) -> None:
        self._calls += 1
        if self._calls == 2:
            self.is_over.set()

    async def work(self, *_: object) -> None:
        self.note()

    def bill(self, value: bytes) -> bytes:
        self.note()
        return value

    def is_open(self) -> bool:
        self.note()
        return True


@pytest.mark.parametrize("example", examples())
def test_an_example_runs(headrace: TestBroker, example: str) -> None:
    async def work() -> None:
        async with Admin(headrace.bootstrap) as admin:
            for topic in ("orders", "bills", "in"):
                if "create_topic(" not in example or topic == "in":
                    await admin.create_topic(topic)
            if "share" in example.lower():
                group = client.Resource(client.ResourceType.GROUP, "billing")
                await admin.alter_configs(group, set={"share.auto.offset.reset": "earliest"})
            else:
                topic = "in" if "create_topic(" in example else "orders"
                await admin.alter_group_offsets("billing", {client.TopicPartition(topic, 0): 0})
        reader = Reader()
        names: dict[str, Any] = {name: getattr(client, name) for name in client.__all__}
        names |= dict.fromkeys(("charge", "store", "flush"), reader.work)
        names |= {"bill": reader.bill, "bank": reader, "log": logging}
        names |= {"bootstrap": headrace.bootstrap, "partition": client.TopicPartition("orders", 0)}
        names |= {"Busy": KeyError, "Malformed": ValueError}
        body = example.replace("127.0.0.1:9092", headrace.bootstrap)
        if "consumer.subscribe(" in body and "async with" not in body:
            body = body.replace("on_assigned=..., ", "").replace(", on_lost=...", "")
            body = f"async with Consumer(bootstrap, group='g') as consumer:\n{indented(body)}"
        exec(f"async def example():\n{indented(body)}", names)
        running = asyncio.create_task(names["example"]())
        async with Producer(headrace.bootstrap) as producer:
            while not (running.done() or reader.is_over.is_set()):
                if "create_topic(" in example:
                    await running
                else:
                    await producer.deliver("orders", b"something to read")
        if running.done():
            await running
        else:  # it would go on forever
            running.cancel()
            await asyncio.wait({running})
            assert running.cancelled()

    run(work())


def indented(text: str) -> str:
    return textwrap.indent(text, "    ")
