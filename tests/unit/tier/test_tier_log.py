"""Where the tier ends and the disk goes on."""

from typing import Any, cast

from headrace.tier.ports import RemoteRecords
from headrace.tier.reading import RemoteReader
from headrace.tier.tier_log import TierLog
from tests.unit.tier.tier_nodes import TierNode, World, run_tier, running


class EmptyTier:
    """A reader that finds nothing, while a segment leaves the disk or not."""

    def __init__(self, node: TierNode, *, is_disk_freed: bool) -> None:
        self._log = node.log
        self._is_disk_freed = is_disk_freed

    async def read(self, *_: object, **__: object) -> RemoteRecords:
        if self._is_disk_freed:
            self._is_disk_freed = False
            self._log.segments.pop(0).close()
        return RemoteRecords(memoryview(b""), [], is_past_tier=True, gap_offset=0)


def test_what_leaves_the_disk_while_the_tier_is_asked_is_not_passed_over() -> None:
    """A reader goes on behind records that were dropped without a copy, and not behind others."""

    async def first_offset(tier: TierLog, node: TierNode) -> int | None:
        found = await tier.read(
            node.partition, 0, 1000, up_to=20, is_first_whole=True, with_aborted=False
        )
        return int.from_bytes(found.records[:8]) if found.records else None

    async def main() -> None:
        async with running(World()) as node:
            node.produce(20)
            await node.log.flush()
            node.log.segments.pop(0).close()  # dropped without a copy
            reader: Any = EmptyTier(node, is_disk_freed=True)
            tier = TierLog(
                node.metadata, cast(RemoteReader, reader), node.objects, may_skip=lambda: True
            )
            assert await first_offset(tier, node) is None
            assert await first_offset(tier, node) == node.log.local_start_offset

    run_tier(main())
