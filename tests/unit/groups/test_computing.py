"""What is computed in threads, part by part."""

import asyncio
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

from headrace.groups.coordinator import _Computing


class Work:
    """Parts without an end, wanted for so many of them."""

    group_id = "g"

    def __init__(self, wanted_parts: int) -> None:
        self.parts = 0
        self.results: list[object] = []
        self._wanted_parts = wanted_parts

    def compute(self) -> Generator[None, None, object]:
        while True:
            self.parts += 1
            yield

    def is_wanted(self, state: object) -> bool:
        return self.parts < self._wanted_parts

    def finish(self, state: object, found: object, now_ms: int) -> None:
        self.results.append(found)


def test_what_nobody_wants_any_more_ends() -> None:
    work = Work(3)
    machine = SimpleNamespace(state=None)

    def write(operation: Callable[[Any, int], object], on_failed: object) -> None:
        operation(machine, 0)

    shard = SimpleNamespace(is_serving=True, machine=machine, write=write)
    groups: Any = SimpleNamespace(shard_at=lambda index: shard)

    async def compute() -> None:
        _Computing().start(groups, 0, work)  # type: ignore[arg-type]
        async with asyncio.timeout(60):
            while not work.results:
                await asyncio.sleep(0.001)

    asyncio.run(compute())
    assert (work.parts, work.results) == (3, [None])
