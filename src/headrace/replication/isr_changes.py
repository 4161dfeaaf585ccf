"""Changes of ISRs on their way into the metadata log, and the watch over followers that lag.

Partitions say what they want changed; one proposal at a time carries all of it. What was not
decided is proposed again, for as long as this node leads the partition in that epoch: until then
the partition counts with both ISRs.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from headrace.errors import KafkaError
from headrace.ids import BrokerId
from headrace.loop.counters import Counters
from headrace.loop.tasks import Tasks
from headrace.loop.turns import Turns
from headrace.metadata.applier import Outcome
from headrace.metadata.ddl import ChangePartition, encode_ddl
from headrace.metadata.entries import Batch, CatalogDdl, Entry
from headrace.metadata.image import Image
from headrace.raft.errors import RaftStopped
from headrace.replication.in_sync import IsrChange
from headrace.replication.partition import Partition

CHANGES_MAX: Final = 200
"""The most changes of a proposal: applying one blocks the loop until it is done."""
PARTITIONS_A_TURN: Final = 200
"""How many partitions are looked at for followers that lag in one turn of the loop."""
WATCH_SECONDS_MIN: Final = 0.02
WATCH_SECONDS_MAX: Final = 5.0
"""How often partitions are looked at."""
FIRST_PAUSE_SECONDS: Final = 0.05
PAUSE_SECONDS_MAX: Final = 1.0

logger = logging.getLogger(__name__)


class Quorum(Protocol):
    """Takes proposals."""

    async def propose_for_outcome(self, change: Entry) -> Outcome: ...


class IsrChanges:
    """The ISRs of the partitions that this node leads."""

    def __init__(
        self,
        image_of: Callable[[], Image],
        quorum: Quorum,
        lag_ms_max: Callable[[], int],
        counters: Counters,
        turns: Turns | None = None,
    ) -> None:
        """`turns` is where the node does what would be too much for one turn of the loop."""
        self.soon = (turns or Turns()).soon
        self._image_of = image_of
        self._quorum = quorum
        self._lag_ms_max = lag_ms_max
        self._counters = counters
        self.led: dict[Partition, None] = {}
        """The partitions that have followers here."""
        self._wanted: dict[Partition, IsrChange] = {}
        self._proposing: asyncio.Task[None] | None = None
        self._tasks = Tasks()

    # What a partition asks of its surroundings

    @property
    def lag_ms_max(self) -> int:
        """How long a follower may be behind before it leaves the ISR."""
        return self._lag_ms_max()

    def now_ms(self) -> int:
        """Return the time by a clock that nobody sets."""
        return int(asyncio.get_running_loop().time() * 1000)

    def epoch_of(self, node: BrokerId) -> int | None:
        """Return the epoch of a broker that may be in sync, None if it may not."""
        broker = self._image_of().broker(node)
        if broker is None or broker.is_fenced or broker.is_shutting_down:
            return None
        return broker.broker_epoch

    def registered_epoch(self, node: BrokerId) -> int | None:
        """Return the epoch of a registered broker, whatever its state."""
        broker = self._image_of().broker(node)
        return None if broker is None else broker.broker_epoch

    def propose(self, partition: Partition, change: IsrChange) -> None:
        """Propose a change of a partition's ISR, soon."""
        self._wanted[partition] = change
        if self._proposing is None:
            self._proposing = self._tasks.start(self._propose_all())

    @property
    def is_busy(self) -> bool:
        """Whether a change is still to be decided."""
        return self._proposing is not None

    # Tasks

    def start(self) -> None:
        """Watch over followers that lag."""
        self._tasks.start(self._watch())

    def close(self) -> None:
        self._tasks.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_bounded(self.lag_ms_max / 2000))
            for number, partition in enumerate(tuple(self.led), 1):
                partition.drop_lagging()
                if number % PARTITIONS_A_TURN == 0:
                    await asyncio.sleep(0)

    async def _propose_all(self) -> None:
        failures = 0
        try:
            while self._wanted:
                some = list(islice(self._wanted.items(), CHANGES_MAX))
                for partition, change in some:
                    if not partition.is_pending(change):
                        del self._wanted[partition]  # the metadata log has decided otherwise
                some = [each for each in some if each[0] in self._wanted]
                if not some:
                    continue
                try:
                    outcome = await self._quorum.propose_for_outcome(
                        Batch(tuple(_entry(*each) for each in some))
                    )
                except RaftStopped:
                    return
                except KafkaError as error:
                    # It may be in the log nevertheless, so both ISRs count until it is decided.
                    failures += 1
                    if failures == 1:
                        logger.warning("%d ISRs cannot be changed now: %s", len(some), error)
                    pause = FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 10)
                    await asyncio.sleep(min(pause, PAUSE_SECONDS_MAX))
                    continue
                failures = 0
                self._conclude(some, outcome)
        finally:
            self._proposing = None

    def _conclude(self, some: list[tuple[Partition, IsrChange]], outcome: Outcome) -> None:
        refused = {each.position: each.error for each in outcome.refusals}
        for number, (partition, change) in enumerate(some):
            if self._wanted.get(partition) == change:
                del self._wanted[partition]
            error = refused.get(number)
            if error is None:
                self._counters.isr_expansions += change.is_join
                self._counters.isr_shrinks += not change.is_join
                logger.info("%s: the ISR is %s now", partition.name, list(change.isr))
            else:
                logger.info("%s: its ISR stays: %s", partition.name, error)
                partition.refuse_isr(change)


def _bounded(seconds: float) -> float:
    """Return how long to wait before followers are looked at, whatever they may lag.

    One that was about to join and is fenced holds the high watermark until then.
    """
    return min(max(seconds, WATCH_SECONDS_MIN), WATCH_SECONDS_MAX)


def _entry(partition: Partition, change: IsrChange) -> CatalogDdl:
    return CatalogDdl(
        encode_ddl(
            ChangePartition(
                partition.topic_id,
                partition.index,
                expected_partition_epoch=change.partition_epoch,
                expected_leader_epoch=change.leader_epoch,
                leader=change.leader,
                isr=change.isr,
                isr_epochs=change.epochs,
            )
        )
    )
