"""What a node does while it starts."""

import asyncio
import threading
from pathlib import Path

import pytest

from headrace.config import load_settings
from headrace.log.folder import LogFolder
from headrace.node.node import Node


def test_a_node_that_reads_its_logs_again_hears_others_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash that takes as long as the logs are; the node may have a vote by then."""
    heard: list[bool] = []
    real = LogFolder.open

    async def start() -> None:
        loop, is_heard = asyncio.get_running_loop(), threading.Event()

        def open_until_heard(*arguments: object, **options: object) -> LogFolder:
            loop.call_soon_threadsafe(is_heard.set)
            heard.append(is_heard.wait(10))
            return real(*arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(LogFolder, "open", open_until_heard)
        overrides = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "headrace.node.listen": "127.0.0.1:0",
            "log.dirs": str(tmp_path),
        }
        node = Node(load_settings(overrides=overrides))
        await node.start()
        await node.stop()

    asyncio.run(start())
    assert heard == [True]
