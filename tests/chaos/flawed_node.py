"""A node with a flaw: what scenarios must notice, or they prove nothing.

python -m tests.chaos.flawed_node FLAW up --data ...
"""

import sys
from typing import Any

from headrace.cli.program import headrace
from headrace.ids import UNKNOWN_OFFSET
from headrace.replication.fetch_reading import FetchReader
from headrace.replication.in_sync import InSync
from headrace.share.durable import DurableState
from headrace.share.led_partition import LedSharePartition


def acknowledge_alone() -> None:
    """A leader takes for committed what no follower has."""

    def high_watermark(self: InSync, end_offset: int, *rest: Any) -> int:
        return end_offset

    InSync.high_watermark = high_watermark  # type: ignore[assignment,method-assign]


def show_what_was_aborted() -> None:
    """A reader of committed records gets all records."""
    real = FetchReader.__init__

    def init(self: FetchReader, *arguments: Any, **options: Any) -> None:
        real(self, *arguments, **options)
        self._is_committed = False

    FetchReader.__init__ = init  # type: ignore[method-assign]


def begin_a_queue_at_its_end() -> None:
    """A node that goes on with a share partition forgets what nobody has accepted."""
    real = LedSharePartition._begin

    def begin(self: LedSharePartition, state: DurableState, start_offset: int) -> None:
        if state.start_offset != UNKNOWN_OFFSET:
            start_offset = max(start_offset, self.partition.log.high_watermark)
            state = state._replace(batches=())
        real(self, state, start_offset)

    LedSharePartition._begin = begin  # type: ignore[method-assign]


FLAWS = {
    each.__name__: each
    for each in (acknowledge_alone, show_what_was_aborted, begin_a_queue_at_its_end)
}

if __name__ == "__main__":
    FLAWS[sys.argv[1]]()
    headrace(sys.argv[2:], prog_name="headrace")
